#!/usr/bin/env python3
"""The check of locks and threads must fail for each of its reasons, and only then; and so must clang."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import check_threads

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77

COUNTER = """
#include "base/mutex.h"
class Counter {
 public:
  void add() {
    %s
    ++count_;
  }

 private:
  llorch::base::Mutex mutex_;
  int count_ LLORCH_GUARDED_BY(mutex_) = 0;
};
"""


class CheckThreads(unittest.TestCase):
    def check(self, name, text, document=""):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "docs").mkdir()
            (root / "docs/threads_and_locks.md").write_text(document)
            (root / name).parent.mkdir(parents=True)
            (root / name).write_text(text)
            return check_threads.check(root)[0]

    def test_standard_locks_are_named(self):
        for text in ("std::mutex m;", "const std::lock_guard lock(m);", "std::condition_variable_any c;",
                     "#include <mutex>", "std::unique_lock lock(m);", "std::shared_mutex m;"):
            problems = self.check("src/http/a.cc", "\n" + text)
            self.assertEqual(len(problems), 1, text)
            self.assertIn("src/http/a.cc:2", problems[0])
            self.assertEqual(len(self.check("tests/pool/a.cc", text)), 1, text)

    def test_the_home_of_the_mutex_and_comments_may(self):
        self.assertEqual(self.check("src/base/mutex.h", "std::mutex m;"), [])
        self.assertEqual(self.check("src/http/a.cc", "// like std::mutex\n"), [])

    def test_threads_without_a_top_frame(self):
        for text in ("std::thread t([] {});", "std::jthread t([] {});", "t = std::jthread(f);", "std::thread t;",
                     "auto f = std::async(std::launch::async, g);"):
            self.assertEqual(len(self.check("src/http/a.cc", text)), 1, text)
            self.assertEqual(self.check("src/http/a_test.cc", text), [], text)
            self.assertEqual(self.check("src/http/a_fixture.h", text), [], text)
        self.assertEqual(self.check("src/http/a.h", "std::jthread t;\nstd::thread::id i;\n"), [])

    def test_the_document_knows_every_one(self):
        for text in ("base::Mutex mutex_;", "base::OwnerLoop loop_;", "t_ = base::start_thread(n, f);",
                     "base::Channel<Job> jobs_;", "base::Channel<Result<std::string>> pieces_{3};"):
            self.assertEqual(len(self.check("src/http/a.cc", text)), 1, text)
            self.assertEqual(self.check("src/http/a.cc", text, "| `http/a` |"), [], text)

    def test_the_document_names_what_is_there(self):
        problems = self.check("src/http/a.cc", "", "| `http/a`, `http/gone` |")
        self.assertEqual(problems, ["docs/threads_and_locks.md: there is no src/http/gone.h or .cc"])

    def test_clang_refuses_what_is_not_guarded(self):
        clang = shutil.which("clang++")
        if clang is None:
            self.skipTest("clang++ is not installed; scripts/setup.sh clang installs it")
        for line, is_right in (("const llorch::base::MutexLock lock(mutex_);", True), ("", False)):
            done = subprocess.run(
                [clang, "-std=c++20", "-fsyntax-only", "-Wthread-safety", "-Werror", "-I", ROOT / "src", "-xc++", "-"],
                input=COUNTER % line, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode == 0, is_right, done.stderr)
            self.assertEqual("requires holding mutex" in done.stderr, not is_right, done.stderr)


if __name__ == "__main__":
    program = unittest.main(exit=False)
    for _, reason in program.result.skipped:
        print(f"SKIPPED: {reason}")
    if not program.result.wasSuccessful():
        sys.exit(1)
    sys.exit(SKIPPED if program.result.skipped else 0)
