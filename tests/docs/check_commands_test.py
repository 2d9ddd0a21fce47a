#!/usr/bin/env python3
"""That check_commands.py can fail: a table made here, and documents with mistakes in them."""
import unittest

import check_commands as checker

TABLE = {"name": "llorch", "options": [{"names": ["-h", "--help"], "value": False}], "commands": [
    {"name": "run", "options": [{"names": ["-m", "--model"], "value": True}, {"names": ["--raw"], "value": False}], "commands": []},
    {"name": "jobs", "options": [], "commands": [{"name": "list", "options": [{"names": ["--json"], "value": False}], "commands": []}]}]}


class Fake:
    def of(self, program):
        return TABLE if program in checker.TABLES else {"--model", "--port"}


def problems(text):
    return [p for p in checker.check_file(Fake(), "x.md", text) if isinstance(p, str)]


class Check(unittest.TestCase):
    def test_good_commands_pass(self):
        text = "`llorch run -m a.gguf --raw \"Hello --there\"` and `llorch jobs list --json | jq .`\n\n    llorch jobs list   # a comment --odd\n"
        self.assertEqual(problems(text), [])
        self.assertEqual([n for n in checker.check_file(Fake(), "x.md", text) if isinstance(n, int)], [3])

    def test_unknown_commands_and_flags_are_found(self):
        self.assertIn("no command rnu", problems("`llorch rnu x`")[0])
        self.assertIn("jobs has no command show", problems("    llorch jobs show\n")[0])
        self.assertIn("run has no flag --modle", problems("```\nllorch run --modle x\n```")[0])
        self.assertIn("no flag --prt", problems("`llorch-cpud --model x --prt 1`")[0])
        self.assertIn("x.md:3", problems("a\n\n`llorch jobs list --odd`")[0])

    def test_what_is_not_ours_is_left_alone(self):
        self.assertEqual(problems("`ollama run x --odd`, `make llorch`, `llorch_command.h`, `src/llorch/x`"), [])
        self.assertEqual(problems("    worker ─► keeper (llorch keep RECORD)"), [])

    def test_words_of_a_value_are_no_commands(self):
        self.assertEqual(problems("`llorch run -m jobs list`"), [])
        self.assertEqual(problems("`llorch jobs … --host x`"), [])
        self.assertEqual(problems("`llorch COMMAND --help`"), [])

    def test_the_second_command_of_a_line_counts(self):
        self.assertIn("no command dwon", problems("`llorch jobs list && llorch dwon`")[0])


if __name__ == "__main__":
    unittest.main()
