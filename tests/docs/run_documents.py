#!/usr/bin/env python3
"""Runs the commands of the documents, block by block, as a reader would.

Every block of code (fenced, or indented by four) on every page of pages.txt has a mark in front of it, unless it is a drawing or its fence names
another language than a shell's (```json, ```text):

    <!-- run -->               run it; it must end with 0
    <!-- run: exit 1 -->       the same, with another code
    <!-- run: spans -->        every span of code up to the next empty line that begins with one of our programs, curl or ss
    <!-- not run: WHY -->      not run, for this reason
    <!-- prepare: COMMAND -->  run, and not seen by readers: what a page takes for granted

Within a span-by-span run, `<!-- not run: WHY -->` behind a span leaves out the spans of its line; a row of a table without either is a failure. Lines that begin with `$ ` are commands, and what
follows up to the next, where there is something, is what they must print, in its shape: numbers, the texts in JSON and white space may differ, `…` stands
for anything. A line that starts a daemon is started in the background and waited for. The blocks of a page share one folder, one home and, where that is
allowed, one network of their own. In that folder lie tests/ and models/ of the repository, build/release/bin, and stand-ins for the
files that pages speak of (model.gguf is the built-in model, chat-model.gguf the same with a chat template).

--list shows the blocks, --marks only looks whether all have one.

Usage: run_documents.py ROOT BIN [--list|--marks] [PAGE…]
"""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

from check_commands import DRAWING, OTHERS, PROGRAM, TABLES, pages

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "fleet_hosts"))
import hosts  # noqa: E402

MARK = re.compile(r"<!-- (run|not run|prepare)(?:: (.+?))? -->")
DAEMON = re.compile(r"^(?:\S*/)?(llorch-cpud|orchestratord|pool-managerd|llorch-pool serve)(?= |$)(?!.*--(?:plan-memory|version|help))")
COMMANDS = re.compile(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:\S*/)?(?:" + "|".join((*TABLES, *OTHERS, "worker-orcd", "curl", "make", "systemctl", "sudo")) + r")(?= |$)")
SHELLS = ("", "sh", "bash", "console")
PORTS = {"llorch-cpud": 8000, "orchestratord": 8080, "pool-managerd": 9200, "llorch-pool serve": 9200}
PATIENCE_S = 300
SLOW_S = 5
SKIP = 77


class Block:
    """Something to run: its lines, where it stands, what its mark says."""

    def __init__(self, line, lines, kind, word):
        self.line, self.lines, self.kind, self.word = line, lines, kind, word


def blocks_of(text):
    """Every marked block, every block that needs a mark and has none (kind None), and every hidden preparation."""
    lines = text.splitlines()
    mark, at = None, 0
    while at < len(lines):
        line = lines[at]
        found = MARK.search(line)
        if found and line.strip() == found.group(0):
            kind, word = found.group(1), found.group(2)
            if kind == "prepare":
                yield Block(at + 1, [word or ""], kind, None)
            elif kind == "run" and word == "spans":
                end = at + 1
                while end < len(lines) and (lines[end].strip() or end == at + 1):
                    end += 1
                yield Block(at + 2, lines[at + 1:end], "spans", None)
                at = end - 1
            else:
                mark = (kind, word)
            at += 1
            continue
        language = ""
        if line.strip().startswith("```"):
            language, end = line.strip()[3:].strip(), at + 1
            while end < len(lines) and not lines[end].strip().startswith("```"):
                end += 1
            body, first = lines[at + 1:end], at + 2
            at = end + 1
        elif line.startswith("    ") and line.strip() and (at == 0 or not lines[at - 1].strip()):
            end = at
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            body, first = [text[4:] for text in lines[at:end]], at + 1
            while body and not body[-1].strip():
                body.pop()
            at = end
        else:
            if line.strip() and mark:
                yield Block(at + 1, [], *mark)  # a mark without a block
                mark = None
            at += 1
            continue
        if mark:
            yield Block(first, body, *mark)
        elif needs_mark(language, body):
            yield Block(first, body, None, None)
        mark = None


def needs_mark(language, body):
    """Whether a block is there to be typed, for all that can be told: whatever is not said to be something else, and is no drawing."""
    is_typed = any(COMMANDS.match(code.strip()) and not DRAWING.search(code) for code in body)
    return language in SHELLS and (is_typed or not any(DRAWING.search(code) for code in body))


def steps_of(lines):
    """(command, what it prints or None) of a block: with prompts each command alone, else all of it at once."""
    if not any(line.startswith("$ ") for line in lines):
        return [("\n".join(lines), None)]
    steps = []
    for line in lines:
        if line.startswith("$ "):
            steps.append(([line[2:]], []))
        elif steps and is_open("\n".join(steps[-1][0])):
            steps[-1][0].append(line)
        elif steps:
            steps[-1][1].append(line)
    return [("\n".join(command), "\n".join(output) or None) for command, output in steps]


def is_open(command):
    """Whether the command goes on in the next line: a backslash at its end, or a quote."""
    return command.endswith("\\") or re.sub(r"\\.", "", command).count("'") % 2 == 1


def spans_of(lines):
    for line in lines:
        if MARK.search(line):
            continue
        for code in re.findall(r"`([^`]+)`", line):
            if (PROGRAM.match(code) or code.startswith(("curl ", "ss "))) and "…" not in code:
                yield code.replace("\\|", "|")


def rows_left(lines):
    """Rows below a table's heading of which nothing is run, and that do not say why."""
    is_body = False
    for line in lines:
        if not line.startswith("|"):
            is_body = False
        elif not line.strip("|-: "):
            is_body = True
        elif is_body:
            found = MARK.search(line)
            if not (found and found.group(1) == "not run" and found.group(2)) and not list(spans_of([line])):
                yield line


def shape(text):
    """What must be the same of two outputs: words and structure, without numbers, JSON's texts and white space."""
    text = re.sub(r'("\s*:\s*)"(?:[^"\\]|\\.)*"', r'\1"s"', text)
    text = re.sub(r'\["(?:[^"\\]|\\.)*"(?:,\s*"(?:[^"\\]|\\.)*")*\]', '["s"]', text)
    text = re.sub(r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])[0-9a-f]{8,}\b", "x", text)
    text = re.sub(r"[-+±]?\d+(?:,\d{3}\b)*(?:\.\d+)?(?:[eE][-+]?\d+)?", "0", text)
    text = re.sub(r"\b0 ?(?:B|[KMG]iB|ms|s|min|h)\b", "0 u", text)
    text = re.sub(r"0(?:\s*,\s*0)+", "0", text)
    text = re.sub(r"\s+", " ", text)
    return re.sub(r'\s*([{}\[\],":])\s*', r"\1", text).strip()


def has_shape(expected, found):
    parts = [re.escape(part.strip()) for part in shape(expected).split("…")]
    return re.fullmatch(r"\s*.*?\s*".join(parts), shape(found), re.S) is not None


AWAIT = """await() {
  for _ in $(seq 400); do
    curl -sf -o /dev/null http://127.0.0.1:$1/health && return 0
    kill -0 $! 2>/dev/null || break
    sleep 0.05
  done
  cat "$2"
  return 1
}
"""


def in_background(command, logs):
    """A script in which daemons run beside it: each is waited for, and its words are in a file."""
    out, helper = [], ""
    for line in command.splitlines():
        found = DAEMON.match(line.strip())
        if not found:
            out.append(line)
            continue
        port = re.search(r"--port (\d+)", line)
        number = port.group(1) if port else PORTS[found.group(1)]
        log = logs / f"{found.group(1).split()[0]}-{number}.log"
        line = re.sub(r"\s+#.*", "", line)
        out.append(f"{line} >{log} 2>&1 </dev/null &\nawait {number} {log}")
        helper = AWAIT
    return helper + "\n".join(out)


def with_template(source, target):
    """A copy of a GGUF file that has a chat template: one more key, as long as it takes to leave all else aligned."""
    data = source.read_bytes()
    magic, version, tensors, keys = struct.unpack_from("<4sIQQ", data)
    key = b"tokenizer.chat_template"
    text = b"{% for m in messages %}{{ m.content }}\n{% endfor %}"
    text += b" " * (-(8 + len(key) + 4 + 8 + len(text)) % 32)
    entry = struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(text)) + text
    target.write_bytes(struct.pack("<4sIQQ", magic, version, tensors, keys + 1) + entry + data[24:])


class Scene:
    """The folder of one page, and everything that it started."""

    def __init__(self, root, bin_folder, folder):
        self.folder, self.home = folder, folder / "home"
        self.logs = folder / "logs"
        work = self.work = folder / "work"
        for path in (work / "build/release", work / "models", self.home / "models", self.logs, folder / "tmp"):
            path.mkdir(parents=True)
        (work / "build/release/bin").symlink_to(bin_folder)
        for name in ("tests", "scripts", "packaging", "bench"):
            (work / name).symlink_to(root / name)
        (work / "models/builtin").symlink_to(root / "models/builtin")
        stories = root / "models/builtin/stories.gguf"
        for path in ("model.gguf", "m.gguf", "in.gguf"):
            (work / path).symlink_to(stories)
        (self.home / "models/model.gguf").symlink_to(stories)
        with_template(stories, work / "chat-model.gguf")
        story = "Once upon a time there was a little girl. She loved to play in the garden with her dog.\n"
        for name in ("story.txt", "t.txt"):
            (work / name).write_text(story * 40)
        (work / "prompts.jsonl").write_text("".join(json.dumps({"prompt": f"The number {n} is", "max_tokens": 4}) + "\n" for n in range(3)))
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("LLORCH_") and k not in ("http_proxy", "https_proxy")}
        self.env.update(PATH=f"{bin_folder}:{self.env['PATH']}", HOME=str(self.home), LLORCH_HOME=str(folder / "llorch"), TMPDIR=str(folder / "tmp"),
                        LC_ALL="C.UTF-8", COLUMNS="160")

    def run(self, command):
        script = "set -e -o pipefail\n" + in_background(command, self.logs)
        with open(self.folder / "out", "w+") as out:
            ran = subprocess.run(["bash", "-c", script], cwd=self.work, env=self.env, stdin=subprocess.DEVNULL, stdout=out,
                                 stderr=subprocess.STDOUT, timeout=PATIENCE_S)
            out.seek(0)
            return ran.returncode, out.read()

    def close(self):
        """Ends what is left, ours by its home alone."""
        entry = f"LLORCH_HOME={self.env['LLORCH_HOME']}"
        for sign in (signal.SIGTERM, signal.SIGKILL):
            left = [pid for pid in hosts.processes() if hosts.has_variable(pid, entry)]
            for pid in left:
                try:
                    os.kill(pid, sign)
                except OSError:
                    pass
            until = time.monotonic() + 5
            while time.monotonic() < until and any(hosts.has_variable(pid, entry) for pid in hosts.processes()):
                time.sleep(0.02)


def block_steps(block):
    return [(command, None) for command in spans_of(block.lines)] if block.kind == "spans" else steps_of(block.lines)


def check_mark(block):
    """None, or what is wrong before anything is run."""
    if block.kind is None:
        return "a block with no mark: put <!-- run --> or <!-- not run: WHY --> in front of it, or name its language in its fence (```text)"
    if not block.lines and block.kind != "prepare":
        return "a mark without a block behind it"
    if block.kind == "not run":
        return None if block.word else "not run, and no reason"
    if block.kind == "run" and block.word and not re.fullmatch(r"exit \d+", block.word):
        return f"a mark that nobody knows: run: {block.word}"
    for row in rows_left(block.lines) if block.kind == "spans" else ():
        return f"a row without a command that is run; put <!-- not run: WHY --> into it: {row}"
    return None if block_steps(block) else "nothing to run"


def check_block(scene, block):
    """None, or what is wrong."""
    problem = check_mark(block)
    if problem or block.kind == "not run":
        return problem
    code = int(block.word.split()[1]) if block.kind == "run" and block.word else 0
    steps = block_steps(block)
    for number, (command, expected) in enumerate(steps, 1):
        began = time.monotonic()
        try:
            ended, said = scene.run(command)
        except subprocess.TimeoutExpired:
            return f"took longer than {PATIENCE_S} s:\n{command}"
        if (took := time.monotonic() - began) > SLOW_S:
            print(f"{took:5.1f} s  {command.splitlines()[0][:100]}")
        wanted = code if number == len(steps) else 0
        if ended != wanted:
            return f"ended with {ended}, expected {wanted}:\n{command}\n--\n{said[-3000:]}"
        if expected is not None and not has_shape(expected, said):
            return f"printed something else than the page says:\n{command}\n-- found\n{said[-3000:]}\n-- in shape\n{shape(said)[-1500:]}\n-- expected\n{shape(expected)}"
    return None


def run_page(root, bin_folder, path, totals):
    blocks = list(blocks_of(path.read_text()))
    problems = []
    with tempfile.TemporaryDirectory(prefix="llorch-docs-") as folder:
        scene = Scene(root, bin_folder, pathlib.Path(folder))
        try:
            for block in blocks:
                problem = check_block(scene, block)
                if problem:
                    problems.append(f"{path.relative_to(root)}:{block.line}: {problem}")
                kind = {"run": "ran", "spans": "ran", "not run": "left"}.get(block.kind)
                if kind:
                    totals[kind] += 1
        finally:
            scene.close()
    return problems


def list_left(root, wanted):
    for path in wanted:
        for block in blocks_of(path.read_text()):
            print(f"{path.relative_to(root)}:{block.line}: {block.kind or 'NO MARK'}{': ' + block.word if block.word else ''}")


def check_marks(root, wanted):
    blocks = [(path, block) for path in wanted for block in blocks_of(path.read_text())]
    problems = [f"{path.relative_to(root)}:{block.line}: {problem}" for path, block in blocks if (problem := check_mark(block))]
    print("\n".join(problems) if problems else f"{len(blocks)} blocks on {len(wanted)} pages have their marks")
    raise SystemExit(1 if problems or not blocks else 0)


def ports_are_free():
    for port in sorted(set(PORTS.values())):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                print(f"skipped: no network of our own, and port {port} is in use", file=sys.stderr)
                return False
    return True


def main():
    words = [word for word in sys.argv[1:] if word not in ("--list", "--marks")]
    if len(words) < 2:
        raise SystemExit(__doc__)
    root, bin_folder = pathlib.Path(words[0]).resolve(), pathlib.Path(words[1]).resolve()
    wanted = [root / word for word in words[2:]] or pages(root)
    if "--list" in sys.argv:
        return list_left(root, wanted)
    if "--marks" in sys.argv:
        check_marks(root, wanted)
    if shutil.which("curl") is None:
        print("skipped: curl is not here", file=sys.stderr)
        raise SystemExit(SKIP)
    hosts.isolate()
    if not hosts.is_isolated() and not ports_are_free():
        raise SystemExit(SKIP)
    problems, totals = [], {"ran": 0, "left": 0}
    for path in wanted:
        began = time.monotonic()
        problems += run_page(root, bin_folder, path, totals)
        print(f"{time.monotonic() - began:5.1f} s  {path.relative_to(root)}", flush=True)
    print("\n".join(problems) if problems else f"{totals['ran']} blocks ran, {totals['left']} are not run and say why")
    nothing = totals["ran"] == 0 and not words[2:]  # of all pages: then the marks are not found
    raise SystemExit(1 if problems or nothing else 0)


if __name__ == "__main__":
    main()
