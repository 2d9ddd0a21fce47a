#!/usr/bin/env python3
"""That run_documents.py finds what it should run, and fails where a page is wrong."""
import contextlib
import io
import pathlib
import tempfile
import unittest

import run_documents as runner

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def kinds(text):
    return [(block.kind, block.word, block.lines) for block in runner.blocks_of(text)]


class Blocks(unittest.TestCase):
    def test_marked_blocks_of_both_kinds(self):
        self.assertEqual(kinds("<!-- run -->\n```sh\nllorch status\n```\n"), [("run", None, ["llorch status"])])
        self.assertEqual(kinds("a\n\n<!-- run: exit 1 -->\n\n    llorch status\n\n    llorch top\n\nb\n"),
                         [("run", "exit 1", ["llorch status", "", "llorch top"])])
        self.assertEqual(kinds("<!-- not run: a card -->\n\n    make cuda\n"), [("not run", "a card", ["make cuda"])])

    def test_blocks_without_a_mark_are_found_and_what_is_no_command_left_alone(self):
        self.assertEqual(kinds("x\n\n    llorch status\n")[0][0], None)
        self.assertEqual(kinds("```\n$ curl -s localhost:1\n```\n")[0][0], None)
        self.assertEqual(kinds("x\n\n    podman load -i image.tar\n")[0][0], None)
        self.assertEqual(kinds("```sh\nscripts/anything.sh ─► x\nllorch status\n```\n")[0][0], None)
        self.assertEqual(kinds("```text\n  12  end to end   0  pass\n```\n"), [])
        self.assertEqual(kinds("x\n\n    llorch ─► orchestratord\n    its store\n"), [])
        self.assertEqual(kinds("* a list\n    llorch status goes on here\n"), [])

    def test_a_mark_without_a_block(self):
        self.assertEqual(kinds("<!-- run -->\ntext\n"), [("run", None, [])])

    def test_spans_end_with_the_paragraph_and_rows_can_be_left_out(self):
        text = "<!-- run: spans -->\n\n| `llorch a` | `ls` |\n| `llorch b` <!-- not run: no --> |\n\n`llorch c`\n"
        (kind, _, lines), = kinds(text)
        self.assertEqual((kind, list(runner.spans_of(lines))), ("spans", ["llorch a"]))

    def test_rows_of_which_nothing_is_run_say_why(self):
        head = "| proof |\n|---|\n"
        for row, is_left in (("| `ss -ltnp` |", False), ("| `systemctl x` <!-- not run: no systemd --> |", False), ("| `systemctl x` |", True),
                             ("| [a page](x.md) |", True), ("| `llorch …` |", True), ("| `llorch a` <!-- not run --> |", True), ("| `make x` <!-- run --> |", True)):
            self.assertEqual(list(runner.rows_left((head + row).splitlines())), [row] if is_left else [], row)
        (block,) = runner.blocks_of("<!-- run: spans -->\n" + head + "| `llorch a` |\n| `make x` |\n")
        self.assertIn("a row without a command", runner.check_mark(block))

    def test_prompts_part_commands_and_what_they_print(self):
        steps = runner.steps_of(["$ curl x \\", "    -d '{", "  }'", "{\"a\":1}", "$ true"])
        self.assertEqual(steps, [("curl x \\\n    -d '{\n  }'", "{\"a\":1}"), ("true", None)])
        self.assertEqual(runner.steps_of(["a", "b"]), [("a\nb", None)])


class Pages(unittest.TestCase):
    def test_all_of_the_repository_are_looked_at(self):
        found = {str(path.relative_to(ROOT)) for path in runner.pages(ROOT)}
        self.assertLessEqual({"README.md", "CONTRIBUTING.md", "docs/portable.md", "docs/models/llama.md", "packaging/README.md", "models/builtin/README.md",
                              "src/tools/README.md", "src/compute/cuda/README.md", "tests/fleet_hosts/README.md"}, found)

    def test_a_page_without_any_mark_is_a_failure(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page.md"
            page.write_text("x\n\n    ls\n")
            with contextlib.redirect_stdout(io.StringIO()) as said, self.assertRaises(SystemExit) as ended:
                runner.check_marks(pathlib.Path(folder), [page])
        self.assertEqual(ended.exception.code, 1)
        self.assertIn("page.md:3: a block with no mark", said.getvalue())


class Shape(unittest.TestCase):
    def test_numbers_texts_and_space_may_differ(self):
        self.assertTrue(runner.has_shape("ready  1.5 MiB", "ready 20 GiB\n"))
        self.assertTrue(runner.has_shape('{"id":"a","n":[1,2],"ok":true}', '{"id": "bcd",\n "n": [7], "ok":true}'))
        self.assertTrue(runner.has_shape("a\n…\nz", "a\nb\nc\nz"))
        self.assertTrue(runner.has_shape('{"n":1,"m":2.5}', '{"n":35852288,"m":0.132521823}'))
        self.assertTrue(runner.has_shape("1,234 of 7", "12 of 1,234"))
        self.assertTrue(runner.has_shape("9d49131fbf1c95b1", "0c8e00d2a41f55aa"))
        self.assertTrue(runner.has_shape('{"id":"a-…","p":["x","y"]}', '{"id":"b","p":["z"]}'))
        self.assertTrue(runner.has_shape('{"a":1,…}', '{"a":2,"b":"c"}'))

    def test_words_and_structure_may_not(self):
        self.assertFalse(runner.has_shape("ready", "failed"))
        self.assertFalse(runner.has_shape('{"id":"a"}', '{"name":"a"}'))
        self.assertFalse(runner.has_shape('{"ok":true}', '{"ok":false}'))
        self.assertFalse(runner.has_shape('{"a":1}', '{"a":2,"b":"c"}'))
        self.assertFalse(runner.has_shape("a\n…\nz", "a\nb"))


class Run(unittest.TestCase):
    def problem(self, text):
        with tempfile.TemporaryDirectory() as folder:
            scene = runner.Scene(ROOT, pathlib.Path("/bin"), pathlib.Path(folder))
            try:
                for block in runner.blocks_of(text):
                    found = runner.check_block(scene, block)
                    if found:
                        return found
            finally:
                scene.close()
        return None

    def test_blocks_are_run_and_may_fail(self):
        self.assertIsNone(self.problem("<!-- run -->\n```sh\ntrue\n```\n"))
        self.assertIn("ended with 1, expected 0", self.problem("<!-- run -->\n```sh\nfalse\ntrue\n```\n"))
        self.assertIsNone(self.problem("<!-- run: exit 3 -->\n```sh\nexit 3\n```\n"))
        self.assertIn("expected 3", self.problem("<!-- run: exit 3 -->\n```sh\ntrue\n```\n"))
        self.assertIn("no mark", self.problem("```sh\nllorch status\n```\n"))
        self.assertIn("no reason", self.problem("<!-- not run -->\n```sh\nllorch status\n```\n"))
        self.assertIn("without a block", self.problem("<!-- run -->\ntext\n"))

    def test_what_is_printed_is_compared(self):
        self.assertIsNone(self.problem("<!-- run -->\n```\n$ echo 12 apples\n7 apples\n```\n"))
        self.assertIn("something else", self.problem("<!-- run -->\n```\n$ echo 12 pears\n7 apples\n```\n"))

    def test_blocks_of_a_page_share_their_folder_and_find_the_stand_ins(self):
        self.assertIsNone(self.problem("<!-- prepare: touch here -->\n<!-- run -->\n```sh\ntest -f here -a -f model.gguf -a -d tests/golden\n```\n"))

    def test_the_stand_in_with_a_template_is_as_aligned_as_its_source(self):
        with tempfile.TemporaryDirectory() as folder:
            source = ROOT / "models/builtin/stories.gguf"
            target = pathlib.Path(folder) / "chat.gguf"
            runner.with_template(source, target)
            self.assertEqual((target.stat().st_size - source.stat().st_size) % 32, 0)

    def test_daemons_run_beside_the_rest(self):
        script = runner.in_background("llorch-cpud --model m --port 8123   # a comment\ncurl x", pathlib.Path("/l"))
        self.assertIn("llorch-cpud --model m --port 8123 >/l/llorch-cpud-8123.log 2>&1 </dev/null &\nawait 8123", script)
        self.assertEqual(runner.in_background("llorch-cpud --plan-memory --model m", pathlib.Path("/l")), "llorch-cpud --plan-memory --model m")


if __name__ == "__main__":
    unittest.main()
