#!/usr/bin/env python3
"""Writes the table of faults into docs/reliability.md, from the rows that the tests of tests/faults wrote.

    fault_table.py ROWS.jsonl [--doc docs/reliability.md]

The last run of a row counts, and rows that ROWS.jsonl lacks stay in the document as they are, so one family can be run
again by itself, also in a new clone. The table stands between two markers in the document. Fails if a row of ROWS.jsonl
has failed; a row that was skipped is shown with the reason.
"""
import argparse
import json
import os
import re
import sys

BEGIN = "<!-- The table below is written by `make faults`. -->"
END = "<!-- The table above is written by `make faults`. -->"
HEADER = ["fault", "injection", "expectation", "evidence", "lane, date, commit"]


def read_rows(path):
    """Returns the last line of each row."""
    rows = {}
    with open(path) as file:
        for line in file:
            row = json.loads(line)
            rows[row["fault"], row["injection"]] = row
    return rows


def read_table(text):
    """Returns the cells of each row of a table, with the fault in all of them."""
    found, fault = {}, ""
    for line in text.strip().splitlines()[2:]:
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        fault = cells[0] or fault
        found[fault, cells[1]] = [fault, *cells[1:]]
    return found


def time_text(milliseconds):
    return f"{milliseconds / 1000:.2f} s" if milliseconds >= 1000 else f"{milliseconds:.0f} ms"


def evidence(row):
    if row["outcome"] == "skipped":
        return f"not run: {row['reason']}"
    parts = [f"{count:,} {name}" for name, count in row["counts"].items()]
    parts += [f"{name} {time_text(value)}" for name, value in row["milliseconds"].items()]
    text = ", ".join(parts)
    return text if row["outcome"] == "survived" else f"**failed**: {text}"


def cells_of(row):
    when = f"{row['lane']}, {row['date']}, {row['commit']}"
    return [row["fault"], row["injection"], row["expectation"], evidence(row), when]


def table(rows):
    """Rows of the same fault stand together, in an order that no run changes."""
    lines = ["| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
    last = ""
    for _, (fault, *cells) in sorted(rows.items()):
        cells = ["" if fault == last else fault, *cells]
        last = fault
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def update(text, rows):
    """Returns the document with these rows in its table."""
    before, rest = text.split(BEGIN)
    old, after = rest.split(END)
    known = {**read_table(old), **{key: cells_of(row) for key, row in rows.items()}}
    return f"{before}{BEGIN}\n{table(known)}\n{END}{after}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rows")
    parser.add_argument("--doc", default=os.path.join(os.path.dirname(__file__), "..", "docs/reliability.md"))
    args = parser.parse_args()
    rows = read_rows(args.rows)
    with open(args.doc) as file:
        text = file.read()
    with open(args.doc, "w") as file:
        file.write(update(text, rows))
    outcomes = [row["outcome"] for row in rows.values()]
    print(f"{len(rows)} rows: " + ", ".join(f"{outcomes.count(o)} {o}" for o in ("survived", "skipped", "failed")))
    sys.exit(1 if "failed" in outcomes else 0)


if __name__ == "__main__":
    main()
