#!/usr/bin/env python3
"""Writes the tables of measured figures in OPTIMIZATIONS.md and in every README.md from tests/figures/NAME.json.

usage: scripts/figures.py --write                  writes each table between <!-- figures: NAME --> and <!-- end of figures -->
       scripts/figures.py --check                  prints a line for each place that --write would change or cannot write; then exits with 1
       scripts/figures.py --stamp NAME [LABEL]     says that NAME's figures (those with this LABEL) were measured with the code as it is now

A file has a title, columns, the patterns of the files whose code it measures, and a list of measurements, each with the machine, the
commit that recorded its figures, and its rows. What all measurements share (command, threads, machine and so on) may stand in the file
itself. The fields that gpt-bench writes too have the same names and meanings. `code` is a hash of the measured code at the time of
measuring, as --stamp writes it, or null where it is not known. A table whose measured code has another hash now says so above itself.
"""
import argparse
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIGURES = ROOT / "tests/figures"
BEGIN, END = re.compile(r"<!-- figures: ([a-z0-9_]+) -->\n"), "<!-- end of figures -->\n"
WIDTH = 140  # the width of a line above a table, in columns
# What a measurement must have, its own or its file's.
REQUIRED = ("command", "commit", "date", "code", "machine", "threads", "rows")
OLDER, UNKNOWN = "The measured code has changed since", "The measured code may have changed since"  # without a hash


class Problem(Exception):
    pass


def measured_code(patterns):
    """A hash that survives moving files: over their contents, in the order of their names, without the lines that include others."""
    contents = []
    for pattern in patterns:
        files = [path for path in ROOT.glob(pattern) if path.is_file()]
        if not files:
            raise Problem(f"no file matches {pattern}, whose code is measured")
        contents += [(path.name, path.read_bytes()) for path in files]
    hasher = hashlib.sha256()
    for name, content in sorted(set(contents)):
        lines = [line for line in content.splitlines() if not re.match(rb"\s*#\s*include\b", line)]
        hasher.update(name.encode() + b"\0" + b"\n".join(lines) + b"\0")
    return hasher.hexdigest()[:16]


def file_of(name):
    return FIGURES / f"{name}.json"


def load(name):
    """The file's contents and its measurements, each with the fields that all share."""
    try:
        figures = json.loads(file_of(name).read_text(encoding="utf-8"))
        measurements = [{**figures, **measurement} for measurement in figures["measurements"]]
        for measurement in measurements:
            missing = [field for field in REQUIRED if field not in measurement]
            if missing:
                raise Problem(f"a measurement lacks {', '.join(missing)}")
            for row in measurement["rows"]:
                if len(row) != len(figures["columns"]):
                    raise Problem(f"the row {row} has {len(row)} values for {len(figures['columns'])} columns")
        if any("label" not in m for m in measurements) and len(measurements) > 1 and "fact_columns" not in figures:
            raise Problem("of several measurements each needs a label")
        return figures, measurements
    except FileNotFoundError:
        raise Problem("the file does not exist") from None


def text_of(value, column):
    """A value as its column writes it: with `digits` after the point and a `unit`; "k" is thousands from a thousand on."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value.replace("|", "\\|")
    unit = column.get("unit", "")
    if unit == "k":
        return f"{value:,.0f}" if value < 1000 else f"{value / 1000:,.1f}k"
    return f"{value:,.{column.get('digits', 0)}f}{unit}"


def plural(count, word):
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


WORDS = {  # for what is known of a measurement, in this order
    "command": lambda value: f"`{value}`",
    "machine": lambda value: ", ".join(value[field] for field in ("cpu", "instruction_sets") if field in value),
    "threads": lambda value: value if isinstance(value, str) else plural(value, "thread"),
    "rounds": lambda value: value if isinstance(value, str) else plural(value, "round"),
    "note": str,
    "commit": lambda value: f"commit {value}",
}
ABSENT = {"command": "not scripted", "machine": "processor not recorded"}  # what null means


def facts(fields, left_out):
    words = [ABSENT.get(field, "") if fields[field] is None else WORDS[field](fields[field])
             for field in WORDS if field in fields and field not in left_out]
    return ", ".join(filter(None, words)) + (f" of {fields['date']}" if fields.get("commit") and "commit" not in left_out else "")


def age(figures, measurements):
    """Which of the figures are of older code, in sentences; none where all are of the code as it is now."""
    now = measured_code(figures["measures"])
    current, unknown, older = (list(dict.fromkeys(m["commit"] for m in measurements if is_so(m["code"]))) for is_so in (
        lambda code: code == now, lambda code: code is None, lambda code: code not in (now, None)))
    if not unknown and not older:
        return []
    exceptions = f", but for that of {' and '.join(current)}" if current else ""
    sentences = [(OLDER if older else UNKNOWN) + exceptions]
    return sentences + [f"Whether that of {' and '.join(unknown)} has is not known"] if unknown and older else sentences


def caption(figures, measurements):
    """What the figures are and where they come from: first what all share, then what each measurement has for itself."""
    shared, left_out = facts(figures, ()), figures.get("fact_columns", ())
    sentences = [figures["title"] + (f": {shared}" if shared else "")]
    for measurement in figures["measurements"]:
        own = facts(measurement, left_out)
        if own and len(measurements) == 1:
            sentences[0] += f"{', ' if shared else ': '}{own}"
        elif own:
            cpu = (measurement.get("machine") or {}).get("cpu", "")
            sentences.append(own if measurement["label"] in cpu else f"{measurement['label']}: {own}")
    return textwrap.wrap(". ".join(sentences + age(figures, measurements)) + ".", WIDTH, break_long_words=False, break_on_hyphens=False)


def table(figures, measurements):
    """A row for each of a measurement's; before its values its label, behind them the facts that have a column instead of the caption."""
    columns = [column if isinstance(column, dict) else {"name": column} for column in figures["columns"]]
    labelled, fact_columns = any("label" in m for m in measurements), figures.get("fact_columns", [])
    header = [figures.get("labels", "processor")] * labelled + [column["name"] for column in columns] +\
        ["processor" if field == "machine" else field for field in fact_columns]
    rows = [header]
    for m in measurements:
        sources = ["-" if m[field] is None else m[field] if field == "commit" else WORDS[field](m[field]) for field in fact_columns]
        for row in m["rows"]:
            rows.append([m.get("label", "")] * labelled + [text_of(*pair) for pair in zip(row, columns)] + sources)
    right = [i > labelled and all(re.fullmatch(r"(-?[\d.,]+( ?[\w%/]+)?)?", row[i]) for row in rows[1:]) for i in range(len(header))]
    rows.insert(1, ["---:" if column else "---" for column in right])
    return ["|" + "|".join(f" {cell} " if cell else " " for cell in row) + "|" for row in rows]


def generated(name):
    try:
        figures, measurements = load(name)
        return "\n".join(caption(figures, measurements) + [""] + table(figures, measurements)) + "\n"
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Problem(f"is not as tests/figures/README.md says: {type(error).__name__}: {error}") from None


def documents():
    """OPTIMIZATIONS.md and every README.md, but for those in folders that are hidden or built."""
    found = [ROOT / "OPTIMIZATIONS.md"]
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if not name.startswith((".", "build"))]
        found += [pathlib.Path(folder, name) for name in files if name == "README.md"]
    return sorted(path for path in found if path.exists())


def renewed(path, problems):
    """The document's text as --write leaves it. Appends to the problems what differs or cannot be written."""
    text = path.read_text(encoding="utf-8")
    result, end = "", 0
    for begin in BEGIN.finditer(text):
        place = f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, begin.start()) + 1}"
        name, following = begin[1], text.find(END, begin.end())
        another = BEGIN.search(text, begin.end())
        if following < 0 or another and another.start() < following:
            problems.append(f"{place}: the figures of {name} have no end")
            continue
        old = text[begin.end():following]
        try:
            new = generated(name)
        except Problem as problem:
            problems.append(f"{file_of(name).relative_to(ROOT)}: {problem}")
            new = old
        if new != old:
            line = next((i for i, (a, b) in enumerate(zip(old.splitlines(), new.splitlines())) if a != b),
                        min(old.count("\n"), new.count("\n")))
            line += text.count("\n", 0, begin.end()) + 1
            problems.append(f"{path.relative_to(ROOT)}:{line}: is not what tests/figures/{name}.json says; "
                            "this writes the tables anew: scripts/figures.py --write")
        result += text[end:begin.end()] + new
        end = following
    return result + text[end:]


def stored(figures):
    """Indented, but for a row, a column and a machine, which are a line each."""
    text = json.dumps(figures, indent=2, ensure_ascii=False)
    return re.sub(r"([\[{])\s+([^\[\]{}]*?)\s+([\]}])", lambda part: part[1] + re.sub(r"\n\s*", " ", part[2]) + part[3], text) + "\n"


def stamp(name, label):
    figures, measurements = load(name)
    chosen = [m for m in figures["measurements"] if label is None or m.get("label") == label]
    if not chosen:
        raise Problem(f"no measurement has the label {label}")
    head = subprocess.run(["git", "log", "-1", "--format=%h %cs"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    for measurement in chosen:
        measurement["commit"], measurement["date"] = head
        measurement["code"] = measured_code(figures["measures"])
    file_of(name).write_text(stored(figures), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true")
    action.add_argument("--check", action="store_true")
    action.add_argument("--stamp", metavar="NAME")
    parser.add_argument("label", nargs="?", metavar="LABEL")
    options = parser.parse_args()
    problems = []
    if options.stamp:
        try:
            stamp(options.stamp, options.label)
        except Problem as problem:
            problems.append(f"{file_of(options.stamp).relative_to(ROOT)}: {problem}")
    else:
        for path in documents():
            found = []
            text = renewed(path, found)
            if options.write:
                if text != path.read_text(encoding="utf-8"):
                    path.write_text(text, encoding="utf-8")
                found = [problem for problem in found if "--write" not in problem]
            problems += found
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
