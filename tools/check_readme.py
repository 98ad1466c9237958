#!/usr/bin/env python3
"""Every C++ block of README.md is text of a program under examples/, line for line, so that what readers copy is what
the tests compile and run. So is a block of each page in PAGES, of the program that is named there.

usage: check_readme.py [ROOT [PROGRAM]]
A block is lines that follow each other in one file, all of them indented by as much. README.md has a block of
examples/readme.cpp and one of examples/cuda/readme.cu, and at most 120 lines. It says what the first of them prints:
PROGRAM, which that file makes, is run and compared with it. And it names the commit of its figures.
"""

import pathlib
import re
import subprocess
import sys
import textwrap

import sources

BLOCK = re.compile(r"^```cpp\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN = ("examples/readme.cpp", "examples/cuda/readme.cu")
MOST_LINES = 120
PAGES = {"docs/rows.md": "examples/encoded_tokens.cpp"}


def holds(program, block):
    """Whether the block is lines of the program."""
    lines, wanted = program.splitlines(), block.splitlines()
    return bool(wanted) and any(textwrap.dedent("\n".join(lines[i:i + len(wanted)])).splitlines() == wanted
                                for i in range(len(lines) - len(wanted) + 1))


def shows(page_text, path, programs):
    """Whether a block of the page is of that program."""
    return any(where == path and holds(text, block) for where, text in programs for block in BLOCK.findall(page_text))


def check(readme, programs):
    """(blocks found, findings). programs: [(path, text)]"""
    blocks = BLOCK.findall(readme)
    findings = [f"README.md: the C++ block that begins with {block.splitlines()[0] if block else 'nothing'!r} is in no program of examples/"
                for block in blocks if not any(holds(text, block) for _, text in programs)]
    findings += [f"README.md: no C++ block is of {path}" for path in SHOWN if not shows(readme, path, programs)]
    if readme.count("\n") > MOST_LINES:
        findings.append(f"README.md: {readme.count(chr(10))} lines, at most {MOST_LINES}")
    return len(blocks), findings


def said_of(readme, path):
    """What README.md says that the program of this file prints; None where it does not."""
    said = re.search(rf"\]\({re.escape(path)}\), which prints `([^`]+)`", readme)
    return said and said.group(1)


def check_printed(readme, name, printed):
    """Findings, where the program of SHOWN[0] has this name and printed this."""
    said = said_of(readme, SHOWN[0])
    if said is None:
        return [f"README.md: does not say what {SHOWN[0]} prints"]
    if f"ninja -C build/release {name} && build/release/examples/{name}`" not in readme:
        return [f"README.md: does not say how to build and run {name}"]
    return [] if printed == said + "\n" else [f"README.md: {SHOWN[0]} prints {printed!r}, not {said!r}"]


def check_commit(readme, comparison):
    """Findings, where the figures of README.md are not said to be of the commit that docs/comparison.md measured."""
    measured = re.search(r"\bFerry ([0-9a-f]{7})\b", comparison)
    if measured is None:
        return ["docs/comparison.md: does not say which commit of Ferry was measured"]
    return [] if re.search(rf"\bcommit {measured.group(1)}\b", readme) else [
        f"README.md: its figures are those of docs/comparison.md, of commit {measured.group(1)}, which it does not name"]


def main():
    root = sources.root_argument()
    readme = root / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    programs = list(sources.files_under(root, ("examples",)))
    count, findings = check(text, programs)
    if len(sys.argv) > 2:
        count += 1
        program = pathlib.Path(sys.argv[2])
        done = subprocess.run([program], capture_output=True, text=True, check=False)
        findings += check_printed(text, program.name, done.stdout)
    count += 1
    comparison = root / "docs" / "comparison.md"
    findings += check_commit(text, comparison.read_text(encoding="utf-8") if comparison.is_file() else "")
    for page, path in PAGES.items():
        text = (root / page).read_text(encoding="utf-8") if (root / page).is_file() else ""
        count += 1
        findings += [] if shows(text, path, programs) else [f"{page}: no C++ block is of {path}"]
    return sources.finish("readme", count, findings)


if __name__ == "__main__":
    sys.exit(main())
