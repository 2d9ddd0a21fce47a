#!/usr/bin/env python3
"""Hosts for tests and for `make demo`: machines where nothing runs but sshd, each with a home and keys of its own.

A host is a set of namespaces (network, processes, mounts, name) with a veth link to us, where the kernel and our rights
allow it; else an sshd on a loopback port, with a line on stderr that says why. Everything of a namespaced host ends with
the process that made it, even after kill -9; a loopback host's programs are ended by close().

    isolate()                                # this program, in a network and process namespace of its own
    with Hosts(folder, ["anna", "bert"]) as hosts: …

From a shell: `hosts.py FOLDER NAME…` prints one line of JSON, obeys lines on its standard input (cut, heal, freeze, thaw
NAME; kill or nice NAME PROGRAM) and removes the hosts when that ends. FOLDER/bin/ssh is then an ssh that knows these hosts and nobody else.
"""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

from fault_proxy import FaultProxy

_UNSHARE = ["--net", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
_INSIDE = "LLORCH_TEST_ISOLATED"
_NETWORK = "10.213"  # of a namespace of its own: nobody else's
_PATIENCE = 20


def find_program(name):
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if found is None:
        raise SystemExit(f"hosts: {name} is not here; `scripts/setup.sh test` installs what tests need")
    return found


def run(*words):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE)
    if done.returncode != 0:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def is_isolated():
    return os.environ.get(_INSIDE) == "1"


def isolate():
    """Starts this program again in a network and a process namespace of its own, where that is allowed: whatever happens
    to it, nothing is left behind. Returns where it is not allowed, and inside."""
    if is_isolated():
        run(find_program("ip"), "link", "set", "lo", "up")
        return
    try:
        run("unshare", *_UNSHARE, "true")
    except (OSError, subprocess.SubprocessError) as error:
        print(f"hosts: no namespaces of our own: {error}", file=sys.stderr)
        return
    os.environ[_INSIDE] = "1"
    words = ["setpriv", "--pdeathsig", "KILL", "unshare", *_UNSHARE, sys.executable, *sys.argv]
    os.execvp(words[0], words)


def wait_until(condition, what, seconds=_PATIENCE):
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(what)
        time.sleep(0.01)


def processes():
    """pid → parent of everything that runs and is no zombie."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            fields = pathlib.Path(f"/proc/{name}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if fields[0] not in "ZX":
            found[int(name)] = int(fields[1])
    return found


def command_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def _program(pid):
    """The name of the file that it runs; an sshd writes other words over its own."""
    try:
        return os.readlink(f"/proc/{pid}/exe").rsplit("/", 1)[-1]
    except OSError:
        return ""


def let_others_go_first(pid):
    """All of its threads, and its session: kernels may share the processor between sessions first."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.setpriority(os.PRIO_PROCESS, int(thread), 19)
    session = pathlib.Path(f"/proc/{pid}/autogroup")
    if session.exists():
        session.write_text("19")


def has_variable(pid, entry):
    try:
        return entry.encode() in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


class Host:
    def __init__(self, name, number, folder):
        self.name, self.number, self.folder = name, number, folder
        self.home = folder / "home"
        self.address, self.port = "127.0.0.1", 0
        self.keeper = None  # the child of ours whose end ends the host
        self.init = None    # its first process, as we see it; namespaces only
        self.proxy = None
        self._log = None

    def open_log(self):
        self.close_log()
        self._log = open(self.folder / "log", "w")
        return self._log

    def close_log(self):
        if self._log is not None:
            self._log.close()

    def processes(self):
        """Everything that runs on it, its sshd among them."""
        alive = processes()
        if self.init is not None:
            mine = _namespace(self.init)
            return [pid for pid in alive if _namespace(pid) == mine]
        of_sshd = {self.keeper.pid}
        for _ in range(4):
            of_sshd |= {pid for pid, parent in alive.items() if parent in of_sshd}
        return [pid for pid in alive if pid in of_sshd or has_variable(pid, f"HOME={self.home}")]

    def programs(self, name):
        """Those of its processes that run this program."""
        return [pid for pid in self.processes() if (command_of(pid) or [""])[0].rsplit("/", 1)[-1] == name]


def _namespace(pid):
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return None


class Hosts:
    """`sshd_lines`: more for sshd_config. `proxied`: a FaultProxy (host.proxy) lies on each link; loopback hosts always have
    one. `password`: logins need it, no key will do; namespaces only. `namespaces` False: loopback in any case."""

    def __init__(self, folder, names, sshd_lines=(), proxied=False, password=None, namespaces=True):
        self.folder = pathlib.Path(folder)
        self._sshd_lines, self._proxied, self._password = list(sshd_lines), proxied, password
        self._sshd = find_program("sshd")
        self._ssh = find_program("ssh")
        self._hosts = {}
        (self.folder / "bin").mkdir(parents=True)
        self._make_key("key")
        for number, name in enumerate(names):
            self._hosts[name] = self._write_files(Host(name, number + 1, self.folder / name))
        self.kind = "loopback"
        try:
            if namespaces and is_isolated():
                self._start_namespaces()
                self.kind = "namespaces"
            elif namespaces:
                print("hosts: loopback ports in place of machines: not in a network namespace of our own", file=sys.stderr)
        except (OSError, TimeoutError, subprocess.SubprocessError) as error:
            print(f"hosts: loopback ports in place of machines: {error}", file=sys.stderr)
            for host in self._hosts.values():
                self._end(host)
                host.init = None
        if self.kind == "loopback":
            for host in self._hosts.values():
                self._start_loopback(host)
        for host in self._hosts.values():
            if self._proxied or self.kind == "loopback":
                host.proxy = FaultProxy((host.address, host.port))
        self._write_client_files()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __iter__(self):
        return iter(self._hosts.values())

    def __getitem__(self, name):
        return self._hosts[name]

    def close(self):
        for host in self._hosts.values():
            self._end(host)
            if host.proxy is not None:
                host.proxy.close()

    def cut(self, name):
        """Nothing goes through any more. Of a veth nobody hears a word; a loopback host's connections are reset."""
        host = self._hosts[name]
        if self.kind == "namespaces":
            self._set_link(host, "down")
        else:
            host.proxy.set(cut=True)

    def heal(self, name):
        host = self._hosts[name]
        if self.kind == "namespaces":
            self._set_link(host, "up")
        if host.proxy is not None:
            host.proxy.set()

    def freeze(self, name):
        """Every program there stops, its sshd too; the link stays."""
        host, stopped = self._hosts[name], set()
        while more := set(host.processes()) - stopped:
            for pid in more:
                _send(pid, signal.SIGSTOP)
            stopped |= more

    def thaw(self, name):
        for pid in self._hosts[name].processes():
            _send(pid, signal.SIGCONT)

    def kill_sshd(self, name):
        """Every sshd there, and with it every connection; the one that listens is started again. Of a loopback host that
        one stays."""
        host = self._hosts[name]
        for pid in host.processes():
            if pid != (host.keeper.pid if host.init is None else host.init) and _program(pid).startswith("sshd"):
                _send(pid, signal.SIGKILL)

    def _make_key(self, name):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(self.folder / name))

    def _write_files(self, host):
        host.home.mkdir(parents=True)
        self._make_key(f"{host.name}/host_key")
        _write(host.folder / "login", f"""#!/bin/sh
export HOME='{host.home}'
cd "$HOME" || exit 1
exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"
""", 0o700)
        return host

    def _write_sshd_config(self, host):
        _write(host.folder / "sshd_config", "\n".join([
            f"Port {host.port}", f"ListenAddress {host.address}", f"HostKey {host.folder}/host_key",
            f"AuthorizedKeysFile {self.folder}/key.pub", "PidFile none", "StrictModes no", "UsePAM no",
            f"PasswordAuthentication {'no' if self._password is None else 'yes'}",
            f"PubkeyAuthentication {'yes' if self._password is None else 'no'}", "KbdInteractiveAuthentication no",
            "PermitRootLogin yes", f"ForceCommand {host.folder}/login", *self._sshd_lines, ""]))

    def _start_namespaces(self):
        for host in self._hosts.values():
            host.address, host.port = f"{_NETWORK}.{host.number}.2", 22
            self._write_sshd_config(host)
            ip, users = find_program("ip"), ""
            if self._password is not None:
                hashed = run("openssl", "passwd", "-6", self._password).strip()
                _write(host.folder / "shadow", f"root:{hashed}:19000:0:99999:7:::\n")
                users = f"mount --bind {host.folder}/shadow /etc/shadow &&"
            # The first process there: waits for its link, then is the parent of all that is left alone.
            _write(host.folder / "init", f"""read -r go || exit 1
{users} mount -t tmpfs tmpfs /run && mkdir /run/sshd && hostname {host.name} &&
{ip} link set lo up && {ip} address add {host.address}/24 dev eth0 && {ip} link set eth0 up || exit 1
# As a service is started again.
while :; do {self._sshd} -D -e -f {host.folder}/sshd_config < /dev/null; sleep 0.1; done
""")
            host.keeper = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "unshare", *_UNSHARE, "--uts", "sh", str(host.folder / "init")],
                stdin=subprocess.PIPE, stderr=host.open_log(), start_new_session=True)
            children = pathlib.Path(f"/proc/{host.keeper.pid}/task/{host.keeper.pid}/children")
            wait_until(lambda: _read(children).strip() and _namespace(int(_read(children))) != _namespace(os.getpid()),
                       f"{host.name}: unshare made no namespace: {_read(host.folder / 'log')}")
            host.init = int(_read(children))
            ours = f"host{host.number}"
            run(ip, "link", "add", ours, "type", "veth", "peer", "name", "eth0", "netns", str(host.init))
            run(ip, "address", "add", f"{_NETWORK}.{host.number}.1/24", "dev", ours)
            run(ip, "link", "set", ours, "up")
            host.keeper.stdin.write(b"go\n")
            host.keeper.stdin.flush()
        for host in self._hosts.values():
            wait_until(lambda: _answers(host), f"{host.name}: sshd does not answer: {_read(host.folder / 'log')}")

    def _start_loopback(self, host):
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)
        host.address = "127.0.0.1"
        for _ in range(5):  # somebody may take the port between our look and its bind
            with socket.create_server((host.address, 0)) as probe:
                host.port = probe.getsockname()[1]
            self._write_sshd_config(host)
            host.keeper = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", self._sshd, "-D", "-e", "-f", str(host.folder / "sshd_config")],
                stdin=subprocess.DEVNULL, stderr=host.open_log(), start_new_session=True)
            try:
                wait_until(lambda: _answers(host) or host.keeper.poll() is not None, f"{host.name}: sshd does not answer")
            except TimeoutError:
                self._end(host)
            if host.keeper.poll() is None:
                return
        raise SystemExit(f"hosts: no sshd for {host.name}: {_read(host.folder / 'log')}")

    def _write_client_files(self):
        config, known = [], []
        for host in self._hosts.values():
            address, port = host.proxy.address if host.proxy is not None else (host.address, host.port)
            key = f"{self.folder}/key" if self._password is None else "none"
            config += [f"Host {host.name}", f"  HostName {address}", f"  Port {port}", f"  IdentityFile {key}", "  IdentitiesOnly yes",
                       f"  UserKnownHostsFile {self.folder}/known_hosts",
                       "  GlobalKnownHostsFile /dev/null"]
            name = address if port == 22 else f"[{address}]:{port}"
            known.append(f"{name} {_read(host.folder / 'host_key.pub').strip()}")
        _write(self.folder / "config", "\n".join(config) + "\n")
        _write(self.folder / "known_hosts", "\n".join(known) + "\n")
        _write(self.folder / "bin" / "ssh", f"#!/bin/sh\nexec {self._ssh} -F '{self.folder}/config' \"$@\"\n", 0o700)

    def _set_link(self, host, state):
        run("nsenter", f"--net=/proc/{host.init}/ns/net", find_program("ip"), "link", "set", "eth0", state)

    def _end(self, host):
        if host.keeper is None:
            return
        left = host.processes() if host.keeper.poll() is None or host.init is None else []
        for pid in left:
            _send(pid, signal.SIGKILL)
        host.keeper.kill()
        host.keeper.communicate()
        host.close_log()
        wait_until(lambda: not set(left) & set(processes()), f"{host.name}: its processes do not end")


def _answers(host):
    try:
        with socket.create_connection((host.address, host.port), timeout=1) as end:
            return end.recv(4) == b"SSH-"
    except OSError:
        return False


def _send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _read(path):
    try:
        return path.read_text()
    except OSError:
        return ""


def _write(path, text, mode=0o600):
    path.write_text(text)
    path.chmod(mode)


def main():
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    if is_isolated():
        isolate()
    with Hosts(sys.argv[1], sys.argv[2:]) as hosts:
        print(json.dumps({"kind": hosts.kind, "hosts": [
            {"name": host.name, "address": host.address, "port": host.port, "home": str(host.home)} for host in hosts]}), flush=True)
        for line in sys.stdin:
            match line.split():
                case [("cut" | "heal" | "freeze" | "thaw") as what, name]:
                    getattr(hosts, what)(name)
                    print("ok", flush=True)
                case ["kill", name, program]:
                    for pid in hosts[name].programs(program):
                        _send(pid, signal.SIGKILL)
                    print("ok", flush=True)
                case ["nice", name, program]:
                    for pid in hosts[name].programs(program):
                        let_others_go_first(pid)
                    print("ok", flush=True)
                case words:
                    print(f"unknown: {words}", flush=True)


if __name__ == "__main__":
    main()
