#!/usr/bin/env python3
"""Hosts that are cut off, frozen, behind slow links, strict or odd: everything heals, and no answer changes a word.

Usage: hosts_test.py BIN_FOLDER [TestCase[.test] …]. Needs sshd (scripts/setup.sh test); exit code 77 where it is not here."""
import contextlib
import ipaddress
import os
import pathlib
import pty
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from fault_proxy import FaultProxy
from fleet import Fleet, PATIENCE
from hosts import Hosts, command_of, find_program, is_isolated, isolate, processes, wait_until

BIN = None


@contextlib.contextmanager
def fleet_of(*names, **options):
    """A fleet with these hosts, none of them up yet. Its log is shown where the test fails."""
    with tempfile.TemporaryDirectory(prefix="lo.") as folder, Hosts(f"{folder}/hosts", names, **options) as hosts:
        fleet = Fleet(f"{folder}/fleet", BIN, hosts)
        try:
            fleet.start()
            yield fleet, hosts
        except BaseException:
            print(fleet.log_file().read_text()[-20000:], file=sys.stderr)
            raise
        finally:
            fleet.close()


class FaultProxyTest(unittest.TestCase):
    """The proxy itself, before an echo."""

    def setUp(self):
        self.server = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.serve, daemon=True).start()
        self.proxy = FaultProxy(self.server.getsockname())
        self.client = socket.create_connection(self.proxy.address, timeout=20)

    def tearDown(self):
        self.client.close()
        self.proxy.close()
        self.server.close()

    def serve(self):
        end, _ = self.server.accept()
        while data := end.recv(65536):
            end.sendall(data)
        end.close()

    def echo(self, data):
        start = time.monotonic()
        self.client.sendall(data)
        got = b""
        while len(got) < len(data):
            got += self.client.recv(65536)
        self.assertEqual(got, data)
        return time.monotonic() - start

    def test_passes_everything_on(self):
        self.echo(os.urandom(300_000))

    def test_delays_both_ways(self):
        self.proxy.set(delay=0.1)
        self.assertGreaterEqual(self.echo(b"x"), 0.2)

    def test_trickles(self):
        self.proxy.set(rate=5000)
        self.assertGreaterEqual(self.echo(b"x" * 1000), 0.18)

    def test_stalls_and_goes_on(self):
        self.proxy.set(stalled=True)
        self.client.sendall(b"later")
        self.assertEqual(select.select([self.client], [], [], 0.3)[0], [])
        self.proxy.set()
        self.assertEqual(self.client.recv(16), b"later")

    def test_cuts(self):
        self.echo(b"x")
        self.proxy.set(cut=True)
        self.assertEqual(self.client.recv(16), b"")
        with socket.create_connection(self.proxy.address, timeout=20) as again:
            self.assertEqual(again.recv(16), b"", "refused while it is cut")

    def test_passes_the_end_on(self):
        self.echo(b"x")
        self.client.shutdown(socket.SHUT_WR)
        self.assertEqual(self.client.recv(16), b"")


class HostsTest(unittest.TestCase):
    @unittest.skipUnless(is_isolated(), "needs namespaces")
    def test_nothing_is_left_after_a_kill(self):
        with tempfile.TemporaryDirectory() as folder:
            before = set(processes())
            script = pathlib.Path(__file__).with_name("hosts.py")
            child = subprocess.Popen([sys.executable, script, f"{folder}/hosts", "anna"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     text=True)
            self.assertIn('"namespaces"', child.stdout.readline())
            subprocess.run([f"{folder}/hosts/bin/ssh", "anna", "setsid sleep 1000 >/dev/null 2>&1 </dev/null &"], check=True, timeout=60)
            self.assertTrue(any(command_of(pid)[:1] == ["sleep"] for pid in processes()))
            child.kill()
            child.communicate()
            wait_until(lambda: set(processes()) <= before, "processes are left")
            # The kernel takes a namespace's links away a moment after its last process.
            links = lambda: subprocess.run([find_program("ip"), "link"], capture_output=True, text=True).stdout
            wait_until(lambda: "host1" not in links(), "links are left")

    def test_a_killed_sshd_comes_back(self):
        with tempfile.TemporaryDirectory() as folder, Hosts(f"{folder}/hosts", ["anna"]) as hosts:
            ssh = f"{folder}/hosts/bin/ssh"
            child = subprocess.Popen([ssh, "anna", "echo here; sleep 1000"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            self.assertEqual(child.stdout.readline(), "here\n")
            hosts.kill_sshd("anna")
            self.assertEqual(child.wait(60), 255, "its connection is gone")
            child.stdout.close()
            again = lambda: subprocess.run([ssh, "anna", "true"], stderr=subprocess.DEVNULL, timeout=60).returncode == 0
            wait_until(again, "nobody lets us in", 60)


class Doors(unittest.TestCase):
    @unittest.skipUnless(is_isolated(), "needs namespaces: a host with a network of its own")
    def test_nothing_but_ssh_is_open_on_a_host(self):
        """With a pool, a worker and an answer under way, what lies beyond its loopback is sshd's port alone."""
        with fleet_of("anna") as (fleet, hosts):
            fleet.bring_up("anna")
            job = fleet.ask("anna", tokens=400)
            fleet.text_of(job, enough=lambda text: len(text) > 20)
            self.assertEqual(len(hosts["anna"].programs("llorch-cpud")), 1)
            own, peers = tcp_sockets(hosts["anna"])
            self.assertEqual({port for address, port in own if not address.is_loopback}, {22})
            self.assertTrue(any(address.is_loopback for address, _ in own), "the worker listens there")
            self.assertTrue(peers, "the connection that the orchestrator made")
            self.assertEqual({port for address, port in peers if not address.is_loopback}, {22}, "nothing calls out")
            self.assertNotEqual(fleet.text_of(job)[0], "")


def tcp_sockets(host):
    """(own address, port) of those that listen, and of those that are connected, as the host's kernel lists them."""
    listening, connected = set(), set()
    for name in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{host.init}/net/{name}").read_text().splitlines()[1:]:
            own, state = line.split()[1], line.split()[3]
            raw, port = own.split(":")
            words = b"".join(bytes.fromhex(raw[i:i + 8])[::-1] for i in range(0, len(raw), 8))
            address = ipaddress.ip_address(words)
            address = getattr(address, "ipv4_mapped", None) or address
            (listening if state == "0A" else connected).add((address, int(port, 16)))
    return listening, connected


class Disturbed(unittest.TestCase):
    def test_a_cut_link_a_frozen_host_and_a_stalled_link_heal(self):
        """All three at once, for longer than anybody waits: each host comes back, and each answer goes on there."""
        with fleet_of("cut", "frozen", "stalled", proxied=True) as (fleet, hosts):
            fleet.bring_up("cut", "frozen", "stalled")
            undisturbed, _ = fleet.text_of(fleet.ask("cut", tokens=400))
            heads = {}
            for host in hosts:
                job = fleet.ask(host.name, tokens=400)
                heads[host.name] = job, *fleet.text_of(job, enough=lambda text: len(text) > 100)
            hosts.cut("cut")
            hosts.freeze("frozen")
            hosts["stalled"].proxy.set(stalled=True)
            for host in hosts:
                wait_until(lambda: fleet.state_of(host.name) != "connected", f"{host.name} is still said to be connected", PATIENCE)
            self.assertEqual(fleet.get("/health")["status"], "healthy")
            hosts.heal("cut")
            hosts.thaw("frozen")
            hosts.heal("stalled")
            for host in hosts:
                fleet.await_connected(host.name)
                job, head, position = heads[host.name]
                rest, _ = fleet.text_of(job, position)
                self.assertEqual(head + rest, undisturbed, host.name)
                self.assertEqual(fleet.get(f"/v2/tasks/{job}")["status"], "completed")

    def test_a_connection_that_breaks_while_programs_are_copied_is_made_again(self):
        with fleet_of("anna", proxied=True) as (fleet, hosts):
            proxy = hosts["anna"].proxy
            proxy.set(rate=2_000_000)  # or it is over before it is cut
            fleet.post("/v2/hosts", {"host": "anna"})
            view = lambda: fleet.get("/v2/hosts/anna")
            wait_until(lambda: any((hosts["anna"].home / ".local/lib/llorch/in").glob("*")), "no program is sent", PATIENCE)
            proxy.set(cut=True)
            wait_until(lambda: "broke while programs were copied" in view().get("reason", ""), f"it is not told: {view()}", PATIENCE)
            self.assertEqual(view()["state"], "installing")
            began = time.monotonic()
            hosts.heal("anna")
            fleet.await_connected("anna")
            self.assertLess(time.monotonic() - began, 45, "it was tried again when it was given up")

    def test_a_short_cut_and_a_slow_link_are_no_news(self):
        with fleet_of("anna", proxied=True) as (fleet, hosts):
            fleet.bring_up("anna")
            undisturbed, _ = fleet.text_of(fleet.ask("anna", tokens=300))
            hosts["anna"].proxy.set(delay=0.1)
            self.assertEqual(fleet.text_of(fleet.ask("anna", tokens=300))[0], undisturbed)
            hosts["anna"].proxy.set(rate=20_000)
            self.assertEqual(fleet.text_of(fleet.ask("anna", tokens=300))[0], undisturbed)
            hosts.heal("anna")
            if hosts.kind != "namespaces":
                return  # there a cut is told at once
            job = fleet.ask("anna", tokens=300)
            head, position = fleet.text_of(job, enough=lambda text: len(text) > 100)
            hosts.cut("anna")
            time.sleep(2)  # the length of the cut is the point
            hosts.heal("anna")
            self.assertEqual(head + fleet.text_of(job, position)[0], undisturbed)
            self.assertEqual(len(fleet.get(f"/v2/tasks/{job}")["attempts"]), 1, "nobody noticed")


class Logins(unittest.TestCase):
    """What users have in ~/.ssh/config holds; what sshd forbids is gone around."""

    def use(self, fleet, *names):
        fleet.bring_up(*names)
        for name in names:
            self.assertNotEqual(fleet.text_of(fleet.ask(name, tokens=20))[0], "")

    def test_a_host_that_forwards_no_sockets(self):
        with fleet_of("strict", sshd_lines=["AllowStreamLocalForwarding no"]) as (fleet, hosts):
            self.use(fleet, "strict")

    def test_an_agent_has_the_key(self):
        with fleet_of("anna") as (fleet, hosts):
            agent = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "ssh-agent", "-D", "-a", str(hosts.folder / "agent")],
                                     stdout=subprocess.DEVNULL)
            try:
                wait_until((hosts.folder / "agent").exists, "ssh-agent does not start")
                fleet.environment["SSH_AUTH_SOCK"] = str(hosts.folder / "agent")
                subprocess.run(["ssh-add", "-q", hosts.folder / "key"], env=fleet.environment, check=True)
                config = hosts.folder / "config"
                lines = [line for line in config.read_text().splitlines() if "Identit" not in line]
                config.write_text("\n".join([*lines, "  IdentityFile none", ""]))
                fleet.stop()
                fleet.start()
                self.use(fleet, "anna")
            finally:
                agent.kill()
                agent.wait()

    @unittest.skipUnless(is_isolated(), "needs namespaces: the inner host has an address that only the outer one reaches")
    def test_a_host_behind_another(self):
        with fleet_of("outer", sshd_lines=["ListenAddress 127.0.0.2"]) as (fleet, hosts):
            known = (hosts.folder / "known_hosts").read_text().split(" ", 1)[1]
            with open(hosts.folder / "known_hosts", "a") as file:
                file.write(f"127.0.0.2 {known}")
            with open(hosts.folder / "config", "a") as file:
                file.write(f"""Host inner
  HostName 127.0.0.2
  ProxyJump outer
  IdentityFile {hosts.folder}/key
  IdentitiesOnly yes
  UserKnownHostsFile {hosts.folder}/known_hosts
  GlobalKnownHostsFile /dev/null
""")
            self.use(fleet, "inner")

    @unittest.skipUnless(is_isolated(), "needs namespaces: a login with a password that this machine knows nothing of")
    def test_a_password_from_a_terminal(self):
        with fleet_of("anna", password="open sesame") as (fleet, hosts):
            pid, terminal = pty.fork()
            if pid == 0:
                os.execve(fleet.bin / "llorch", ["llorch", "up", "anna"], fleet.environment)
            said, status = self.talk(pid, terminal, "assword:", "open sesame\n")
            self.assertEqual(status, 0, said)
            self.assertEqual(said.count("assword:"), 1, "asked once")
            self.use(fleet, "anna")

    def talk(self, pid, terminal, question, answer):
        """What the program said on its terminal, and its exit code. The connection that it leaves behind keeps the terminal."""
        said, has_answered = "", False
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if select.select([terminal], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):  # nobody has it open any more
                    said += os.read(terminal, 4096).decode(errors="replace")
            if question in said and not has_answered:
                has_answered = True
                os.write(terminal, answer.encode())
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self.assertTrue(has_answered, said)
                return said, os.waitstatus_to_exitcode(status)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self.fail(f"it does not end: {said}")


class Interrupted(unittest.TestCase):
    """Ctrl-C here ends what runs there, with a terminal and without one, on one host and on several."""

    LOGS = ("pool", "worker", "logs", "-f", "worker-cpu-0", "--host")

    def followers(self, hosts):
        return [host.name for host in hosts for pid in host.programs("llorch-pool") if "logs" in command_of(pid)]

    def test_a_command_ends_on_its_host_too(self):
        with fleet_of("anna", "bert") as (fleet, hosts):
            fleet.bring_up("anna", "bert")
            for host in hosts:
                fleet.text_of(fleet.ask(host.name, tokens=5))
            for where, names in (("anna", ["anna"]), ("anna,bert", ["anna", "bert"])):
                child = subprocess.Popen([fleet.bin / "llorch", *self.LOGS, where], env=fleet.environment, stdin=subprocess.DEVNULL,
                                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                wait_until(lambda: sorted(self.followers(hosts)) == names, f"{where}: it does not begin")
                if len(names) > 1:
                    self.hear_all(child.stdout, names)
                child.send_signal(signal.SIGINT)
                child.communicate(timeout=PATIENCE)
                self.assertNotEqual(child.returncode, 0)
                wait_until(lambda: not self.followers(hosts), f"{where}: it runs on there")
            self.type_ctrl_c(fleet, hosts)

    def hear_all(self, pipe, names):
        """A line of each host's log comes while the command goes on; whole, with its host in front."""
        said, until = b"", time.monotonic() + PATIENCE
        while any(f"\n{name}  ".encode() not in b"\n" + said or said.count(b"job done") < len(names) for name in names):
            self.assertLess(time.monotonic(), until, f"it does not say what each host does: {said}")
            if select.select([pipe], [], [], 0.1)[0]:
                said += os.read(pipe.fileno(), 65536)
        for line in said[:said.rindex(b"\n")].splitlines():
            self.assertIn(line.split(b"  ")[0].decode(), names, line)

    def type_ctrl_c(self, fleet, hosts):
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(fleet.bin / "llorch", ["llorch", *self.LOGS, "anna"], fleet.environment)
        said, status, has_typed = b"", None, False
        until = time.monotonic() + PATIENCE
        while status is None and time.monotonic() < until:
            if select.select([terminal], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):
                    said += os.read(terminal, 4096)
            if b"job done" in said and not has_typed:  # it has shown what is there, and waits for more
                has_typed = True
                os.write(terminal, b"\x03")
            ended, code = os.waitpid(pid, os.WNOHANG)
            status = os.waitstatus_to_exitcode(code) if ended else None
        self.assertEqual(status, 130, "the exit code of what was interrupted there")
        wait_until(lambda: not self.followers(hosts), "with a terminal it runs on there")


class Words(unittest.TestCase):
    def test_no_word_reaches_a_shell(self):
        with fleet_of("anna") as (fleet, hosts):
            fleet.bring_up("anna")
            home = hosts["anna"].home
            for word in ("; touch owned", "$(touch owned)", "`touch owned`", "a\nb; touch owned", "-", "--", "-oProxyCommand=touch owned",
                         "'; touch owned; '", "\"; touch owned; \"", "& touch owned &", "a b  c", "ünï ✓", "!!", "%h"):
                done = fleet.llorch("pool", "models", "rm", "--host", "anna", "--", word)
                self.assertIn(done.returncode, (1, 2), word)
                listed = fleet.llorch("pool", "models", "register", "--host", "anna", "--path", f"/nowhere/{word}", "x")
                self.assertIn(f"/nowhere/{word}".splitlines()[0].rstrip(), listed.stdout + listed.stderr, word)
                up = fleet.llorch("up", "--", word)
                self.assertNotEqual(up.returncode, 0, word)
                for folder in (home, fleet.home, fleet.folder, pathlib.Path.cwd()):
                    self.assertFalse((folder / "owned").exists(), f"{word!r} was read by a shell in {folder}")


if __name__ == "__main__":
    if shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin") is None:
        print("SKIPPED: sshd is not installed (scripts/setup.sh test)", file=sys.stderr)
        sys.exit(77)
    isolate()
    BIN = pathlib.Path(sys.argv[1]).resolve()
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
