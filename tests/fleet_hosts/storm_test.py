#!/usr/bin/env python3
"""A fleet of three hosts under a storm: programs killed, links cut, hosts frozen, the orchestrator killed and restarted, while
clients submit, follow, leave, come back and cancel, in random order. Every promise is held against what was seen.

Usage: storm_test.py BIN_FOLDER [--operations N] [--seed N]. LLORCH_STORM_OPERATIONS and LLORCH_STORM_SEED say the same. The
seed is printed. Exit code 77 where there is no sshd."""
import argparse
import collections
import json
import os
import pathlib
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import time

from fleet import Fleet, Refused, write_chat_model
from hosts import Hosts, command_of, is_isolated, isolate, processes, wait_until
from storm_clients import CHAT, END_PATIENCE, Client, kinds

HOSTS = ("anna", "bert", "carl")
MAX_LIVE = 24  # jobs at once: more only make the storm slower


class Storm:
    def __init__(self, fleet, hosts, seed):
        self.fleet, self.hosts = fleet, hosts
        self.random = random.Random(seed)
        self.kinds = list(kinds())
        self.texts = {}        # what each kind says undisturbed
        self.clients = []
        self.broken = {}       # host → (what heals it, after how many operations)
        self.counts = collections.Counter()
        self.kills = 0         # of workers and keepers: what a job may be held to have done
        self.is_down = False   # the orchestrator, by us

    # --- before ---

    def learn(self):
        """Every answer undisturbed."""
        for kind in self.kinds:
            client = Client(self, kind, True, False)
            client.start()
            client.join(120)
            if client.problem or not client.answer.is_complete():
                raise AssertionError(f"{kind.name} undisturbed: {client.problem or client.refused or client.answer.end}")
            self.texts[kind.name] = dict(client.answer.texts)
            if kind.name.startswith("schema"):
                json.loads(client.answer.texts[0])
            if kind.name.startswith("stop") and client.answer.reason != "stop_sequence":
                raise AssertionError(f"{kind.name} undisturbed ended for {client.answer.reason}")
            if "tool" in kind.name:
                json.loads(client.answer.texts[0].partition("remember: ")[2])
        self.clients.clear()

    # --- operations ---

    def step(self):
        choices = [
            (24, self.submit), (5, self.cancel), (6, self.reconnect), (3, self.leave),
            (7, self.kill_worker), (3, self.kill_keeper), (5, self.kill_pool), (4, self.kill_tunnel), (3, self.kill_sshd),
            (4, self.kill_orchestrator), (2, self.restart_orchestrator), (5, self.cut), (4, self.stall), (4, self.freeze), (4, self.evict),
        ]
        operation = self.random.choices([one for _, one in choices], [weight for weight, _ in choices])[0]
        time.sleep(self.random.random() * 0.6)  # blows fall at any moment of an answer
        said = operation() or ""
        self.counts[operation.__name__] += 1
        self.heal_what_is_due()
        self.check()
        return f"{operation.__name__} {said}"

    def live(self):
        return [client for client in self.clients if client.is_alive()]

    def submit(self):
        return ", ".join(self.submit_one() for _ in range(self.random.randint(1, 4)))

    def submit_one(self, leaves=False):
        if len(self.live()) >= MAX_LIVE:
            return "nothing"
        kind = self.random.choice([kind for kind in self.kinds if not leaves or kind.path == "/v2/tasks"])
        client = Client(self, kind, not leaves and self.random.random() < 0.6, leaves)
        self.clients.append(client)
        client.start()
        return kind.name

    def leave(self):
        return self.submit_one(leaves=True)

    def cancel(self):
        running = [client for client in self.live() if client.job]
        if not running:
            return "nothing"
        client = self.random.choice(running)
        client.cancelled = True
        try:
            self.fleet.delete(f"/v2/tasks/{client.job}", timeout=60)
        except Refused as refused:
            raise AssertionError(f"cancel of {client.job}: {refused}") from None
        return client.kind.name

    def reconnect(self):
        for client in self.random.sample(self.live(), min(3, len(self.live()))):
            if client.kind.path == "/v2/tasks":
                client.drop()

    def kill_one(self, program, matches=lambda words: True, number=signal.SIGKILL):
        found = [(pid, host.name) for host in self.hosts for pid in host.programs(program) if matches(command_of(pid))]
        if not found:
            return "nothing"
        pid, name = self.random.choice(sorted(found))
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return "nothing"
        return f"{pid} on {name}"

    def kill_worker(self):
        self.kills += 1
        return self.kill_one("llorch-cpud")

    def kill_keeper(self):
        self.kills += 1
        return self.kill_one("llorch-pool", lambda words: words[1:2] == ["keep"])

    def kill_pool(self):
        return self.kill_one("pool-managerd")

    def kill_tunnel(self):
        tunnels = self.fleet.tunnels()
        if not tunnels:
            return "nothing"
        os.kill(self.random.choice(sorted(tunnels)), signal.SIGKILL)

    def kill_sshd(self):
        """One that is not whole then: where this breaks a step of its coming up, the next try is a minute later."""
        if (name := self.draw_whole_host()) is None:
            return "nothing"
        self.hosts.kill_sshd(name)
        self.disturb(name, lambda name: None)
        return name

    def kill_orchestrator(self):
        self.is_down = True
        self.fleet.kill()
        self.fleet.start()
        self.is_down = False

    def restart_orchestrator(self):
        self.is_down = True
        code = self.fleet.stop()
        if code != 0:
            raise AssertionError(f"orchestratord ended with {code}")
        self.fleet.start()
        self.is_down = False

    def disturb(self, name, heal):
        self.broken[name] = heal, self.random.randint(1, 8)

    def draw_whole_host(self):
        """One that nothing is wrong with, as long as another is whole too."""
        whole = [name for name in HOSTS if name not in self.broken]
        return self.random.choice(whole) if len(whole) > 1 else None

    def cut(self):
        if (name := self.draw_whole_host()) is None:
            return "nothing"
        self.hosts.cut(name)
        self.disturb(name, self.hosts.heal)
        return name

    def stall(self):
        if (name := self.draw_whole_host()) is None:
            return "nothing"
        fault = self.random.choice([{"stalled": True}, {"rate": 3000}, {"delay": 0.3}])
        self.hosts[name].proxy.set(**fault)
        self.disturb(name, self.hosts.heal)
        return f"{name} {fault}"

    def freeze(self):
        if (name := self.draw_whole_host()) is None:
            return "nothing"
        self.hosts.freeze(name)
        self.disturb(name, self.hosts.thaw)
        return name

    def evict(self):
        """Somebody stops a worker by hand, busy or not."""
        name = self.draw_whole_host()
        workers = [worker for worker in self.fleet.get("/v2/workers")["workers"] if worker["host"] == name]
        if not workers:
            return "nothing"
        worker = self.random.choice(workers)["id"]
        done = self.fleet.llorch("pool", "worker", "stop", worker, "--host", name)
        return f"{name}/{worker}: {done.returncode}"

    def heal_what_is_due(self, all_of_it=False):
        for name, (heal, left) in list(self.broken.items()):
            if left > 0 and not all_of_it:
                self.broken[name] = heal, left - 1
                continue
            heal(name)
            del self.broken[name]

    # --- promises ---

    def check(self):
        """What must hold at every moment: it answers, knows every job it took, and nobody was told a wrong word."""
        if not self.fleet.is_healthy():
            wait_until(self.fleet.is_healthy, "the orchestrator does not answer", 60)
        for client in self.clients:
            if client.problem:
                raise AssertionError(f"{client.kind.name} ({client.job}): {client.problem}")
            self.check_words(client)
        accepted = [client.job for client in self.clients if client.job]
        if accepted:
            self.fleet.get(f"/v2/tasks/{self.random.choice(accepted)}")

    def check_words(self, client):
        for index, text in list(client.answer.texts.items()):
            if not self.texts[client.kind.name].get(index, "").startswith(text):
                raise AssertionError(f"{client.kind.name} ({client.job}), choice {index}: {text!r} is not the beginning of "
                                     f"{self.texts[client.kind.name].get(index)!r}")

    def finish(self):
        self.heal_what_is_due(all_of_it=True)
        until = time.monotonic() + END_PATIENCE
        for client in self.clients:
            client.join(max(0.1, until - time.monotonic()))
        stuck = [f"{client.kind.name} ({client.job})" for client in self.live()]
        if stuck:
            raise AssertionError(f"stuck: {stuck}: {self.fleet.get('/v2/tasks?status=live')}")
        for name in HOSTS:
            self.fleet.await_connected(name, END_PATIENCE)
        ends = collections.Counter(self.judge(client) for client in self.clients)
        # Those that were left alone end too.
        wait_until(lambda: not self.fleet.get("/v2/tasks?status=live")["tasks"], "jobs are stuck", END_PATIENCE)
        self.check_processes()
        if self.fleet.stop() != 0:
            raise AssertionError("orchestratord did not end well")
        self.check_record()
        return ends

    def judge(self, client):
        """How a client's job ended; an AssertionError where it must not end so."""
        what = f"{client.kind.name} ({client.job})"
        self.check_words(client)
        if client.problem:
            raise AssertionError(f"{what}: {client.problem}")
        if client.job is None and client.kind.path == "/v2/tasks":
            raise AssertionError(f"{what} was refused: {client.refused}")
        if client.answer.is_complete():
            if dict(client.answer.texts) != self.texts[client.kind.name]:
                raise AssertionError(f"{what} ended early: {dict(client.answer.texts)}")
            return "whole"
        if client.kind.path != "/v2/tasks" and (client.refused or "").startswith(("429", "503")):
            return "told to come back later"
        if client.cut_off:
            return "cut off with the orchestrator"
        if client.has_left:
            return "left"
        if client.cancelled and client.answer.end == "CANCELLED":
            return "cancelled"
        # Nobody can tell two kills of ours from a request that kills: it is not tried a third time.
        if self.kills >= 2 and client.answer.message.startswith("two workers died while they ran this request"):
            return "held to kill workers"
        record = self.fleet.get(f"/v2/tasks/{client.job}") if client.job else {}
        raise AssertionError(f"{what} ended with {client.answer.end or client.refused}, {client.answer.message}: {json.dumps(record)}")

    def check_processes(self):
        """Each host runs the workers that its pool speaks of, each with its keeper, and nothing else."""
        for host in self.hosts:
            def accounted():
                done = self.fleet.llorch("pool", "worker", "list", "--json", "--host", host.name)
                if done.returncode != 0:
                    return False
                alive = [worker for worker in json.loads(done.stdout)["workers"] if worker["state"] not in ("stopped", "failed")]
                keepers = [pid for pid in host.programs("llorch-pool") if command_of(pid)[1:2] == ["keep"]]
                return len(alive) == len(host.programs("llorch-cpud")) == len(keepers) and len(host.programs("pool-managerd")) == 1
            try:
                wait_until(accounted, "", 60)
            except TimeoutError:
                words = [command_of(pid)[:3] for pid in host.processes()]
                raise AssertionError(f"{host.name} runs what its pool does not know, or the other way round: {words}") from None

    def check_record(self):
        """Every accepted job is in the record, and has ended exactly once."""
        store = sqlite3.connect(f"file:{self.fleet.home}/llorch.db?mode=ro", uri=True)
        ended = dict(store.execute("SELECT hex(job.id), count(record.seq) FROM job LEFT JOIN record "
                                   "ON record.job = job.n AND record.kind = 5 GROUP BY job.id"))
        last = dict(store.execute("SELECT hex(job.id), max(record.kind = 5 AND record.seq = "
                                  "(SELECT max(seq) FROM record r WHERE r.job = job.n)) FROM job JOIN record ON record.job = job.n GROUP BY job.id"))
        store.close()
        for client in self.clients:
            if client.job and ended.get(client.job.upper()) != 1:
                raise AssertionError(f"{client.job} has {ended.get(client.job.upper())} ends in the record")
        wrong = {job: count for job, count in ended.items() if count != 1 or last.get(job) != 1}
        if wrong:
            raise AssertionError(f"jobs that have not ended once: {wrong}")


def run_storm(bin_folder, operations, seed):
    print(f"storm: seed {seed}, {operations} operations (repeat with --seed {seed} or LLORCH_STORM_SEED={seed})", flush=True)
    with tempfile.TemporaryDirectory(prefix="lo.") as folder, Hosts(f"{folder}/hosts", HOSTS, proxied=True) as hosts:
        fleet = Fleet(f"{folder}/fleet", bin_folder, hosts)
        done, said = 0, "the start"
        try:
            start = time.monotonic()
            fleet.start()
            fleet.bring_up(*HOSTS)
            model = pathlib.Path(folder) / "chat.gguf"
            source = pathlib.Path(__file__).parents[2] / "models/builtin/stories.gguf"
            write_chat_model(source, model, "{% for m in messages %}{{ m.content }}\n{% endfor %}")
            for words in (("register", CHAT, "--path", str(model)), ("verify", CHAT)):
                told = fleet.llorch("pool", "models", *words, "--host", ",".join(HOSTS))
                if told.returncode != 0:
                    raise AssertionError(told.stdout + told.stderr)
            storm = Storm(fleet, hosts, seed)
            storm.learn()
            ready = time.monotonic()
            for done in range(1, operations + 1):
                said = storm.step()
                print(f"{time.monotonic() - ready:7.1f} {done:4} {said}", flush=True)
            said = "the end"
            blown = time.monotonic()
            ends = storm.finish()
            for client in storm.clients:
                if client.refused:
                    print(f"refused: {client.kind.name}: {client.refused}")
            print(f"storm: {hosts.kind}; ready after {ready - start:.0f} s, {operations} operations in {blown - ready:.0f} s, over "
                  f"{time.monotonic() - blown:.0f} s later; {len(storm.clients)} requests: {dict(ends)}; "
                  f"{sum(client.reconnects for client in storm.clients)} reconnects; {dict(storm.counts)}")
        except BaseException:
            print(f"storm: seed {seed} failed at operation {done} ({said})", file=sys.stderr)
            keep = os.environ.get("LLORCH_STORM_KEEP")
            if keep:
                shutil.copytree(folder, keep, ignore=shutil.ignore_patterns("programs", "*.gguf", "run", "lib"), dirs_exist_ok=True)
            else:
                print(fleet.log_file().read_text()[-8000:] if fleet.starts else "", file=sys.stderr)
            raise
        finally:
            fleet.close()
    if is_isolated():
        wait_until(lambda: set(processes()) == {os.getpid()}, f"left behind: {[command_of(pid) for pid in processes()]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bin_folder")
    parser.add_argument("--operations", type=int, default=int(os.environ.get("LLORCH_STORM_OPERATIONS", "60")))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("LLORCH_STORM_SEED", "0")) or random.SystemRandom().randint(1, 10**6))
    options = parser.parse_args()
    if shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin") is None:
        print("SKIPPED: sshd is not installed (scripts/setup.sh test)", file=sys.stderr)
        sys.exit(77)
    os.environ["LLORCH_STORM_SEED"] = str(options.seed)
    isolate()
    run_storm(pathlib.Path(options.bin_folder).resolve(), options.operations, options.seed)


if __name__ == "__main__":
    main()
