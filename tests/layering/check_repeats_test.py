#!/usr/bin/env python3
"""The search for repeats must find what stands twice, and nothing else."""
import pathlib
import tempfile
import unittest

import check_repeats

SIX = "".join(f"  total += weigh({number});\n" for number in range(6))
OVERRIDES = "".join(f"  Result<int> part_{number}(const Long& first,\n      int second) const override;\n" for number in range(6))


class CheckRepeats(unittest.TestCase):
    def check(self, files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in files.items():
                (root / name).parent.mkdir(exist_ok=True, parents=True)
                (root / name).write_text(text)
            return check_repeats.check(root)[0]

    def test_six_lines_in_two_files_are_named(self):
        problems = self.check({"src/a.cc": f"int a;\n{SIX}", "tests/b.cc": f"int b;\nint c;\n{SIX}int d;\n"})
        self.assertEqual(problems, ["tests/b.cc:3-8: the same lines as src/a.cc:2-7"])

    def test_twice_in_one_file(self):
        self.assertEqual(len(self.check({"src/a.cc": f"{SIX}int between;\n{SIX}"})), 1)

    def test_five_lines_are_not_enough(self):
        five = SIX.split("\n", 1)[1]
        self.assertEqual(self.check({"src/a.cc": f"int a;\n{five}int b;\n", "src/b.cc": five}), [])

    def test_indents_comments_and_blank_lines_hide_nothing(self):
        other = "".join(f"\n    // {number}\n      total  += weigh({number});\n      }}\n" for number in range(6))
        self.assertEqual(len(self.check({"src/a.cc": SIX, "bench/b.cc": other})), 1)

    def test_a_longer_run_is_one(self):
        self.assertEqual(len(self.check({"src/a.cc": SIX + "int a;\n" + SIX.replace("total", "sum"),
                                         "src/b.cc": SIX + "int a;\n" + SIX.replace("total", "sum")})), 1)

    def test_a_line_that_repeats_itself_is_no_run_with_itself(self):
        self.assertEqual(self.check({"src/a.cc": "step();\n" * 11}), [])
        self.assertEqual(len(self.check({"src/a.cc": "step();\n" * 12})), 1)

    def test_includes_do_not_count(self):
        includes = "".join(f'#include "base/{number}.h"\n' for number in range(9))
        self.assertEqual(self.check({"src/a.cc": includes, "src/b.cc": includes}), [])

    def test_declarations_that_override_do_not_count(self):
        self.assertEqual(self.check({"src/a.h": OVERRIDES, "src/b.h": OVERRIDES}), [])
        self.assertEqual(len(self.check({"src/a.h": OVERRIDES + SIX, "src/b.h": OVERRIDES + SIX})), 1)

    def test_scripts_count(self):
        lines = "".join(f"echo {number}\n# {number}\n" for number in range(6))
        self.assertEqual(len(self.check({"scripts/a.sh": lines, "scripts/b.sh": lines})), 1)


if __name__ == "__main__":
    unittest.main()
