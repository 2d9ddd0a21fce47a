#!/usr/bin/env python3
"""Compares our chat templates with Python's jinja2, set up as Hugging Face's transformers does it.

    compare_templates.py fixture OUT.jsonl            write the committed fixture from own_templates.py
    compare_templates.py compare PROGRAM TEMPLATES    render every template below TEMPLATES over many
                                                      conversations with both and report differences

PROGRAM is a command that renders: PROGRAM --template FILE --batch --now DATE < lines > lines.
Needs jinja2 3.1 (Debian: python3-jinja2).
"""
import datetime
import json
import pathlib
import subprocess
import sys
import tempfile

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2024, 7, 26)


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: NOW.strftime(format)
    return env


def render(env, source, context):
    try:
        return {"output": env.from_string(source).render(**context)}
    except Exception as error:  # whatever a template can do wrong
        return {"error": f"{type(error).__name__}: {error}"}


def write_fixture(path):
    from own_templates import CONTEXTS, TEMPLATES

    env = environment()
    with open(path, "w", encoding="utf-8") as out:
        out.write(json.dumps({"contexts": CONTEXTS}, ensure_ascii=False) + "\n")
        for name, source, context in TEMPLATES:
            row = {"name": name, "template": source, "context": context}
            row.update(render(env, source, CONTEXTS[context]))
            out.write(json.dumps(row, ensure_ascii=False) + "\n")


def load_template(path):
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".json":
        return text
    found = json.loads(text)["chat_template"]
    return found if isinstance(found, str) else next(t["template"] for t in found if t["name"] == "default")


def compare(program, folder):
    from conversations import conversations

    env = environment()
    lines = [json.dumps(c, ensure_ascii=False) for c in conversations()]
    differences = renders = errors = 0
    for path in sorted(pathlib.Path(folder).rglob("*")):
        if path.suffix not in (".jinja", ".json"):
            continue
        source = load_template(path)
        with tempfile.NamedTemporaryFile("w", suffix=".jinja", encoding="utf-8", newline="") as file:
            file.write(source)
            file.flush()
            command = [*program.split(), "--template", file.name, "--batch", "--now", NOW.strftime("%Y-%m-%d")]
            done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
        answers = done.stdout.split("\n")[:-1]
        assert len(answers) == len(lines), f"{path}: {len(answers)} answers for {len(lines)} lines"
        for line, answer in zip(lines, answers):
            theirs, ours = render(env, source, json.loads(line)), json.loads(answer)
            renders += 1
            errors += "error" in theirs
            same = theirs == ours if "output" in theirs else "error" in ours
            if same and theirs.get("error", "").startswith("TemplateError: "):
                same = ours["error"] == theirs["error"][len("TemplateError: "):]
            if not same:
                differences += 1
                print(f"{path}\n  on {line[:300]}\n  theirs {theirs!r}\n  ours   {ours!r}\n")
    print(f"{renders} renders ({errors} of them errors in both), {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    if len(sys.argv) == 3 and sys.argv[1] == "fixture":
        write_fixture(sys.argv[2])
    elif len(sys.argv) == 4 and sys.argv[1] == "compare":
        sys.exit(compare(sys.argv[2], sys.argv[3]))
    else:
        sys.exit(__doc__)
