#!/usr/bin/env python3
"""The C++ block of README.md is examples/readme.cpp, word for word, so that what readers copy is what the tests run.

usage: check_readme.py [ROOT]
Comment lines that begin the file are its own and need not be in the block.
"""

import re
import sys

import sources

BLOCK = re.compile(r"^```cpp\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def without_heading(program):
    return re.sub(r"\A(//[^\n]*\n)+\n?", "", program)


def check(readme, program):
    """(blocks found, findings)"""
    blocks = [without_heading(block) for block in BLOCK.findall(readme)]
    if without_heading(program) in blocks:
        return len(blocks), []
    return len(blocks), ["README.md: no C++ block is examples/readme.cpp, word for word"]


def main():
    root = sources.root_argument()
    texts = [path.read_text(encoding="utf-8") if path.is_file() else ""
             for path in (root / "README.md", root / "examples" / "readme.cpp")]
    return sources.finish("readme", *check(*texts))


if __name__ == "__main__":
    sys.exit(main())
