#!/usr/bin/env python3
"""Holds the commands in the documents against the real table of commands, and runs those that are marked.

A command is a line of a code block, or a span of code in a line of text, that begins with one of our programs. Its words must name a
command that there is, and its flags must be that command's. `…` ends what is looked at. A fenced block behind `<!-- run -->` is run by
sh in a home of its own, and must end with 0.
Usage: check_commands.py ROOT BIN [--no-run]
"""
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

TABLES = ("llorch", "llorch-pool")  # say their table themselves
OTHERS = ("llorch-cpud", "orchestratord", "pool-managerd", "llorch-bench", "llorch-checkpoints", "llorch-convert", "llorch-inspect",
          "llorch-perplexity", "llorch-tokenize")
PROGRAM = re.compile(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:\S*/)?(" + "|".join(sorted(TABLES + OTHERS, key=len, reverse=True)) + r")(?= |$)")
DRAWING = re.compile("[─►◄│├└]")  # boxes and arrows: what programs do among themselves
RUN_MARK = "<!-- run -->"


def spans(text):
    """(line number, command as written) of every code block line and span of code."""
    fenced = None
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if DRAWING.search(line):
            continue
        if stripped.startswith("```"):
            fenced = None if fenced is not None else stripped[3:]
            continue
        if fenced is not None or line.startswith("    "):
            yield number, stripped
        else:
            for code in re.findall(r"`([^`]+)`", line):
                yield number, code.replace("\\|", "|")


def simple_commands(code):
    """The commands of a line, without what stands behind pipes and comments."""
    code = code.split("…")[0]
    try:
        lexer = shlex.shlex(code, posix=True, punctuation_chars="|;&<>()")
        lexer.whitespace_split = True
        lexer.commenters = "#"
        words = list(lexer)
    except ValueError:
        return
    command = []
    for word in words + [";"]:
        if word and set(word) <= set("|;&<>()"):
            if command:
                yield command
            command = []
        else:
            command.append(word)


class Tables:
    def __init__(self, bin_folder):
        self.bin = bin_folder
        self.known = {}

    def of(self, program):
        if program not in self.known:
            if program in TABLES:
                said = subprocess.run([self.bin / program, "manual", "--json"], capture_output=True, text=True, check=True).stdout
                self.known[program] = json.loads(said)
            else:
                said = subprocess.run([self.bin / program, "--help"], capture_output=True, text=True, check=True).stdout
                self.known[program] = set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", said))
        return self.known[program]


def check_table(table, words):
    """None, or what is wrong with the words behind the program's name."""
    at, options = table, {}

    def learn(command):
        for option in command["options"]:
            for name in option["names"]:
                options[name] = option["value"]

    learn(at)
    path, skip, is_argument = [], False, False
    for word in words:
        if skip:
            skip = False
        elif word == "--":
            return None
        elif re.match(r"^--?[A-Za-z]", word):
            name = word.split("=")[0]
            if name not in options:
                return f"{' '.join(path) or 'it'} has no flag {name}"
            skip = options[name] and "=" not in word
        elif at["commands"] and not is_argument:
            below = [c for c in at["commands"] if c["name"] == word]
            if not below:
                if re.fullmatch(r"[A-Z][A-Z0-9_]*", word):  # COMMAND, in text about all of them
                    return None
                return f"{' '.join(path) or 'it'} has no command {word}"
            at = below[0]
            learn(at)
            path.append(word)
        else:
            is_argument = True
    return None


def check_command(tables, program, words):
    if program == "llorch" and words[:1] == ["pool"]:  # the whole of llorch-pool, and --host
        words, program = [w for w in words[1:]], "llorch-pool"
        while "--host" in words:
            at = words.index("--host")
            del words[at:at + 2]
    known = tables.of(program)
    if program in TABLES:
        return check_table(known, words)
    for word in words:
        name = word.split("=")[0]
        if re.match(r"^--?[A-Za-z]", word) and name not in known:
            return f"it has no flag {name}"
    return None


def check_file(tables, path, text):
    count = 0
    for number, code in spans(text):
        for words in simple_commands(code):
            line = " ".join(words)
            match = PROGRAM.match(line)
            if not match:
                continue
            while words and not PROGRAM.match(words[0]):
                words = words[1:]
            count += 1
            problem = check_command(tables, match.group(1), words[1:])
            if problem:
                yield f"{path}:{number}: `{code.strip()}`: {problem}"
    yield count


def blocks_to_run(text):
    for part in text.split(RUN_MARK)[1:]:
        match = re.match(r"\s*```\w*\n(.*?)\n```", part, re.S)
        if not match:
            yield None
        else:
            yield match.group(1)


def run_blocks(path, text, bin_folder):
    for block in blocks_to_run(text):
        if block is None:
            yield f"{path}: there is no fenced block behind {RUN_MARK}"
            continue
        with tempfile.TemporaryDirectory() as home:
            env = {k: v for k, v in os.environ.items() if not k.startswith("LLORCH_")}
            env.update(PATH=f"{bin_folder}:{env['PATH']}", LLORCH_HOME=home)
            ran = subprocess.run(["sh", "-e", "-c", block], cwd=home, env=env, stdin=subprocess.DEVNULL, capture_output=True,
                                 text=True, timeout=240)
            if ran.returncode != 0:
                yield f"{path}: a block that is to be run ended with {ran.returncode}:\n{block}\n--\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}"


def main():
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    root, bin_folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    tables = Tables(bin_folder)
    problems, count, blocks = [], 0, 0
    for path in [root / "README.md", *sorted((root / "docs").glob("*.md")), *sorted((root / "packaging").glob("*.md"))]:
        text = path.read_text()
        relative = path.relative_to(root)
        for found in check_file(tables, relative, text):
            if isinstance(found, int):
                count += found
            else:
                problems.append(found)
        if "--no-run" not in sys.argv:
            blocks += text.count(RUN_MARK)
            problems += run_blocks(relative, text, bin_folder)
    print("\n".join(problems) if problems else f"{count} commands are as the programs have them, {blocks} blocks ran")
    if count == 0:
        raise SystemExit("no commands found")
    raise SystemExit(1 if problems else 0)


if __name__ == "__main__":
    main()
