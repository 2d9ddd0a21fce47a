#!/usr/bin/env python3
"""Checks every #include of src/ against src/layers.txt, and the table itself.

Fails when a module names a module its line does not allow, when a module has no line, when the table has a cycle,
when a library that belongs in one place (CUDA, OpenSSL, SQLite, Boost.Asio …) is included elsewhere, when the port of a
daemon is defined anywhere but in contract/default_ports.h, when a file has more than 500 lines, and when one spells the
name of a kind of backend ("cuda") that contract/backend_kind.h has.
Usage: check_layers.py SRC
"""
import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import checked

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')
SOURCE_SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
LINES_MAX = 500

# A constant with the number of a daemon's port, or an address with it. Comments and texts of help may speak of them.
PORT = re.compile(r'^[^/]*=\s*("http://[^"]*:)?(8080|9200)\b["; ]')
PORTS_PLACE = "contract/default_ports.h"

# "cuda" and "cuda:0" in code. The devices of compute/ have those names too; the pool has a folder of that name.
KIND = re.compile(r'"cuda[":]')
KIND_PLACES = ("compute/", "contract/backend_kind.", "pool/worker_rules.cc")

# Third-party headers and the only places that may name them, as path prefixes under src/.
CONFINED = {
    "cuda": ["compute/cuda/"],
    "cublas": ["compute/cuda/"],
    "openssl/": ["http/tls", "api/local_ca", "base/digest"],
    "sqlite3.h": ["job_store/sqlite"],
    "boost/asio": ["http/"],
    "boost/beast": ["http/"],
    "boost/json": ["base/json"],
    "seccomp.h": ["base/confinement"],
    "spdlog/": ["base/log"],
    "hwy/": ["compute/cpu/"],
    "CLI/": ["tools/", "apps/", "cli/", "api/daemon_options", "api/tls_door", "worker/run", "pool/run", "orchestrator/run"],
    "curl/": ["fetch/"],
    "toml++/": ["base/settings"],
    "histedit.h": ["cli/line_editor"],
    "pcre2.h": ["tokenizer/regex"],
    "utf8proc.h": ["template/text", "tokenizer/normalize"],
}


def read_table(path):
    table = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        module, colon, allowed = line.partition(":")
        if not colon or module in table:
            raise SystemExit(f"{path}:{number}: expected one 'module: names' line per module, found '{line}'")
        table[module] = allowed.split()
    return table


def find_cycle(table):
    """Returns the modules of a cycle, or None."""
    done, on_path = set(), []

    def visit(module):
        if module in on_path:
            return on_path[on_path.index(module):] + [module]
        if module in done:
            return None
        on_path.append(module)
        for name in table.get(module, []):
            cycle = visit(name.split("/")[0])
            if cycle:
                return cycle
        on_path.pop()
        done.add(module)
        return None

    for module in table:
        cycle = visit(module)
        if cycle:
            return cycle
    return None


def check_file(path, relative, table, modules):
    module = relative.parts[0]
    allowed = table[module]
    lines = path.read_text().splitlines()
    if len(lines) > LINES_MAX:
        yield f"{path}: {len(lines)} lines, at most {LINES_MAX}: it has a second responsibility, which wants a file of its own"
    may_name_kinds = str(relative).startswith(KIND_PLACES) or relative.stem.endswith("_test")
    for number, line in enumerate(lines, 1):
        if PORT.match(line) and str(relative) != PORTS_PLACE and not path.stem.endswith("_test"):
            yield f"{path}:{number}: a daemon's port; {PORTS_PLACE} has them"
        if not may_name_kinds and KIND.search(line.split("//")[0]):
            yield f"{path}:{number}: a kind of backend is named by contract/backend_kind.h: kCuda, device_name()"
        match = INCLUDE.match(line)
        if not match:
            continue
        header = match.group(2)
        for prefix, places in CONFINED.items():
            if header.startswith(prefix) and not any(str(relative).startswith(place) for place in places):
                yield f"{path}:{number}: <{header}> may be included only under {', '.join(places)}"
        target = header.split("/")[0]
        if match.group(1) != '"' or "/" not in header or target == module or target not in modules | set(table):
            continue
        if target not in allowed and header not in allowed:
            yield (f"{path}:{number}: {module} may not include \"{header}\"; "
                   f"src/layers.txt allows it: {' '.join(allowed) or '(nothing)'}")


def check(src):
    table = read_table(src / "layers.txt")
    cycle = find_cycle(table)
    if cycle:
        return [f"src/layers.txt: cycle {' -> '.join(cycle)}"], 0
    problems, files = [], 0
    modules = {entry.name for entry in src.iterdir() if entry.is_dir()}
    for module in sorted(modules - set(table)):
        problems.append(f"src/{module}: the module has no line in src/layers.txt")
    for path in sorted(src.rglob("*")):
        relative = path.relative_to(src)
        if path.suffix in SOURCE_SUFFIXES and relative.parts[0] in table:
            files += 1
            problems += check_file(path, relative, table, modules)
    return problems, files


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    checked.end(*check(pathlib.Path(sys.argv[1])), "source files", "files obey src/layers.txt")


if __name__ == "__main__":
    main()
