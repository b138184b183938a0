#!/usr/bin/env python3
"""Writes the table of faults into docs/reliability.md, from the rows that the tests of tests/faults wrote.

    fault_table.py ROWS.jsonl [--doc docs/reliability.md]

The last run of a row counts, so one family can be run again by itself. The table stands between two markers in the
document. Fails if a row has failed; a row that was skipped is shown with the reason.
"""
import argparse
import json
import os
import sys

BEGIN = "<!-- The table below is written by `make faults`. -->"
END = "<!-- The table above is written by `make faults`. -->"
HEADER = ["fault", "injection", "expectation", "evidence", "lane, date, commit"]


def read_rows(path):
    """Returns the last line of each row, in the order of their tests."""
    rows = {}
    with open(path) as file:
        for line in file:
            row = json.loads(line)
            rows[row["fault"], row["injection"]] = row
    # Rows of the same fault stand together, in an order that no run changes.
    return [rows[key] for key in sorted(rows)]


def time_text(milliseconds):
    return f"{milliseconds / 1000:.2f} s" if milliseconds >= 1000 else f"{milliseconds:.0f} ms"


def evidence(row):
    if row["outcome"] == "skipped":
        return f"not run: {row['reason']}"
    parts = [f"{count:,} {name}" for name, count in row["counts"].items()]
    parts += [f"{name} {time_text(value)}" for name, value in row["milliseconds"].items()]
    text = ", ".join(parts)
    return text if row["outcome"] == "survived" else f"**failed**: {text}"


def table(rows):
    lines = ["| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
    last = ""
    for row in rows:
        fault = row["fault"] if row["fault"] != last else ""
        last = row["fault"]
        when = f"{row['lane']}, {row['date']}, {row['commit']}"
        cells = [fault, row["injection"], row["expectation"], evidence(row), when]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rows")
    parser.add_argument("--doc", default=os.path.join(os.path.dirname(__file__), "..", "docs/reliability.md"))
    args = parser.parse_args()
    rows = read_rows(args.rows)
    with open(args.doc) as file:
        text = file.read()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    with open(args.doc, "w") as file:
        file.write(f"{before}{BEGIN}\n{table(rows)}\n{END}{after}")
    outcomes = [row["outcome"] for row in rows]
    print(f"{len(rows)} rows: " + ", ".join(f"{outcomes.count(o)} {o}" for o in ("survived", "skipped", "failed")))
    sys.exit(1 if "failed" in outcomes else 0)


if __name__ == "__main__":
    main()
