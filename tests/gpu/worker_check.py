"""What a CUDA worker promises, seen from outside: same ids whatever the batch, cancel, bursts, a soak with flat VRAM, VRAM back after kill -9.

    worker_check.py BIN_DIR MODEL [--requests N] [--json FILE]

Prints a row for each check and exits 1 when one failed. Needs a GPU and nvidia-smi; nothing but Python's standard library.
"""
import argparse, http.client, json, os, signal, subprocess, sys, threading, time


def vram_mib():
    out = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], capture_output=True, text=True)
    return int(out.stdout.split()[0])


class Worker:
    def __init__(self, bin_dir, model, *flags):
        self.process = subprocess.Popen([os.path.join(bin_dir, "worker-orcd"), "--worker-id", "gpu-check", "--model", model, "--port", "0", "--gpu-device", "0", *flags],
                                        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self.port = None
        self.lines = []
        threading.Thread(target=self._read, daemon=True).start()
        begin = time.time()
        while time.time() - begin < 60:
            if self.port and self.health().get("status") == "healthy":
                self.ready_s = time.time() - begin
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise SystemExit("the worker did not become ready:\n" + "".join(self.lines[-10:]))

    def _read(self):
        import re
        for line in self.process.stderr:
            self.lines.append(line)
            found = re.search(r'"port":(\d+)', line)
            if found and not self.port:
                self.port = int(found.group(1))

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json"})
        return connection.getresponse()

    def health(self):
        try:
            return json.loads(self.call("GET", "/health").read())
        except OSError:
            return {}

    def execute(self, job, prompt="Once upon a time", stop_after=None, **fields):
        """(ids, last event, seconds to the first token, seconds in all, seconds from the cancel to the end)"""
        begin = time.time()
        response = self.call("POST", "/execute", {"job_id": job, "prompt": prompt, **fields})
        if response.status != 200:
            return [], (str(response.status), json.loads(response.read())), 0, 0, 0
        ids, first, event, cancelled = [], None, "", None
        last = None
        for raw in response:
            line = raw.decode().rstrip("\n")
            if line.startswith("event: "):
                event = line[7:]
            elif line.startswith("data: "):
                data = json.loads(line[6:])
                ids += data.get("ids", [])
                if event == "token" and first is None:
                    first = time.time() - begin
                if event in ("end", "error"):
                    last = (event, data)
                if event == "token" and stop_after and len(ids) >= stop_after and cancelled is None:
                    cancelled = time.time()
                    self.call("POST", "/cancel", {"job_id": job}).read()
        end = time.time()
        return ids, last, first or 0, end - begin, end - cancelled if cancelled else 0

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def together(worker, calls):
    results = [None] * len(calls)

    def run(i):
        results[i] = worker.execute(**calls[i])
    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir")
    parser.add_argument("model")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = []

    def row(what, ok, said):
        rows.append({"check": what, "passed": bool(ok), "said": said})
        print(f"  {what:<44} {'pass' if ok else 'FAIL'}  {said}", flush=True)

    before = vram_mib()
    worker = Worker(options.bin_dir, options.model)
    health = worker.health()
    row("ready", True, f"{worker.ready_s:.2f} s, {vram_mib() - before} MiB of VRAM, {health.get('device')}")
    row("/health", health.get("memory_type") == "vram-only" and health.get("vram_bytes", 0) > 0, f"vram_bytes {health.get('vram_bytes')}")
    for name, sampling in (("greedy", {"temperature": 0}), ("temperature 1", {"temperature": 1.0, "seed": 7}),
                           ("temperature 0.8, top-p 0.9", {"temperature": 0.8, "top_p": 0.9, "seed": 7})):
        alone = worker.execute(job=f"alone-{len(rows)}", max_tokens=48, **sampling)
        calls = [{"job": f"among-{len(rows)}-{i}", "max_tokens": 48, **(sampling if i == 7 else {"temperature": 1.0, "seed": 100 + i, "prompt": f"Tale {i} of {'many ' * i}things"})} for i in range(24)]
        among = together(worker, calls)
        again = worker.execute(job=f"again-{len(rows)}", max_tokens=48, **sampling)
        same = alone[0] == among[7][0] == again[0] and len(alone[0]) > 0
        row(f"same ids alone, among 24, again: {name}", same, f"{len(alone[0])} ids" if same else f"{alone[0][:6]} {among[7][0][:6]} {again[0][:6]}")
    words = "The king walked along the river and thought of his daughter. "
    first = [worker.execute(job=f"first-{i}", prompt=f"{i} " + words * 40, max_tokens=2, temperature=0)[2] for i in range(6)]
    row("first token, about 500 tokens, warm", True, f"{min(first[1:]) * 1e3:.1f} ms")
    cancels = [worker.execute(job=f"cancel-{i}", max_tokens=900, stop_after=20 + i, temperature=1.0) for i in range(20)]
    slowest = max(c[4] for c in cancels)
    row("cancel in decode ends with CANCELLED", all(c[1] and c[1][0] == "error" and c[1][1]["code"] == "CANCELLED" for c in cancels), f"slowest {slowest * 1e3:.1f} ms")
    burst = together(worker, [{"job": f"burst-{i}", "max_tokens": 32, "temperature": 1.0, "seed": i} for i in range(64)])
    row("burst of 64", all(b[1] and b[1][0] == "end" for b in burst), f"{sum(len(b[0]) for b in burst)} tokens in {max(b[3] for b in burst):.2f} s")
    for streams in (1, 16, 64):
        for name, temperature in (("greedy", 0), ("temperature 1", 1.0)):
            some = together(worker, [{"job": f"speed-{streams}-{temperature}-{i}", "max_tokens": 200, "temperature": temperature, "seed": i, "prompt": f"{i} {words}"} for i in range(streams)])
            tokens, seconds = sum(len(s[0]) for s in some), max(s[3] for s in some)
            row(f"{streams} streams, {name}, over HTTP", all(s[1] and s[1][0] == "end" for s in some), f"{tokens / seconds:.0f} tokens/s ({tokens} tokens)")
    flat = vram_mib()
    begin = time.time()
    failed = 0
    for start in range(0, options.requests, 50):
        some = together(worker, [{"job": f"soak-{start + i}", "max_tokens": 1 + (start + i) % 40, "temperature": (i % 3) * 0.5, "seed": i, "prompt": f"{i} " + words * (i % 9)} for i in range(50)])
        failed += sum(1 for s in some if not s[1] or s[1][0] != "end")
    row(f"soak of {options.requests}", failed == 0 and abs(vram_mib() - flat) <= 8, f"{failed} failed, VRAM {flat} -> {vram_mib()} MiB, {time.time() - begin:.1f} s")
    health = worker.health()
    row("blocks are back", health.get("kv_blocks_free") == health.get("kv_blocks_total") or health.get("slots_busy") == 0, f"{health.get('kv_blocks_free')} of {health.get('kv_blocks_total')} free")
    bad = worker.execute(job="too-long", prompt="word " * 30000, max_tokens=10)
    row("a prompt beyond the context is refused", bad[1] and bad[1][0] == "400", str(bad[1])[:80])
    row("SIGTERM: exit 0", worker.stop() == 0, "")
    second = Worker(options.bin_dir, options.model)
    threading.Thread(target=lambda: second.execute(job="doomed", max_tokens=1000), daemon=True).start()
    time.sleep(0.3)
    second.process.kill()
    second.process.wait()
    time.sleep(1.5)
    row("kill -9: VRAM is back", abs(vram_mib() - before) <= 8, f"{before} MiB before, {vram_mib()} after")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    failed = [r for r in rows if not r["passed"]]
    print(f"{len(rows) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
