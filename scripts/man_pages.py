#!/usr/bin/env python3
"""Writes manual pages from what the programs print for --help: man_pages.py BIN OUT.

There is a page for each program that people start, and one for each verb of the client, which has all that belongs to a
group such as `trainyard checkpoints`. The pages do not depend on who builds them, nor where.
"""

import os
import pathlib
import re
import subprocess
import sys
import time

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "~", "LC_ALL": "C.UTF-8"}
SUBCOMMANDS = "Subcommands"


def help_of(bin_folder, words):
    """Returns the help as {section: lines}. What stands before the first section is ''."""
    printed = subprocess.run([str(bin_folder / words[0]), *words[1:], "--help"], env=ENVIRONMENT, capture_output=True,
                             text=True, check=True, timeout=60).stdout
    # Defaults that depend on this host would differ in every build.
    printed = re.sub(r"(--name TEXT)=\S+", r"\1", printed).replace(str(bin_folder), "/usr/libexec/trainyard")
    sections, lines = {"": []}, None
    lines = sections[""]
    for line in printed.splitlines():
        header = re.fullmatch(r"(\S.*):", line)
        if header:
            lines = sections.setdefault(header.group(1), [])
        else:
            lines.append(line)
    return sections


def escaped(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text)


def items(lines):
    """Returns pairs of a name and what is said of it."""
    found = []
    for line in lines:
        item = re.fullmatch(r"  (\S.*?)(?:  +(\S.*))?", line)
        if item:
            found.append((item.group(1), item.group(2) or ""))
        elif line.strip() and found:
            name, said = found[-1]
            found[-1] = (name, f"{said} {line.strip()}".strip())
    return found


def body(sections, level):
    """Returns the sections below the summary."""
    out = []
    for title, lines in sections.items():
        if not title or title == SUBCOMMANDS or not any(line.strip() for line in lines):
            continue
        out.append(f"{level} {title.upper() if level == '.SH' else title}")
        if title in ("Options", "Positionals"):
            for name, said in items(lines):
                out += [".TP", f".B {escaped(name)}", escaped(said)]
        else:
            out += [".nf", *[escaped(line) for line in lines], ".fi"]
    return out


def usage(sections, command):
    line = next((line for line in sections[""] if line.startswith("Usage: ")), "")
    return escaped(re.sub(r"^Usage: \S*?(trainyard\S*)", r"\1", line) or command)


def summary(sections):
    words = " ".join(line.strip() for line in sections[""] if line and not line.startswith("Usage: "))
    return words.rstrip(".")


def page(bin_folder, words, section, date):
    name = "-".join(words)
    sections = help_of(bin_folder, words)
    first = summary(sections).split(". ")[0]
    out = [f'.TH {name.upper()} {section} {date} Trainyard "Trainyard"', ".SH NAME",
           f"{escaped(name)} \\- {escaped(first[0].lower() + first[1:])}", ".SH SYNOPSIS", usage(sections, " ".join(words)),
           ".SH DESCRIPTION", escaped(summary(sections) + ".")]
    out += body(sections, ".SH")
    verbs = items(sections.get(SUBCOMMANDS, []))
    if verbs and words == ["trainyard"]:
        out.append(".SH COMMANDS")
        for verb, said in verbs:
            out += [".TP", f".BR {escaped(name)}\\-{escaped(verb)} (1)", escaped(said)]
    elif verbs:
        for verb, said in verbs:
            inner = help_of(bin_folder, [*words, verb])
            out += [f'.SH "{" ".join([*words[1:], verb]).upper()}"', escaped(said + "."), ".PP", usage(inner, verb)]
            out += body(inner, ".SS")
    if section == 1 and len(words) > 1:
        out += [".SH SEE ALSO", ".BR trainyard (1)"]
    return name, "\n".join(out) + "\n", verbs


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: man_pages.py BIN OUT")
    bin_folder, out = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0")) or int(time.time())
    date = time.strftime("%Y-%m-%d", time.gmtime(epoch))
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("trainyard*.[18]"):
        old.unlink()

    def write(words, section):
        name, text, verbs = page(bin_folder, words, section, date)
        (out / f"{name}.{section}").write_text(text, encoding="utf-8")
        return verbs

    for verb, _ in write(["trainyard"], 1):
        write(["trainyard", verb], 1)
    for daemon in ("trainyard-server", "trainyard-worker"):
        write([daemon], 8)


if __name__ == "__main__":
    main()
