#!/usr/bin/env python3
"""bench/input_cost.py's arithmetic, on numbers that can be checked by hand."""
import math
import unittest

import input_cost


class InputCostTest(unittest.TestCase):
    def test_parts_are_whole_pieces_in_order(self):
        self.assertEqual(input_cost.parts_of("#a#b#c", "#", 2), ["#a", "#b#c"])

    def test_weights_are_rounded_by_the_reference(self):
        self.assertEqual(input_cost.words_of("int8"), (["--input", "f32"], ["--input", "int8"]))
        exact, half = input_cost.words_of("half")
        self.assertEqual(exact, ["--backend", "reference", "--weights", "exact"])
        self.assertEqual(half, ["--backend", "reference", "--weights", "half"])

    def test_a_part_counts_by_its_tokens(self):
        tokens, perplexity, change, error = input_cost.compare([(100, 1.0, 1.01), (300, 2.0, 2.03)])
        self.assertEqual(tokens, 400)
        self.assertAlmostEqual(perplexity, math.exp(1.75))
        self.assertAlmostEqual(change, math.expm1(0.025))
        self.assertAlmostEqual(error, math.sqrt(0.25 * 0.015**2 + 0.75 * 0.005**2))

    def test_a_change_that_is_the_same_everywhere_is_certain(self):
        self.assertAlmostEqual(input_cost.compare([(10, 1.0, 1.5), (20, 3.0, 3.5)])[3], 0)


if __name__ == "__main__":
    unittest.main()
