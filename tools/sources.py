"""What the checks share: finding the sources of the tree, telling code from comments, and reporting."""

import pathlib
import re
import sys

CXX_SUFFIXES = (".h", ".cpp", ".cu", ".cuh")

# A comment, a raw string, a string, or a character literal (a digit separator such as 1'000 is none of them).
TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(?P<end>[^(\s]*)\(.*?\)(?P=end)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'""",
    re.DOTALL)


def blanked(match):
    """Spaces in place of the match, lines kept."""
    return re.sub(r"[^\n]", " ", match.group())


def code_of(text):
    """The text without comments and without what is inside literals; every line keeps its number."""
    def code(match):
        if match.group().startswith(("//", "/*")):
            return blanked(match)
        return match.group()[0] + blanked(match)[1:-1] + match.group()[-1]
    return TOKEN.sub(code, text)


def comments_of(text):
    """[(line number, comment)]"""
    return [(text.count("\n", 0, match.start()) + 1, match.group())
            for match in TOKEN.finditer(text) if match.group().startswith(("//", "/*"))]


def files_under(root, folders, suffixes=CXX_SUFFIXES):
    """[(path relative to root as text, its content)] of the folders, in order of path."""
    root = pathlib.Path(root)
    found = {path for folder in folders for path in (root / folder).rglob("*")
             if path.suffix in suffixes and path.is_file()}
    return [(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")) for path in sorted(found)]


def finish(name, num_checked, findings):
    """Prints the findings; the exit code of the check. A check that met nothing to check fails."""
    for finding in findings:
        print(finding)
    if num_checked == 0:
        print(f"{name}: found nothing to check")
        return 1
    print(f"{name}: {num_checked} checked, {len(findings)} wrong")
    return 1 if findings else 0


def root_argument():
    return pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
