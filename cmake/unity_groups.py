#!/usr/bin/env python3
"""Which sources of a target may be compiled as one: unity_groups.py MOST FOLDER TARGET PREFIX SOURCE…

Run in the sources' folder, which the compiler knows as PREFIX. Writes files into FOLDER that include up to MOST sources each, and prints what
is to be compiled in the sources' place: those files, and the sources that stay alone. A source that has a name for itself, as in its
anonymous namespaces, never meets one that speaks that word, so that every word means what it means alone. The files name sources as
"PREFIX/source.cc", so that a compiler's cache knows them again in another checkout.
"""
import pathlib
import re
import sys

# Sources that are compiled several times over, or that bring a library's own sources or macros along.
ALONE = re.compile(r"foreach_target\.h|impl/src\.hpp|/src\.hpp>|^#define ", re.MULTILINE)
# What begins at the first column is at namespace scope: clang-format indents everything else.
TYPE = re.compile(r"^(?:template <.*> *)?(?:struct|class|union|enum(?: class)?) +(?:\w+\(\w+\) +)?(\w+)")
ALIAS = re.compile(r"^(?:using (\w+) =|namespace (\w+) =)")
NAME = re.compile(r"(?<![\w:>.])(\w+)(?=\s*(?:\(|=|\{|;|\[))")
# gtest makes a name of its own of each test's two words.
NO_NAME = re.compile(r"^(?:#|//|TEST|INSTANTIATE_TEST|\}|namespace\b(?! \w+ =)|using namespace|using [\w:]+;|$|\s)")
WORD = re.compile(r"\w+")


def names_of(text):
    """Name → what it is, of everything that only this source can see: in its anonymous namespaces, static, or another name for something."""
    found = {}
    is_anonymous = False
    for line in text.splitlines():
        if line == "namespace {":
            is_anonymous = True
        elif line == "}  // namespace":
            is_anonymous = False
        if NO_NAME.match(line):
            continue
        if match := ALIAS.match(line):
            found[match[1] or match[2]] = line
        elif not is_anonymous and not line.startswith(("static ", "constexpr ", "const ")):
            continue
        elif match := TYPE.match(line):
            found[match[1]] = None
        elif match := NAME.search(line):
            found[match[1]] = None
    return found


class Source:
    def __init__(self, path):
        self.path = path
        text = pathlib.Path(path).read_text(encoding="utf-8")
        self.stays_alone = bool(ALONE.search(text))
        self.names = names_of(text)
        self.words = set(WORD.findall(text))

    def clashes(self, other):
        """Whether one would see a name of the other: it would be another thing, or one of two."""
        return self.sees(other) or other.sees(self)

    def sees(self, other):
        return any(name in self.words and (said is None or self.names.get(name) != said) for name, said in other.names.items())


def write_if_other(file, text):
    if not file.exists() or file.read_text() != text:
        file.write_text(text)


def main(most, folder, target, prefix, paths):
    groups = []
    for source in map(Source, paths):
        if source.stays_alone:
            print(source.path)
            continue
        fitting = (group for group in groups if len(group) < most and not any(map(source.clashes, group)))
        group = next(fitting, None)
        if group is None:
            groups.append([source])
        else:
            group.append(source)
    folder.mkdir(parents=True, exist_ok=True)
    for number, group in enumerate(groups):
        if len(group) == 1:
            print(group[0].path)
            continue
        file = folder / f"{target}_{number}.cc"
        write_if_other(file, "".join(f'#include "{prefix}/{source.path}"\n' for source in group))
        print(file)


main(int(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5:])
