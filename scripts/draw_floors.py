#!/usr/bin/env python3
"""Draws src/floors.svg: the folders of src on their floors, and which of them each includes, as the sources say.

usage: scripts/draw_floors.py             writes the picture
       scripts/draw_floors.py --check     prints a line where it is not what this would write; then exits with 1

The floors are those of scripts/check.sh (`layers`), and CMakeLists.txt says which folders do without LibTorch. Arrows for all includes
could not be told apart. So only those are shown that no other include leads to: as an arrow to the next floor, as a name further down.
"""
import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PICTURE = ROOT / "src/floors.svg"
INCLUDE = re.compile(r'^ *# *include "(?:gpt/)?([a-z_]+)/', re.M)
WIDTH, EDGE = 900, 10  # of the picture, and what is free around its boxes
BOX, GAP, BETWEEN = 34, 16, 8  # a box's height, what is free below it, and beside it
SLANT = 60  # how far from its corner an arrow leaves a box for one that is not below it
LIBRARIES = {"io": "gpt_io, without LibTorch", "torch": "gpt, with LibTorch", "program": "the programs"}  # classes of STYLE
LEGEND = ("A folder includes those that its arrows lead to and those that ↓ names. All else that it includes is reached through these.",
          "The number, and how strong the colour is: how many folders include this one.")
STYLE = """
    .ground { fill: #ffffff }
    text { font: 14px -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif; fill: #1f2328 }
    .name { font-weight: 600 }
    .small { font-size: 13px }
    .box { stroke-width: 1 }
    .torch { fill: #0969da; stroke: #0969da }
    .io { fill: #1a7f37; stroke: #1a7f37 }
    .program { fill: #6e7781; stroke: #6e7781 }
    .arrow { stroke: #6e7781; stroke-width: 1.5; marker-end: url(#head) }
    .head { fill: #6e7781 }
    @media (prefers-color-scheme: dark) {
      .ground { fill: #0d1117 }
      text { fill: #f0f6fc }
      .torch { fill: #4493f8; stroke: #4493f8 }
      .io { fill: #3fb950; stroke: #3fb950 }
      .program, .head { fill: #9198a1; stroke: #9198a1 }
      .arrow { stroke: #9198a1 }
    }
"""


def floors():
    """Lists of folders, the highest floor first."""
    layers = re.search(r"^layers=\((.*)\)$", (ROOT / "scripts/check.sh").read_text(encoding="utf-8"), re.M)[1]
    return [floor.split() for floor in re.findall(r'"([^"]*)"', layers)]


def includes(folders):
    """The other folders that each folder includes."""
    found = {folder: set() for folder in folders}
    for folder in folders:
        for top in ("src", "include/gpt"):
            for path in (ROOT / top / folder).rglob("*"):
                if path.suffix in (".h", ".cpp", ".cu", ".cuh"):
                    found[folder] |= set(INCLUDE.findall(path.read_text(encoding="utf-8"))) & found.keys() - {folder}
    return found


def direct(included):
    """Of these includes the ones that no other include of the same folder leads to."""
    reached = {}

    def below(folder):
        if folder not in reached:
            reached[folder] = included[folder]  # for a circle, which is an error that scripts/check.sh names
            reached[folder] = included[folder].union(*map(below, included[folder]))
        return reached[folder]

    return {folder: {to for to in others if not any(to in below(other) for other in others - {to})} for folder, others in included.items()}


def libraries():
    """The library of each folder; the programs are in none."""
    path = ROOT / "CMakeLists.txt"
    lists = re.findall(r"^set\(GPT_(\w+)_FOLDERS (.*)\)$", path.read_text(encoding="utf-8"), re.M) if path.exists() else []
    return {folder: "io" if name in ("IO", "LIGHT") else "torch" for name, listed in lists for folder in listed.split()}


def places(rows):
    """The left and right end of each folder's box, and its upper edge."""
    found = {}
    for i, row in enumerate(rows):
        width = (WIDTH - 2 * EDGE - (len(row) - 1) * BETWEEN) / len(row)
        for j, folder in enumerate(row):
            left = EDGE + j * (width + BETWEEN)
            found[folder] = left, left + width, EDGE + i * (BOX + GAP)
    return found


def box(place, library, name, further, users, most):
    left, right, top = place
    names = f'<tspan class="small" dx="8">↓ {", ".join(further)}</tspan>' if further else ""
    yield (f'<rect class="box {library}" x="{left:g}" y="{top}" width="{right - left:g}" height="{BOX}" rx="5" '
           f'fill-opacity="{0.08 + 0.42 * users / most:.2f}"/>')
    yield f'<text x="{left + 12:g}" y="{top + 22}"><tspan class="name">{name}</tspan>{names}</text>'
    if users:
        yield f'<text class="small" x="{right - 10:g}" y="{top + 22}" text-anchor="end">{users}</text>'


def arrow(source, target):
    """To a box of the next floor: straight down where one is above the other."""
    left, right = max(source[0], target[0]), min(source[1], target[1])
    if left < right:
        begin = end = (left + right) / 2
    elif target[0] > source[0]:
        begin, end = source[1] - SLANT, target[0] + SLANT
    else:
        begin, end = source[0] + SLANT, target[1] - SLANT
    return f'<line class="arrow" x1="{begin:g}" y1="{source[2] + BOX}" x2="{end:g}" y2="{target[2] - 2}"/>'


def legend(top):
    for i, (library, text) in enumerate(LIBRARIES.items()):
        left = EDGE + 220 * i
        yield f'<rect class="box {library}" x="{left}" y="{top}" width="14" height="14" rx="3" fill-opacity="0.3"/>'
        yield f'<text class="small" x="{left + 22}" y="{top + 12}">{text}</text>'
    for i, text in enumerate(LEGEND):
        yield f'<text class="small" x="{EDGE}" y="{top + 36 + 20 * i}">{text}</text>'


def picture():
    rows = floors()
    level = {folder: i for i, row in enumerate(rows) for folder in row}
    included, library, place = includes(level), libraries(), places(rows)
    shown = direct(included)
    users = {folder: sum(folder in others for others in included.values()) for folder in level}
    most = max(1, *users.values())
    lines = []
    for folder in level:
        further = [to for to in level if to in shown[folder] and level[to] != level[folder] + 1]
        lines += box(place[folder], library.get(folder, "program"), folder, further, users[folder], most)
    for folder in level:
        lines += [arrow(place[folder], place[to]) for to in level if to in shown[folder] and level[to] == level[folder] + 1]
    bottom = EDGE + len(rows) * (BOX + GAP)
    lines += legend(bottom)
    height = bottom + 36 + 20 * len(LEGEND)
    size = f'width="{WIDTH}" height="{height}"'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH} {height}" role="img">',
                      "  <title>The folders of src on their floors</title>", f"  <style>{STYLE}  </style>",
                      '  <marker id="head" markerUnits="userSpaceOnUse" markerWidth="10" markerHeight="8" refX="7" refY="4" orient="auto">'
                      '<path class="head" d="M0,0 L8,4 L0,8 Z"/></marker>',
                      f'  <rect class="ground" {size} rx="6"/>', *(f"  {line}" for line in lines), "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    is_check = parser.parse_args().check
    text = picture()
    if not is_check:
        PICTURE.write_text(text, encoding="utf-8")
    elif not PICTURE.exists() or PICTURE.read_text(encoding="utf-8") != text:
        print(f"{PICTURE.relative_to(ROOT)}: is not what the includes say; this draws it anew: scripts/draw_floors.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
