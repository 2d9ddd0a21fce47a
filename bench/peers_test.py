#!/usr/bin/env python3
"""peers.py and peers_page.py on programs that print what was written for them."""
import contextlib
import io
import json
import os
import stat
import sys
import tempfile
import unittest

import peers
import peers_page

OURS = {"models": [{"tests": [{"test": "pp8", "tokens_per_second": [90, 110], "limits": [200, 200]},
                              {"test": "tg4 @ 16", "tokens_per_second": [30, 30], "limits": [40, 40]}]}]}
PEER = [{"n_prompt": 8, "n_gen": 0, "avg_ts": 50, "samples_ts": [50, 50]}, {"n_prompt": 0, "n_gen": 4, "avg_ts": 20}]


class Peers(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.model = self.path("tiny.gguf")
        with open(self.model, "wb") as file:
            file.write(b"GGUF")
        self.log = self.path("log")

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def program(self, name, output, code=0):
        path = self.path(name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\necho {name} \"$@\" >> '{self.log}'\necho oops >&2\ncat <<'END'\n{output}\nEND\nexit {code}\n")
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
        return path

    def run_peers(self, *arguments):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            peers.main(["-m", self.model, "-p", "8", "-n", "4", "-t", "2", "--rounds", "2", *arguments])
        return out.getvalue()

    def test_takes_turns_and_tells_ratios(self):
        ours = self.program("ours", json.dumps(OURS))
        other = self.program("other", json.dumps(PEER))
        result = self.path("speeds.json")
        told = self.run_peers("--ours", ours, "--peer", f"llama.cpp={other}", "-d", "16", "--note", "made so", "-o", result)
        self.assertIn("tiny.gguf  pp8: 100.0 tokens/s, 50 % of the limit, 2.00 x llama.cpp", told)
        self.assertIn("tiny.gguf  tg4: 30.0 tokens/s, 75 % of the limit, 1.50 x llama.cpp", told)
        with open(self.log, encoding="utf-8") as file:
            lines = file.read().splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["ours", "other", "ours", "other"])
        self.assertTrue(all(f"-m {self.model} -p 8 -n 4 -r 2 -o json -d 16 -t 2" in line for line in lines))
        with open(result, encoding="utf-8") as file:
            report = json.load(file)
        self.assertEqual(report["results"][0]["speeds"]["llorch"]["pp8"], [90, 110, 90, 110])

        peers_page.main([result, self.folder.name])
        with open(self.path("PERFORMANCE_BENCHMARKS.md"), encoding="utf-8") as file:
            text = file.read()
        self.assertIn("| tiny.gguf | pp8 | 100.0 | 50 % | 50.0 | 2.00 |", text)
        self.assertIn("\nmade so\n", text)
        with open(self.path("performance_benchmarks.svg"), encoding="utf-8") as file:
            self.assertIn("tiny.gguf tg4", file.read())

    def test_says_what_failed(self):
        ours = self.program("ours", "", 3)
        with self.assertRaisesRegex(SystemExit, "ended with 3: oops"):
            self.run_peers("--ours", ours)
        with self.assertRaisesRegex(SystemExit, "printed no JSON"):
            self.run_peers("--ours", self.program("silent", "words"))
        with self.assertRaisesRegex(SystemExit, "No such file"):
            self.run_peers("--ours", self.path("nobody"))
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as said:
            self.run_peers("--ours", ours, "--peer", "llama.cpp")
        self.assertIn("expected NAME=PATH", said.getvalue())


if __name__ == "__main__":
    sys.exit(unittest.main())
