#!/usr/bin/env python3
"""System calls of the orchestrator for one request that it relays: an answer of two tokens by the built-in model, as a stream, one request after the
other over one connection that is kept. Calls are counted by strace, which must be installed and allowed; switches of threads by the kernel, in a
second round without strace. Times say little on a busy machine, counts do.

Usage: relay_calls.py BIN [REQUESTS]
"""
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

SHOWN = ("futex", "epoll_wait", "epoll_ctl", "sendmsg")
PATIENCE_S = 60


def wait_for(what, look):
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        found = look()
        if found is not None:
            return found
        time.sleep(0.02)
    raise SystemExit(f"relay_calls.py: {what} did not come within {PATIENCE_S} s")


def ask(connection):
    body = json.dumps({"model": "builtin", "prompt": "Once upon a time", "max_tokens": 2, "stream": True})
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    said = answer.read()
    if answer.status != 200 or b"[DONE]" not in said:
        raise SystemExit(f"relay_calls.py: {answer.status} {said[:500]!r}")


def is_ready(connection):
    connection.request("GET", "/health")
    answer = connection.getresponse()
    answer.read()
    return True if answer.status == 200 else None


def switches(pid):
    """How often threads of a process have given up the processor to wait; those that ended meanwhile are left out."""
    count = 0
    for status in pathlib.Path(f"/proc/{pid}/task").glob("*/status"):
        try:
            count += int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status.read_text(), re.M).group(1))
        except OSError:
            pass
    return count


def count_calls(pid, round_of_requests, folder):
    """{name: calls} of a process during a round; `total` is all of them."""
    table = folder / "calls"
    said = folder / "strace"
    with open(said, "w") as err, subprocess.Popen(["strace", "-f", "-c", "-o", str(table), "-p", str(pid)], stderr=err) as strace:
        try:
            wait_for("strace", lambda: True if "attached" in said.read_text() or strace.poll() is not None else None)
            round_of_requests()
        finally:
            strace.send_signal(signal.SIGINT)
    if not table.exists():
        raise SystemExit(f"relay_calls.py: {said.read_text()}")
    rows = [line.split() for line in table.read_text().splitlines()]
    return {row[-1]: int(row[3]) for row in rows if len(row) >= 5 and row[3].isdigit()}


def measure(bin_folder, requests, io_threads):
    with tempfile.TemporaryDirectory(prefix="llorch-calls-") as name:
        folder = pathlib.Path(name)
        env = {**os.environ, "LLORCH_HOME": name}
        with open(folder / "log", "w") as log, \
                subprocess.Popen([bin_folder / "orchestratord", "--port", "0", "--io-threads", str(io_threads)], env=env, stdout=log, stderr=log) as daemon:
            try:
                address = folder / "orchestrator.json"
                wait_for("the orchestrator", lambda: True if address.exists() else None)
                connection = http.client.HTTPConnection(json.loads(address.read_text())["url"].removeprefix("http://"), timeout=PATIENCE_S)
                wait_for("the orchestrator's 200 to /health", lambda: is_ready(connection))

                def round_of_requests():
                    for _ in range(requests):
                        ask(connection)

                round_of_requests()  # loads the model, opens the connections that are kept
                before = switches(daemon.pid)
                round_of_requests()
                waits = (switches(daemon.pid) - before) / requests
                calls = count_calls(daemon.pid, round_of_requests, folder)
            finally:
                daemon.terminate()
                daemon.wait(timeout=PATIENCE_S)
                subprocess.run([bin_folder / "llorch-pool", "stop"], env=env, stdout=subprocess.DEVNULL, check=False, timeout=PATIENCE_S)
    parts = [f"{call} {calls.get(call, 0) / requests:.1f}" for call in SHOWN]
    print(f"--io-threads {io_threads}, for each of {requests} requests: calls {calls['total'] / requests:.1f}, {', '.join(parts)}, switches {waits:.1f}", flush=True)


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        raise SystemExit(__doc__)
    for io_threads in (1, 2):
        measure(pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 200, io_threads)


if __name__ == "__main__":
    main()
