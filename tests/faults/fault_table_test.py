#!/usr/bin/env python3
"""Tests that rows of a new run enter the table of faults, and that the others stay."""
import os
import sys
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
from fault_table import BEGIN, END, read_table, table, update


def row(fault, injection, kills, outcome="survived"):
    return {
        "fault": fault, "injection": injection, "expectation": "nothing is lost", "outcome": outcome, "counts": {"kills": kills},
        "milliseconds": {}, "lane": "long", "date": "2026-01-02", "commit": "abc"
    }


def document(*rows):
    return update(f"before\n{BEGIN}\n{END}\nafter\n", {(r["fault"], r["injection"]): r for r in rows})


class FaultTable(unittest.TestCase):

    def test_rows_of_a_fault_stand_together_and_name_it_once(self):
        text = document(row("b", "x", 1), row("a", "y", 2), row("b", "w", 3))
        lines = text.split(BEGIN)[1].split(END)[0].strip().splitlines()[2:]
        self.assertEqual([line.split("|")[1].strip() for line in lines], ["a", "b", ""])
        self.assertTrue(text.startswith("before\n") and text.endswith("\nafter\n"))

    def test_a_new_run_replaces_its_row_and_leaves_the_others(self):
        text = document(row("a", "x", 1), row("a", "y", 2), row("b", "z", 3))
        updated = update(text, {("a", "y"): row("a", "y", 20)})
        self.assertEqual(updated, document(row("a", "x", 1), row("a", "y", 20), row("b", "z", 3)))

    def test_bars_in_texts_survive(self):
        text = document(row("a|b", "x | y", 1))
        self.assertEqual(update(text, {}), text)
        cells = read_table(text.split(BEGIN)[1].split(END)[0])
        self.assertEqual(list(cells), [("a|b", "x | y")])

    def test_a_failed_row_is_shown_as_failed(self):
        self.assertIn("**failed**: 1 kills", document(row("a", "x", 1, outcome="failed")))

    def test_an_empty_table_has_a_head(self):
        self.assertEqual(len(table({}).splitlines()), 2)


if __name__ == "__main__":
    unittest.main()
