#!/usr/bin/env python3
"""Holds the commands in the documents against the real table of commands. run_documents.py runs them.

A command is a line of a code block, or a span of code in a line of text, that begins with one of our programs. Its words must name a
command that there is, and its flags must be that command's. `…` ends what is looked at.
Usage: check_commands.py ROOT BIN
"""
import json
import pathlib
import re
import shlex
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import checked

TABLES = ("llorch", "llorch-pool")  # say their table themselves
OTHERS = ("llorch-cpud", "orchestratord", "pool-managerd", "llorch-bench", "llorch-checkpoints", "llorch-convert", "llorch-inspect",
          "llorch-perplexity", "llorch-tokenize")
PROGRAM = re.compile(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:\S*/)?(" + "|".join(sorted(TABLES + OTHERS, key=len, reverse=True)) + r")(?= |$)")
DRAWING = re.compile("[─►◄│├└]")  # boxes and arrows: what programs do among themselves


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


def pages(root):
    """Every document, by pages.txt. Not among them: CHANGELOG.md and docs/decisions, which tell what was, not what to type."""
    patterns = (pathlib.Path(__file__).parent / "pages.txt").read_text().split()
    return [path for pattern in patterns for path in sorted(root.glob(pattern))]


def main():
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    root, bin_folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    tables = Tables(bin_folder)
    problems, count = [], 0
    for path in pages(root):
        for found in check_file(tables, path.relative_to(root), path.read_text()):
            if isinstance(found, int):
                count += found
            else:
                problems.append(found)
    checked.end(problems, count, "commands", "commands are as the programs have them")


if __name__ == "__main__":
    main()
