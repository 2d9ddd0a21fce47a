#!/usr/bin/env python3
"""Our speed beside other programs' on the same files, threads and minutes.

    bench/peers.py --ours build/release/bin/llorch-bench --peer llama.cpp=/path/to/llama-bench -m a.gguf -m b.gguf -o speeds.json

Each round runs every program once on a file, one after the other, so that a machine that changes its speed changes it for all.
Peers are `llama-bench` programs (llama.cpp's, ik_llama.cpp's), given by path. Prints ratios, writes everything as JSON, from
which bench/peers_page.py makes docs/PERFORMANCE_BENCHMARKS.md. Exit code 1 when a program fails."""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys

LIMIT_S = 3600


def run(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SystemExit(f"peers: {command[0]}: {error}")
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise SystemExit(f"peers: {command[0]} ended with {done.returncode}: {last}")
    try:
        return json.loads(done.stdout)
    except ValueError as error:
        raise SystemExit(f"peers: {command[0]} printed no JSON: {error}")


def of_ours(report):
    """{"pp512": [tokens/s, …]} and what the machine could do beside them, of llorch-bench's JSON."""
    tests = report["models"][0]["tests"]
    speeds = {test["test"].split()[0]: test["tokens_per_second"] for test in tests}
    limits = {test["test"].split()[0]: test["limits"] for test in tests}
    return speeds, limits


def of_peer(report):
    """The same of llama-bench's JSON: one entry a test, with its samples."""
    speeds = {}
    for entry in report:
        prompt, generated = entry["n_prompt"], entry["n_gen"]
        name = f"pp{prompt}" if generated == 0 else f"tg{generated}"
        speeds[name] = entry.get("samples_ts") or [entry["avg_ts"]]
    return speeds


def arguments_of(options, model):
    arguments = ["-m", model, "-p", str(options.prompt), "-n", str(options.generate), "-r", str(options.repeats), "-o", "json"]
    if options.depth:
        arguments += ["-d", str(options.depth)]
    return arguments + ["-t", str(options.threads)]


def measure(options, model, programs):
    speeds, limits = {name: {} for name in programs}, {}
    for _ in range(options.rounds):
        for name, path in programs.items():
            report = run([path] + arguments_of(options, model))
            if name == "llorch":
                found, beside = of_ours(report)
                for test, values in beside.items():
                    limits.setdefault(test, []).extend(values)
            else:
                found = of_peer(report)
            for test, values in found.items():
                speeds[name].setdefault(test, []).extend(values)
    return {"model": os.path.basename(model), "bytes": os.path.getsize(model), "speeds": speeds, "limits": limits}


def ratios(result):
    """(test, our median, {peer: our median / its median}) for each test that all have."""
    ours = result["speeds"]["llorch"]
    for test in ours:
        mine = statistics.median(ours[test])
        others = {name: statistics.median(speeds[test]) for name, speeds in result["speeds"].items() if name != "llorch" and test in speeds}
        yield test, mine, {name: mine / speed for name, speed in others.items()}


def processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", required=True, help="llorch-bench")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PATH", help="a llama-bench; give it once for each")
    parser.add_argument("-m", "--model", action="append", required=True)
    parser.add_argument("-p", "--prompt", type=int, default=512)
    parser.add_argument("-n", "--generate", type=int, default=128)
    parser.add_argument("-d", "--depth", type=int, default=0)
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count())
    parser.add_argument("-r", "--repeats", type=int, default=2, help="in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--note", default="", help="how the programs and files were made, for the page")
    parser.add_argument("-o", "--output", help="JSON file")
    options = parser.parse_args(argv)
    programs = {"llorch": options.ours}
    for peer in options.peer:
        name, separator, path = peer.partition("=")
        if not separator or not path or name in programs:
            parser.error(f"--peer {peer}: expected NAME=PATH, each name once")
        programs[name] = path
    results = []
    for model in options.model:
        result = measure(options, model, programs)
        results.append(result)
        for test, mine, others in ratios(result):
            beside = ", ".join(f"{ratio:.2f} x {name}" for name, ratio in others.items())
            share = mine / statistics.median(result["limits"][test])
            print(f"{result['model']}  {test}: {mine:.1f} tokens/s, {100 * share:.0f} % of the limit{', ' + beside if beside else ''}", flush=True)
    report = {"processor": processor(), "threads": options.threads, "depth": options.depth, "rounds": options.rounds, "note": options.note,
              "results": results}
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
            file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
