"""Holds the guides (docs/adding_*.md) and docs/architecture.md to the tree: every file and every name of the code that
a guide mentions is there, every module of src/layers.txt has its row in architecture.md, its headers and a README, every
architecture of src/model/architecture.cc its row and its page in docs/models.

  check_guides.py SOURCE_DIR
"""
import pathlib
import re
import subprocess
import sys

# What a guide says of files that are not there yet, of commands and of addresses.
PLACEHOLDER = re.compile(r"NAME|^[-/.]|[{ *]|\.json$|^llorch")
FILE = re.compile(r"\.(h|cc|cu|cuh|py|md|txt)$|/")
BELOW = ("", "src/", "src/compute/", "src/model/", "docs/")


def mentioned(text):
    return sorted(set(re.findall(r"`([^`\n]+)`", text)))


def is_file(root, name):
    if any((root / below / (name + end)).exists() for below in BELOW for end in ("", ".h", ".cc")):
        return True
    return any(root.glob(f"src/**/{name}"))


def is_name(root, names, text):
    """A word of the code, a member of something, or a test program by its source."""
    word = re.split(r"::|\.", text.split("(")[0])[-1]
    return word in names or any(root.glob(f"src/*/{word}.cc"))


def check_guides(root, names):
    for guide in sorted(root.glob("docs/adding_*.md")):
        for text in mentioned(guide.read_text()):
            if PLACEHOLDER.search(text):
                continue
            there = is_file(root, text) if FILE.search(text) else is_name(root, names, text)
            if not there:
                yield f"{guide.name}: {text} is not in the tree"


def check_architecture(root):
    modules = set(re.findall(r"^(\w+):", (root / "src/layers.txt").read_text(), re.M))
    rows = dict(re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|", (root / "docs/architecture.md").read_text(), re.M))
    for module in sorted(modules ^ set(rows)):
        yield f"architecture.md: {module} is in its table or in src/layers.txt, not in both"
    for module, headers in sorted(rows.items()):
        for header in mentioned(headers):
            if not (root / "src" / module / header).exists():
                yield f"architecture.md: {module} has no {header}"
        if not (root / "src" / module / "README.md").exists():
            yield f"src/{module} has no README.md"


def check_families(root):
    table = re.search(r"std::array table = \{(.*?)\};", (root / "src/model/architecture.cc").read_text(), re.S)
    known = set(re.findall(r'decoder\("(\w+)"|(\w+)_architecture\(\)', table[1] if table else ""))
    known = {one or other for one, other in known}
    if len(known) < 2:
        yield "src/model/architecture.cc: its table of architectures was not found"
    told = set()
    for families, page in re.findall(r"^\| (`[^|]*`) \|.*\| \[[^]]*\]\(([^)]*)\) \|$", (root / "docs/models/README.md").read_text(), re.M):
        told |= set(mentioned(families))
        if not (root / "docs/models" / page).exists():
            yield f"docs/models/README.md: {page} is not there"
    for family in sorted(known ^ told):
        yield f"docs/models/README.md: {family} is in its table or in src/model/architecture.cc, not in both"


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    root = pathlib.Path(sys.argv[1])
    words = subprocess.run(
        ["grep", "-rhoE", "--include=*.h", "--include=*.cc", "--include=*.cu", "--include=*.cuh", "--include=*.py",
         "[A-Za-z_][A-Za-z0-9_]*", "src", "tests", "bench"], cwd=root, capture_output=True, text=True, check=True)
    problems = [*check_guides(root, set(words.stdout.split())), *check_architecture(root), *check_families(root)]
    print("\n".join(problems) if problems else "the guides name what is there")
    raise SystemExit(1 if problems else 0)


if __name__ == "__main__":
    main()
