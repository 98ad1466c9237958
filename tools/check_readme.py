#!/usr/bin/env python3
"""Every C++ block of README.md, and of the pages in PAGES, is text of a program under examples/, line for line, so that
what readers copy is what the tests compile and run.

usage: check_readme.py [ROOT]
A block is lines that follow each other in one file, all of them indented by as much. README.md has a block of
examples/readme.cpp and one of examples/cuda/readme.cu, and at most 120 lines.
"""

import re
import sys
import textwrap

import sources

BLOCK = re.compile(r"^```cpp\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN = ("examples/readme.cpp", "examples/cuda/readme.cu")
MOST_LINES = 120
PAGES = ("docs/rows.md",)


def holds(program, block):
    """Whether the block is lines of the program."""
    lines, wanted = program.splitlines(), block.splitlines()
    return bool(wanted) and any(textwrap.dedent("\n".join(lines[i:i + len(wanted)])).splitlines() == wanted
                                for i in range(len(lines) - len(wanted) + 1))


def foreign_blocks(page, text, programs):
    return [f"{page}: the C++ block that begins with {block.splitlines()[0] if block else 'nothing'!r} is in no program of examples/"
            for block in BLOCK.findall(text) if not any(holds(program, block) for _, program in programs)]


def check(readme, programs):
    """(blocks found, findings). programs: [(path, text)]"""
    blocks = BLOCK.findall(readme)
    findings = foreign_blocks("README.md", readme, programs)
    findings += [f"README.md: no C++ block is of {path}" for path in SHOWN
                 if not any(holds(text, block) for where, text in programs if where == path for block in blocks)]
    if readme.count("\n") > MOST_LINES:
        findings.append(f"README.md: {readme.count(chr(10))} lines, at most {MOST_LINES}")
    return len(blocks), findings


def main():
    root = sources.root_argument()
    readme = root / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    programs = list(sources.files_under(root, ("examples",)))
    count, findings = check(text, programs)
    for page in PAGES:
        text = (root / page).read_text(encoding="utf-8") if (root / page).is_file() else ""
        count += len(BLOCK.findall(text))
        findings += foreign_blocks(page, text, programs)
    return sources.finish("readme", count, findings)


if __name__ == "__main__":
    sys.exit(main())
