#!/usr/bin/env python3
"""Every invariant of docs/protocol.md has code on both sides and a test, and code cites no other.

usage: check_invariants.py [ROOT]
A section of docs/protocol.md:
    ### I7: title

    statement

    | | |
    |---|---|
    | established by | `f`, `g` |
    | relied on by | `h` |
    | edge | release -> acquire |
    | tests | `Suite.Name`, `Suite.Other` |
Each function named must stand in a file under src/ or include/ferry/detail/ whose comments cite the id (`// I7`); each test must exist in tests/.
"""

import re
import sys

import sources

SECTION = re.compile(r"^### I(?P<id>\d+):(?P<title>[^\n]*)\n(?P<rest>.*?)(?=^#{1,3} |\Z)", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| *([\w ]+?) *\| *(.*?) *\|$", re.MULTILINE)
FIELDS = ("established by", "relied on by", "edge", "tests")
CITATION = re.compile(r"\bI(\d{1,3})\b")
TEST = re.compile(r"\b(?:TYPED_)?TEST(?:_P|_F)?\s*\(\s*(\w+)\s*,\s*(\w+)\s*\)")


def names(field):
    return [name.strip(" `()") for name in field.split(",")]


def parse(document):
    """({id: {field: text}}, findings)"""
    invariants, findings = {}, []
    for match in SECTION.finditer(document):
        number, rest = int(match.group("id")), match.group("rest")
        line = document.count("\n", 0, match.start()) + 1
        where = f"docs/protocol.md:{line}: I{number}"
        if number in invariants:
            findings.append(f"{where} is there twice")
        fields = dict(ROW.findall(rest))
        findings += [f"{where} lacks '{name}'" for name in FIELDS if not fields.get(name)]
        if not match.group("title").strip():
            findings.append(f"{where} has no title")
        if not rest.partition("|")[0].strip():
            findings.append(f"{where} says nothing")
        invariants[number] = fields
    return invariants, findings


def citations(files):
    """{id: {path: first line}}: where comments cite which invariant."""
    cited = {}
    for path, text in files:
        for line, comment in sources.comments_of(text):
            for number in CITATION.findall(comment):
                cited.setdefault(int(number), {}).setdefault(path, line)
    return cited


def has_function(text, name):
    return re.search(rf"\b{re.escape(name.split('::')[-1])}\s*(<[^;{{}}]*>)?\(", sources.code_of(text)) is not None


def check(document, code_files, test_files):
    """Findings. `code_files` are those of src/ and include/; `test_files` those of tests/."""
    invariants, findings = parse(document)
    cited = citations(code_files)
    texts = dict(code_files)
    tests = {f"{suite}.{name}" for _, text in test_files for suite, name in TEST.findall(sources.code_of(text))}
    for number, fields in invariants.items():
        for side in FIELDS[:2]:
            for name in names(fields[side]) if fields.get(side) else []:
                sites = [path for path in cited.get(number, {}) if path.startswith(("src/", "include/ferry/detail/"))]
                if not any(has_function(texts[path], name) for path in sites):
                    findings.append(f"I{number}: {side} {name}: no file of the library has that function and cites I{number}")
        for name in names(fields["tests"]) if fields.get("tests") else []:
            if name not in tests:
                findings.append(f"I{number}: there is no test {name}")
    for number, places in {**citations(test_files), **cited}.items():
        if number not in invariants:
            path, line = next(iter(places.items()))
            findings.append(f"{path}:{line}: cites I{number}, which docs/protocol.md does not have")
    return len(invariants), findings


def main():
    root = sources.root_argument()
    document = root / "docs" / "protocol.md"
    text = document.read_text(encoding="utf-8") if document.is_file() else ""
    count, findings = check(text, sources.files_under(root, ("include", "src")), sources.files_under(root, ("tests",)))
    return sources.finish("invariants", count, findings)


if __name__ == "__main__":
    sys.exit(main())
