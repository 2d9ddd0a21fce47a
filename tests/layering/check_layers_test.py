#!/usr/bin/env python3
"""The layering check must fail when an include breaks the table, and only then."""
import pathlib
import tempfile
import unittest

import check_layers

TABLE = "base:\nhttp: base\nmodel: base http/one.h\n"


class CheckLayers(unittest.TestCase):
    def check(self, files, table=TABLE):
        with tempfile.TemporaryDirectory() as folder:
            src = pathlib.Path(folder)
            (src / "layers.txt").write_text(table)
            for name, text in files.items():
                (src / name).parent.mkdir(exist_ok=True, parents=True)
                (src / name).write_text(text)
            return check_layers.check(src)[0]

    def test_allowed_includes_pass(self):
        self.assertEqual(self.check({"http/a.cc": '#include "base/x.h"\n#include "http/a.h"\n#include <vector>\n'}), [])

    def test_forbidden_include_is_named(self):
        problems = self.check({"base/a.cc": '\n#include "http/server.h"\n'})
        self.assertEqual(len(problems), 1)
        self.assertIn("a.cc:2: base may not include \"http/server.h\"", problems[0])

    def test_single_header_permission(self):
        self.assertEqual(self.check({"model/a.cc": '#include "http/one.h"\n', "http/one.h": ""}), [])
        self.assertEqual(len(self.check({"model/a.cc": '#include "http/two.h"\n', "http/two.h": ""})), 1)

    def test_indented_and_spaced_includes_are_seen(self):
        self.assertEqual(len(self.check({"base/a.h": '  #  include "model/m.h"\n'})), 1)

    def test_module_without_a_line(self):
        self.assertEqual(len(self.check({"rogue/a.cc": ""})), 1)

    def test_cycle(self):
        problems = self.check({}, "a: b\nb: c\nc: a\n")
        self.assertIn("cycle", problems[0])

    def test_confined_library(self):
        self.assertEqual(len(self.check({"base/a.cc": "#include <openssl/evp.h>\n"})), 1)
        self.assertEqual(self.check({"http/tls.cc": "#include <openssl/ssl.h>\n"}), [])

    def test_ports_have_one_place(self):
        for line in ("constexpr int kPort = 9200;\n", 'const char* url = "http://127.0.0.1:8080";\n'):
            self.assertEqual(len(self.check({"base/a.cc": line})), 1, line)
        self.assertEqual(self.check({"contract/default_ports.h": "constexpr int kPort = 9200;\n", "base/a_test.cc": "int p = 9200;\n",
                                     "base/a.cc": "// at 127.0.0.1:9200\nint rows = 92001;\n"}, TABLE + "contract: base\n"), [])

    def test_long_files(self):
        self.assertEqual(self.check({"http/a.cc": "int a;\n" * 500}), [])
        problems = self.check({"http/a.cc": "int a;\n" * 501})
        self.assertEqual(len(problems), 1)
        self.assertIn("501 lines, at most 500", problems[0])

    def test_kinds_of_backends_are_named_in_one_place(self):
        for text in ('\nauto a = "cuda";\n', '\nauto a = fmt::format("cuda:{}", n);\n'):
            problems = self.check({"http/a.cc": text})
            self.assertEqual(len(problems), 1, text)
            self.assertIn("a.cc:2: a kind of backend", problems[0])
            self.assertEqual(self.check({"http/a_test.cc": text}), [])
        self.assertEqual(self.check({"http/a.cc": 'auto a = "cudart";  // not "cuda"\n'}), [])


if __name__ == "__main__":
    unittest.main()
