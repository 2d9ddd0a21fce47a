"""An orchestrator with other hosts (hosts.py) as its clients see it: started, asked over HTTP, followed, killed."""
import http.client
import json
import os
import pathlib
import struct
import subprocess

from hosts import command_of, find_program, processes, wait_until

PATIENCE = 90


class Refused(Exception):
    """The orchestrator's answer was no 2xx."""

    def __init__(self, status, body):
        super().__init__(f"{status}: {body}")
        self.status, self.body = status, body


class Connection:
    """One request, its answer whole or as server-sent events."""

    def __init__(self, port, method, path, body=None, headers=None, timeout=PATIENCE):
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
        data = None if body is None else json.dumps(body)
        self._http.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
        self.answer = self._http.getresponse()
        self.status, self.headers = self.answer.status, self.answer.headers

    def whole(self):
        data = self.answer.read()
        self.close()
        body = json.loads(data) if data else {}
        if self.status // 100 != 2:
            raise Refused(self.status, body)
        return body

    def events(self):
        """(event, id, data) until the end of the stream; ConnectionError where it was cut."""
        event, position, data = "message", "", []
        for line in self.answer:
            line = line.decode().rstrip("\r\n")
            if not line:
                if data:
                    yield event, position, "\n".join(data)
                event, data = "message", []
            name, _, value = line.partition(": ")
            if name == "event":
                event = value
            elif name == "id":
                position = value
            elif name == "data":
                data.append(value)

    def close(self):
        self._http.close()


class Fleet:
    """`folder` gets the home and the programs that hosts are sent; `bin` has ours. Hosts are asked up by start()."""

    def __init__(self, folder, bin_folder, hosts):
        self.folder, self.bin, self.hosts = pathlib.Path(folder), pathlib.Path(bin_folder), hosts
        self.home = self.folder / "home"
        self.home.mkdir(parents=True)
        programs = self.folder / "programs"
        programs.mkdir()
        for name in ("llorch-pool", "pool-managerd", "llorch-cpud"):
            subprocess.run([find_program("strip"), "-o", programs / name, self.bin / name], check=True)
        (self.home / "config.toml").write_text("[orchestrator]\nport = 0\nlocal-pool = false\n[pool]\nport = 0\n")
        for host in hosts:
            folder = host.home / ".config" / "llorch"
            folder.mkdir(parents=True)
            (folder / "config.toml").write_text("[pool]\nport = 0\n[worker]\nthreads = 1\n")
        self.environment = {**os.environ, "LLORCH_HOME": str(self.home), "LLORCH_HOST_PROGRAMS": str(programs),
                            "PATH": f"{hosts.folder}/bin:{os.environ['PATH']}"}
        for name in ("LLORCH_POOL", "LLORCH_CONFIG", "LLORCH_ORCHESTRATOR", "LLORCH_TOKEN", "XDG_RUNTIME_DIR"):
            self.environment.pop(name, None)
        self.orchestrator = None
        self.port = 0
        self.starts = 0

    def start(self):
        self.starts += 1
        with open(self.log_file(), "wb") as log:
            self.orchestrator = subprocess.Popen([self.bin / "orchestratord", "--log-format", "json"], env=self.environment,
                                                 stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        wait_until(lambda: self._find_port() or self.orchestrator.poll() is not None, "orchestratord does not start", PATIENCE)
        if self.orchestrator.poll() is not None:
            raise RuntimeError(f"orchestratord ended: {self.log_file().read_text()}")
        wait_until(self.is_healthy, "orchestratord is not healthy", PATIENCE)

    def log_file(self):
        return self.folder / f"orchestrator.{self.starts}.log"

    def _find_port(self):
        for line in self.log_file().read_text().splitlines():
            if line.startswith("orchestratord: listening on "):
                self.port = int(line.rsplit(":", 1)[1])
                return True
        return False

    def is_healthy(self):
        try:
            return self.get("/health")["status"] == "healthy"
        except (OSError, http.client.HTTPException, Refused):
            return False

    def kill(self):
        self.orchestrator.kill()
        self.orchestrator.wait()

    def stop(self):
        """An orderly end; its exit code."""
        self.orchestrator.terminate()
        return self.orchestrator.wait(PATIENCE)

    def llorch(self, *words, timeout=PATIENCE):
        return subprocess.run([self.bin / "llorch", *words], env=self.environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=timeout)

    def get(self, path, **more):
        return Connection(self.port, "GET", path, **more).whole()

    def post(self, path, body, **more):
        return Connection(self.port, "POST", path, body, **more).whole()

    def delete(self, path, **more):
        return Connection(self.port, "DELETE", path, **more).whole()

    def bring_up(self, *names):
        for name in names:
            self.post("/v2/hosts", {"host": name})
        for name in names:
            self.await_connected(name)

    def state_of(self, name):
        try:
            return self.get(f"/v2/hosts/{name}")["state"]
        except (OSError, http.client.HTTPException, Refused):
            return "unknown"

    def await_connected(self, name, seconds=PATIENCE):
        wait_until(lambda: self.state_of(name) == "connected", f"{name} is not connected", seconds)

    def tunnels(self):
        """The ssh processes that hold connections to hosts."""
        return [pid for pid, parent in processes().items() if parent == self.orchestrator.pid and "ControlPersist=no" in command_of(pid)]

    def text_of(self, job, last="", enough=None):
        """What the events of an execute task say, from a position on."""
        text = ""
        connection = Connection(self.port, "GET", f"/v2/tasks/{job}/events", headers={"Last-Event-ID": last} if last else {})
        for event, last, data in connection.events():
            if event == "token":
                text += json.loads(data)["t"]
            if enough is not None and enough(text):
                break
        connection.close()
        return text, last

    def ask(self, host=None, tokens=40, seed=7, **more):
        """Submits a story; its id. The same seed tells the same one, anywhere."""
        where = {"mode": "pin", "host": host} if host is not None else {}
        return self.post("/v2/tasks", {"model": "builtin", "prompt": "Once upon a time", "max_tokens": tokens, "temperature": 0.8,
                                       "seed": seed, "detach": True, **where, **more})["job_id"]

    def close(self):
        """Ends what is left of it."""
        if self.orchestrator is not None and self.orchestrator.poll() is None:
            self.kill()


def write_chat_model(source, target, template):
    """A copy of a GGUF file with a chat template. What is added is a multiple of the file's alignment, so that every
    tensor stays where the file says that it is."""
    data = pathlib.Path(source).read_bytes()
    magic, version, tensors, entries = struct.unpack_from("<4sIQQ", data)
    if magic != b"GGUF" or version != 3:
        raise ValueError(f"{source} is no GGUF file of version 3")
    key = b"tokenizer.chat_template"
    fixed = 8 + len(key) + 4 + 8
    padding = -(fixed + len(template)) % 32
    if 0 < padding < 4:
        padding += 32
    value = template.encode() + (b"{#" + b" " * (padding - 4) + b"#}" if padding else b"")
    entry = struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(value)) + value
    pathlib.Path(target).write_bytes(struct.pack("<4sIQQ", magic, version, tensors, entries + 1) + entry + data[24:])
