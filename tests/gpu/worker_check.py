"""What a CUDA worker promises, seen from outside: same ids whatever the batch and over two parts, the CPU's ids in F32, cancel, bursts, a soak with
flat VRAM, a plan that holds, VRAM back after kill -9, also through the pool.

    worker_check.py BIN_DIR MODEL [--f32 MODEL] [--chat MODEL] [--plan MODEL]... [--requests N] [--json FILE]

--f32: a small model of float32 weights, whose ids are compared with llorch-cpud's. --chat: one with a chat template, asked for JSON. --plan: models whose
memory and time to load are looked at.
Prints a row for each check and exits 1 when one failed. What BIN_DIR has not (llorch-cpud, llorch-pool) makes a row that says so.
Needs a GPU and its driver; nothing but Python's standard library.
"""
import argparse, http.client, json, os, re, signal, subprocess, sys, tempfile, threading, time

from card import Card

WORDS = "The king walked along the river and thought of his daughter. "
LONG_CONTEXT = 16000  # tokens: what a cancel in the middle of a prompt is measured with


class Worker:
    def __init__(self, bin_dir, model, *flags, program="worker-orcd"):
        self.process = subprocess.Popen([os.path.join(bin_dir, program), "--worker-id", "gpu-check", "--model", model, "--port", "0", *flags],
                                        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self.port = None
        self.lines = []
        threading.Thread(target=self._read, daemon=True).start()
        begin = time.time()
        while time.time() - begin < 120:
            if self.port and self.health().get("status") == "healthy":
                self.ready_s = time.time() - begin
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise SystemExit("the worker did not become ready:\n" + "".join(self.lines[-10:]))

    def _read(self):
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

    def execute(self, job, prompt="Once upon a time", stop_after=None, cancel_after_s=None, **fields):
        """(ids, last event, seconds to the first token, seconds in all, seconds from the cancel to the end)"""
        begin = time.time()
        if cancel_after_s:
            stop_after = None
            threading.Timer(cancel_after_s, lambda: self.call("POST", "/cancel", {"job_id": job}).read()).start()
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
        if cancel_after_s:
            cancelled = begin + cancel_after_s
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


def same_as_cpu(row, options):
    """The ids of a float32 model, whose products are float32 on every backend."""
    if not options.f32 or not os.path.exists(os.path.join(options.bin_dir, "llorch-cpud")):
        return row("64 greedy ids equal to the CPU's in F32", True, "SKIPPED: no --f32, or no llorch-cpud")
    ids = []
    for program in ("llorch-cpud", "worker-orcd"):
        worker = Worker(options.bin_dir, options.f32, program=program)
        prompts = ("Once upon a time", "The dog", "Lily wanted")
        ids.append([worker.execute(job=f"f32-{i}", prompt=prompt, max_tokens=64, temperature=0, repetition_penalty=penalty)[0]
                    for i, (prompt, penalty) in enumerate([(prompt, penalty) for penalty in (1.0, 1.3) for prompt in prompts])])
        worker.stop()
    for penalised in (False, True):
        some = [of[3:] if penalised else of[:3] for of in ids]
        same = some[0] == some[1] and min(len(answer) for answer in some[0]) > 32 and (some[0] != ids[0][:3]) == penalised
        row("64 greedy ids equal to the CPU's in F32" + (", penalised" if penalised else ""), same, f"{sum(len(answer) for answer in some[0])} ids of 3 prompts")


def split_in_two(row, options, alone):
    """The layers on one card named twice: two contexts of CUDA's, two streams, the same ids."""
    worker = Worker(options.bin_dir, options.model, "--gpu-device", "0,0")
    ids = worker.execute(job="split", max_tokens=48, temperature=0)[0]
    drawn = together(worker, [{"job": f"split-{i}", "max_tokens": 48, "temperature": 1.0, "seed": i} for i in range(16)])
    row("same ids over two parts (--gpu-device 0,0)", ids == alone and len(ids) > 0 and all(d[1] and d[1][0] == "end" for d in drawn), f"{len(ids)} ids, {worker.health().get('device')}")
    worker.stop()


GUIDED = {"plain": {}, "penalties": {"repetition_penalty": 1.1, "frequency_penalty": 0.2, "presence_penalty": 0.1},
          "JSON Schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "notes", "strict": True, "schema": {
              "type": "object", "properties": {"title": {"type": "string"}, "notes": {"type": "array", "minItems": 60, "items": {
                  "type": "object", "properties": {"who": {"type": "string"}, "what": {"type": "string"}, "count": {"type": "integer"}},
                  "required": ["who", "what", "count"], "additionalProperties": False}}},
              "required": ["title", "notes"], "additionalProperties": False}}}}}


def guided(row, options):
    """Answers held to a schema, and penalised ones: the same alone and among others, and how fast."""
    if not options.chat:
        return row("JSON Schema and penalties", True, "SKIPPED: no --chat")
    worker = Worker(options.bin_dir, options.chat)

    def ask(of, seed):
        body = {"messages": [{"role": "user", "content": f"{seed} {WORDS * 3}"}], "max_tokens": 200, "temperature": 0.8, "seed": seed, **GUIDED[of]}
        answer = json.loads(worker.call("POST", "/v1/chat/completions", body).read())
        return answer["choices"][0]["message"]["content"], answer["usage"]["completion_tokens"]

    def ask_together(calls):
        answers = [None] * len(calls)

        def run(i):
            answers[i] = ask(*calls[i])
        threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers
    for of in GUIDED:
        alone = [ask(of, seed) for seed in (3, 11)]
        among = ask_together([(of if i == 3 else list(GUIDED)[i % 3], i) for i in range(16)])
        row(f"same text alone and among 16: {of}", among[3] == alone[0] and alone[0][1] > 0, f"{alone[0][1]} tokens: {alone[0][0][:40]!r}")
        if of == "JSON Schema":
            row("... begins as the schema wants", alone[0][0].replace(" ", "").replace("\n", "").startswith('{"title":"'), "")
        for streams in (1, 16):
            rates = []
            for again in range(3):
                begin = time.time()
                answers = ask_together([(of, 1000 * again + i) for i in range(streams)])
                rates.append(sum(answer[1] for answer in answers) / (time.time() - begin))
            row(f"{streams} streams, {of}, of a chat", True, f"{sorted(rates)[1]:.0f} tokens/s")
    worker.stop()


def cancel_in_prefill(row, worker, words, of=""):
    """A prompt as long as the context allows, up to 16k, given up while it is read, at several places."""
    repeats = max(1, min(16000, worker.health().get("context_length", 0) - 300) * 3 // 4 // len(words.split()))
    prompt = words * repeats
    whole = worker.execute(job="prefill", prompt="0 " + prompt, max_tokens=1, temperature=0)
    given_up = [worker.execute(job=f"prefill-{i}", prompt=f"{i + 1} " + prompt, max_tokens=1, temperature=0, cancel_after_s=max(0.004, whole[2] * i / 8)) for i in range(1, 7)]
    ended = [g for g in given_up if g[1] and g[1][0] == "error" and g[1][1]["code"] == "CANCELLED"]
    slowest = max((g[4] for g in ended), default=0)
    row("cancel while a long prompt is read" + of, whole[1] and whole[1][0] == "end" and (ended or whole[2] < 0.02) and slowest <= 0.05,
        f"{whole[1][1].get('prompt_tokens') if whole[1] else '?'} tokens in {whole[2] * 1e3:.0f} ms, {len(ended)} of {len(given_up)} given up, slowest {slowest * 1e3:.1f} ms")


def plan_holds(row, options, card, model):
    plan = json.loads(subprocess.run([os.path.join(options.bin_dir, "worker-orcd"), "--plan-memory", "--model", model], capture_output=True, text=True, check=True).stdout)
    before = card.used_mib()
    worker = Worker(options.bin_dir, model, "--kv-memory", str(plan["kv_bytes"]))
    loaded = json.loads(next(line for line in worker.lines if '"message":"ready"' in line))
    taken, planned = card.used_mib() - before, plan["device_bytes"] / 2**20
    name = os.path.basename(model)
    row(f"plan within 5 %: {name}", abs(taken - planned) <= 0.05 * planned, f"planned {planned:.0f} MiB, taken {taken:.0f} MiB ({100 * (taken - planned) / planned:+.1f} %); ready in {loaded.get('seconds', 0):.2f} s")
    if worker.health().get("context_length", 0) >= LONG_CONTEXT:
        cancel_in_prefill(row, worker, WORDS, f": {name}")
    worker.stop()
    left = card.settles_at(before, 8)
    row(f"VRAM is back after its end: {name}", abs(left - before) <= 8, f"{before:.0f} MiB before, {left:.0f} after")


def killed_in_a_pool(row, options, card):
    what = "kill -9 in a pool: VRAM is back"
    pool = os.path.join(options.bin_dir, "llorch-pool")
    if not os.path.exists(pool):
        return row(what, True, "SKIPPED: no llorch-pool")
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "LLORCH_HOME": home}

        def ask(*words):
            return subprocess.run([pool, *words], env=environment, capture_output=True, text=True, timeout=120)
        before = card.used_mib()
        spawned = ask("worker", "spawn", "cuda", "--model", "builtin", "--gpu", "0")
        listed = ask("worker", "list", "--json")
        try:
            worker = json.loads(listed.stdout)["workers"][0]
            held = card.used_mib() - before
            os.kill(worker["pid"], signal.SIGKILL)
            left = card.settles_at(before, 8)
            time.sleep(1.5)
            state = json.loads(ask("worker", "list", "--json").stdout)["workers"]
            row(what, held > 100 and abs(left - before) <= 8, f"{held:.0f} MiB held, {left - before:+.0f} MiB after; the pool says {state[0]['state'] if state else 'gone'}")
        except (ValueError, KeyError, IndexError) as error:
            row(what, False, f"{error!r}: {spawned.stderr[-300:]} {listed.stdout[:200]}")
        ask("stop")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir")
    parser.add_argument("model")
    parser.add_argument("--f32")
    parser.add_argument("--chat")
    parser.add_argument("--plan", action="append", default=[])
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = []

    def row(what, ok, said):
        rows.append({"check": what, "passed": bool(ok), "said": said})
        print(f"  {what:<44} {'pass' if ok else 'FAIL'}  {said}", flush=True)

    card = Card()
    before = card.used_mib()
    worker = Worker(options.bin_dir, options.model)
    health = worker.health()
    row("ready", True, f"{worker.ready_s:.2f} s, {card.used_mib() - before:.0f} MiB of VRAM, {health.get('device')}")
    told = {name: health.get(name) for name in ("vram_bytes", "vram_total", "sm", "cuda_runtime_version", "resident")}
    row("/health", health.get("memory_type") == "vram-only" and all(told.values()), json.dumps(told))
    page = worker.call("GET", "/metrics").read().decode()
    found = dict(re.findall(r'^(llorch_(?:vram_bytes|gpu_power_watts|gpu_temperature_celsius)(?:\{purpose="\w+"\})?)(?:\{gpu="[^"]+"\})? (\S+)$', page, re.M))
    row("/metrics: VRAM by purpose, power, temperature", len(found) == 5, ", ".join(f"{name[7:]} {value}" for name, value in found.items()))
    for name, sampling in (("greedy", {"temperature": 0}), ("temperature 1", {"temperature": 1.0, "seed": 7}),
                           ("temperature 0.8, top-p 0.9", {"temperature": 0.8, "top_p": 0.9, "seed": 7}),
                           ("top-k 40, min-p 0.02", {"temperature": 0.9, "top_k": 40, "min_p": 0.02, "seed": 7})):
        alone = worker.execute(job=f"alone-{len(rows)}", max_tokens=48, **sampling)
        calls = [{"job": f"among-{len(rows)}-{i}", "max_tokens": 48, **(sampling if i == 7 else {"temperature": 1.0, "seed": 100 + i, "prompt": f"Tale {i} of {'many ' * i}things"})} for i in range(24)]
        among = together(worker, calls)
        again = worker.execute(job=f"again-{len(rows)}", max_tokens=48, **sampling)
        if name == "greedy":
            greedy = alone[0]
        same = alone[0] == among[7][0] == again[0] and len(alone[0]) > 0
        row(f"same ids alone, among 24, again: {name}", same, f"{len(alone[0])} ids" if same else f"{alone[0][:6]} {among[7][0][:6]} {again[0][:6]}")
    words = WORDS
    first = [worker.execute(job=f"first-{i}", prompt=f"{i} " + words * 40, max_tokens=2, temperature=0)[2] for i in range(6)]
    row("first token, about 500 tokens, warm", True, f"{min(first[1:]) * 1e3:.1f} ms")
    cancels = [worker.execute(job=f"cancel-{i}", max_tokens=900, stop_after=20 + i, temperature=1.0) for i in range(20)]
    slowest = max(c[4] for c in cancels)
    row("cancel in decode ends with CANCELLED", all(c[1] and c[1][0] == "error" and c[1][1]["code"] == "CANCELLED" for c in cancels), f"slowest {slowest * 1e3:.1f} ms")
    row("... within 20 ms", slowest <= 0.02, f"slowest {slowest * 1e3:.1f} ms")
    cancel_in_prefill(row, worker, words)
    after = [worker.execute(job=f"after-{i}", max_tokens=2, temperature=0)[2] for i in range(3)]
    row("the GPU is free after it", max(after) <= 0.05, f"first token of a short prompt {max(after) * 1e3:.1f} ms")
    burst = together(worker, [{"job": f"burst-{i}", "max_tokens": 32, "temperature": 1.0, "seed": i} for i in range(64)])
    row("burst of 64", all(b[1] and b[1][0] == "end" for b in burst), f"{sum(len(b[0]) for b in burst)} tokens in {max(b[3] for b in burst):.2f} s")
    for streams in (1, 16, 64):
        for name, sampling in (("greedy", {"temperature": 0}), ("temperature 1", {"temperature": 1.0}), ("top-p 0.9", {"temperature": 0.8, "top_p": 0.9}), ("top-k 40", {"temperature": 0.8, "top_k": 40})):
            some = together(worker, [{"job": f"speed-{streams}-{name[:5]}-{i}".replace(" ", "-"), "max_tokens": 200, "seed": i, "prompt": f"{i} {words}", **sampling} for i in range(streams)])
            tokens, seconds = sum(len(s[0]) for s in some), max(s[3] for s in some)
            row(f"{streams} streams, {name}, over HTTP", all(s[1] and s[1][0] == "end" for s in some), f"{tokens / seconds:.0f} tokens/s ({tokens} tokens)")
    flat = card.used_mib()
    begin = time.time()
    failed = 0
    for start in range(0, options.requests, 50):
        some = together(worker, [{"job": f"soak-{start + i}", "max_tokens": 1 + (start + i) % 40, "temperature": (i % 3) * 0.5, "seed": i, "prompt": f"{i} " + words * (i % 9)} for i in range(50)])
        failed += sum(1 for s in some if not s[1] or s[1][0] != "end")
    row(f"soak of {options.requests}", failed == 0 and abs(card.used_mib() - flat) <= 8, f"{failed} failed, VRAM {flat:.0f} -> {card.used_mib():.0f} MiB, {time.time() - begin:.1f} s")
    health = worker.health()
    row("blocks are back", health.get("kv_blocks_free") == health.get("kv_blocks_total") or health.get("slots_busy") == 0, f"{health.get('kv_blocks_free')} of {health.get('kv_blocks_total')} free")
    bad = worker.execute(job="too-long", prompt="word " * 30000, max_tokens=10)
    row("a prompt beyond the context is refused", bad[1] and bad[1][0] == "400", str(bad[1])[:80])
    row("SIGTERM: exit 0", worker.stop() == 0, "")
    split_in_two(row, options, greedy)
    same_as_cpu(row, options)
    guided(row, options)
    for model in options.plan:
        plan_holds(row, options, card, model)
    before = card.used_mib()
    second = Worker(options.bin_dir, options.model)
    held = card.used_mib() - before
    threading.Thread(target=lambda: second.execute(job="doomed", max_tokens=1000), daemon=True).start()
    time.sleep(0.3)
    second.process.kill()
    second.process.wait()
    left = card.settles_at(before, 8)
    row("kill -9: VRAM is back", held > 100 and abs(left - before) <= 8, f"{held:.0f} MiB held, {left - before:+.0f} MiB after")
    killed_in_a_pool(row, options, card)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    failed = [r for r in rows if not r["passed"]]
    print(f"{len(rows) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
