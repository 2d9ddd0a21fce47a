"""cmake/unity_groups.py: sources that name different things alike never meet, and no source is lost.

    unity_groups_test.py SOURCE_DIR
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(sys.argv.pop(1))


class UnityGroups(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, inside, outside=""):
        (self.folder / name).write_text(f"#include <string>\nnamespace x {{\nnamespace {{\n{inside}\n}}  // namespace\n{outside}\n}}  // namespace x\n")

    def groups(self, most=12):
        """The sources that are compiled together, each group sorted."""
        sources = sorted(path.name for path in self.folder.glob("*.cc"))
        said = subprocess.run([sys.executable, SOURCE / "cmake/unity_groups.py", str(most), self.folder / "unity", "some_target", "mod", *sources],
                              cwd=self.folder, capture_output=True, text=True, check=True).stdout.split()
        found = []
        for line in said:
            path = pathlib.Path(line)
            found.append(re.findall(r'"mod/(.*)"', path.read_text()) if path.is_absolute() else [line])
        self.assertEqual(sorted(sum(found, [])), sources, "each source is compiled once")
        return sorted(found)

    def test_strangers_are_compiled_together(self):
        self.write("a.cc", "constexpr int kOne = 1;", "int one() { return kOne; }")
        self.write("b.cc", "constexpr int kTwo = 2;", "int two() { return kTwo; }")
        self.assertEqual(self.groups(), [["a.cc", "b.cc"]])

    def test_one_name_for_two_things_keeps_sources_apart(self):
        for name, inside in (("constants", "constexpr int kMost = 1;"), ("braces", "constexpr milliseconds kLook{20};"), ("functions", "const Logger& logger() {"),
                             ("types", "struct Entry {"), ("scoped", "enum class Kind { A };"), ("late", "std::vector<std::string>\nnames_of(int x) {"),
                             ("arrays", "constexpr char kText[] = \"a\";"), ("templates", "template <typename T>\nT twice(T x) {")):
            with self.subTest(name):
                self.write("a.cc", inside)
                self.write("b.cc", inside)
                self.assertEqual(self.groups(), [["a.cc"], ["b.cc"]])

    def test_who_speaks_of_anothers_own_name_stays_apart(self):
        self.write("a.cc", "int index_at(int x) { return x; }")
        self.write("b.cc", "", "int b() { return index_at(1); }  // of a header")
        self.assertEqual(self.groups(), [["a.cc"], ["b.cc"]])

    def test_what_all_may_see_keeps_nobody_apart(self):
        self.write("a.cc", "", "int open(int x) {\n  return x;\n}")
        self.write("b.cc", "", "int twice(int x) {\n  return open(x) + open(x);\n}")
        self.assertEqual(self.groups(), [["a.cc", "b.cc"]])

    def test_the_same_alias_may_be_said_twice_but_not_another(self):
        self.write("a.cc", "using Clock = std::chrono::steady_clock;\nnamespace fs = std::filesystem;")
        self.write("b.cc", "using Clock = std::chrono::steady_clock;\nnamespace fs = std::filesystem;")
        self.assertEqual(self.groups(), [["a.cc", "b.cc"]])
        self.write("b.cc", "using Clock = std::chrono::system_clock;")
        self.assertEqual(self.groups(), [["a.cc"], ["b.cc"]])

    def test_macros_and_sources_for_many_targets_stay_alone(self):
        self.write("a.cc", "")
        (self.folder / "b.cc").write_text("#define SURPRISE 1\n")
        (self.folder / "c.cc").write_text("#include <hwy/foreach_target.h>\n")
        (self.folder / "d.cc").write_text("#include <boost/json/src.hpp>\n")
        self.assertEqual(self.groups(), [["a.cc"], ["b.cc"], ["c.cc"], ["d.cc"]])

    def test_a_group_is_bounded(self):
        for number in range(5):
            self.write(f"{number}.cc", f"constexpr int k{number} = 0;")
        self.assertEqual(self.groups(most=2), [["0.cc", "1.cc"], ["2.cc", "3.cc"], ["4.cc"]])


unittest.main()
