"""What check_figures.py takes for a figure, and what it finds wrong."""
import json
import pathlib
import tempfile
import unittest

from check_figures import check_page, figures_of, read_values


def shown(*lines):
    return [str(figure) for figure in figures_of(lines)]


def problems(text, values):
    return list(check_page(text, {"a.json": values}.get))


class Figures(unittest.TestCase):
    def test_are_numbers_with_units(self):
        self.assertEqual(shown("adds +0.22 ms (p50) to 64 streams, 99.8 % of 3,123 tokens/s"), ["+0.22 ms", "99.8 %", "3,123 tokens/s"])

    def test_of_a_range_are_both(self):
        self.assertEqual(shown("0.2 to 0.35 ms, 0.14 / 2.3 ms, 50–52 GB/s"), ["0.2 ms", "0.35 ms", "0.14 ms", "2.3 ms", "50 GB/s", "52 GB/s"])

    def test_are_no_names_shapes_code_or_aims(self):
        self.assertEqual(shown("Qwen2.5-0.5B in Q4_K, 4096 × 4096, `sleep 3 s`, ≤ 50 ms, ≤ +0.3 / +1 ms, sm_90, n^0.45"), [])

    def test_of_a_table_need_no_unit_but_stand_behind_the_first_column(self):
        self.assertEqual(shown("| workers | 10 | target |", "|---|---|---|", "| 64 streams | 38.6 | ≤ 50 |"), ["38.6"])


class Pages(unittest.TestCase):
    def test_say_where_a_figure_is_from_or_that_it_is_a_limit(self):
        self.assertEqual(len(problems("It takes 3 ms.", None)), 1)
        self.assertEqual(problems("It is named 3.", None), [])
        self.assertEqual(problems("<!-- a limit -->\nAt most 3 MiB.", None), [])
        self.assertEqual(len(problems("<!-- a limit -->\nAt most 3 MiB.\n\nIt takes 3 ms.", None)), 1)

    def test_may_be_excused_whole_but_for_what_names_a_file(self):
        text = "<!-- page not from a file: told by people -->\n\nIt takes 3 ms.\n\nAnd 4 ms.\n\n<!-- from: a.json -->\n5 ms.\n"
        self.assertEqual(problems(text, [(5.0, "ms")]), [])
        self.assertEqual(problems(text, [(6.0, "ms")]), ["8: 5 ms is not in a.json"])

    def test_need_their_mark_at_every_block(self):
        text = "<!-- from: a.json -->\nIt takes 3 ms.\n\nAnd 4 ms.\n\n    sleep 5 s\n\n```\n6 ms\n```\n"
        self.assertEqual(problems(text, [(3.0, "ms")]), ["4: 4 ms says not where it comes from: <!-- from: FILE -->, <!-- a limit --> or <!-- not from a file: WHY -->"])

    def test_have_tables_of_names_without_marks(self):
        text = "<!-- from: a.json -->\nIt takes 3 ms.\n\n| | who |\n|---|---|\n| none | Llama 2 |\n"
        self.assertEqual(problems(text, [(3.0, "ms")]), [])

    def test_round_to_the_digits_shown(self):
        page = "<!-- from: a.json -->\nIt takes {}.\n"
        for text, value in (("0.22 ms", (0.2249, "ms")), ("220 µs", (0.22, "ms")), ("130,900 tokens/s", (130_912.0, "/s")), ("86 MB", (86_400_000.0, "bytes")),
                            ("99.8 %", (0.9981, "share")), ("3 ms", (3.0, None)), ("−4 %", (-4.0, "%"))):
            self.assertEqual(problems(page.format(text), [value]), [], text)
        for text, value in (("0.22 ms", (0.2351, "ms")), ("220 ms", (0.22, "ms")), ("130,900 tokens/s", (130_960.0, "/s")), ("86 MB", (86.0, "ms")), ("+4 %", (-4.0, "%"))):
            self.assertEqual(len(problems(page.format(text), [value])), 1, text)

    def test_name_files_that_are_there_and_used(self):
        self.assertEqual(problems("<!-- from: b.json -->\nIt takes 3 ms.\n", []), ["2: there is no docs/data/b.json", "2: 3 ms is not in b.json"])
        self.assertEqual(problems("<!-- from: a.json -->\nIt takes long.\n", []), ["2: nothing here comes from a.json"])


class Files(unittest.TestCase):
    def read(self, name, text):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / name
            path.write_text(text)
            return read_values(path)

    def test_of_json_have_units_in_their_keys(self):
        found = self.read("a.json", json.dumps({"first_ms": [1, 2], "b": {"tokens_per_second": 3, "peak_bytes": 4, "us": 5, "loads": 6, "ok": True}}))
        self.assertEqual(found, [(1, "ms"), (2, "ms"), (3, "tokens/s"), (4, "bytes"), (5, "us"), (6, None)])

    def test_of_text_have_them_behind_the_numbers(self):
        self.assertEqual(self.read("a.txt", "p50   0.140 ms  64 streams"), [(0.14, "ms"), (64, None)])


if __name__ == "__main__":
    unittest.main()
