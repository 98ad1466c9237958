#!/usr/bin/env python3
"""What the pages say exists: links, files, headings, commands, options, and the names of the library.

usage: check_docs.py ROOT [--ferry BINARY | --without-commands]
  links      a relative link of a .md file leads to a file, and to a heading of it where it names one
  files      a file of the tree that a code span names is there
  commands   `ferry COMMAND --option` is a command and an option that BINARY knows; `./dev COMMAND` is in `./dev help`,
             and so are its steps and presets
  names      in the pages for those who come from another system a name outside the first column of a table is in a public
             header, or in the files of src/ or include/ferry/detail/ that its line names
  comments   a file that a comment in the code names is there: by its name, or by the end of its path
  lengths    a page of docs/ has at most 1500 words and a paragraph 120, the lab and pages to look things up in aside
"""

import argparse
import pathlib
import re
import subprocess
import sys

import sources

NAMES_PAGES = ("docs/coming-from-max.md", "docs/coming-from-deepep.md", "docs/max-names.md")
FOLDERS = ("benchmarks", "docs", "examples", "include", "python", "python-deepep", "src", "tests", "tool", "tools")
DETAIL = "include/ferry/detail/"
REFERENCES = ("docs/formats.md", "docs/glossary.md", "docs/max-names.md", "docs/protocol.md")
MOST_WORDS, MOST_WORDS_OF_PARAGRAPH = 1500, 120
FENCE = re.compile(r"^(```|~~~)")
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)|<(?:img|a)\s[^>]*?(?:src|href)=\"([^\"]+)\"")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")
FORMAT_LIST = "include/ferry/detail/formats/format_list.h"  # the names of formats are public
FILE = re.compile(r"(?:include|src|tool|tests|docs|examples|tools|benchmarks|cmake|python-deepep|python)/[\w./-]*[\w/-]")
NAMED_FILE = re.compile(r"(?<![\w/.<\"-])(?:[\w-]+/)*[\w-]+\.(?:h|cuh|cpp|cu|py|md|sh)\b(?!\.)")
FOREIGN_FILES = ("dlpack.h",)
FERRY = re.compile(r"(?:^|[\s;&|(])(?:\S*/)?ferry +([a-z]+(?: +[a-z]+\b(?=\s|$))?)([^;&|#]*)")
DEV = re.compile(r"\./dev +([a-z][a-z-]*)([^;&|#]*)")
DEV_COMMANDS = re.compile(r"^  ([a-z][a-z-]*) ", re.MULTILINE)
DEV_STEPS = re.compile(r"^  check \[step\.\.\.\] +([a-z, \n-]+);", re.MULTILINE)
DEV_PRESETS = re.compile(r"in build/<preset>: ([a-z, -]+)$", re.MULTILINE)
WORD = re.compile(r"(?<![^\s,])[a-z][a-z-]*(?![^\s,])")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
NAME = re.compile(r"[A-Za-z_]\w*(?:::\w+)*")


class Page:
    """A markdown file: its lines outside fenced blocks, and the lines inside, joined where they end in a backslash."""

    def __init__(self, path, text):
        self.path, self.prose, self.code = path, [], []
        fenced = continued = False
        for number, line in enumerate(text.splitlines(), 1):
            if FENCE.match(line.lstrip()):
                fenced = not fenced
            elif not fenced:
                self.prose.append((number, line))
            elif continued:
                self.code[-1] = (self.code[-1][0], self.code[-1][1].rstrip("\\") + line)
            else:
                self.code.append((number, line))
            continued = fenced and line.endswith("\\")

    def headings(self):
        """The anchors of the page, as the usual renderers make them."""
        titles = [match.group(1) for _, line in self.prose if (match := HEADING.match(line))]
        return {re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", title).lower()).replace(" ", "-") for title in titles}

    def spans(self):
        return [(number, span) for number, line in self.prose for span in SPAN.findall(line)]


def check_links(page, pages, root):
    findings = []
    for number, line in page.prose:
        for match in LINK.finditer(SPAN.sub("``", line)):
            target = match.group(1) or match.group(2)
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            where = (pathlib.PurePosixPath(page.path).parent / file) if file else pathlib.PurePosixPath(page.path)
            resolved = (root / where).resolve()
            if not resolved.exists() or not resolved.is_relative_to(root):
                findings.append(f"{page.path}:{number}: link to {target}: no such file")
                continue
            leads_to = pages.get(resolved.relative_to(root).as_posix())
            if anchor and leads_to and anchor not in leads_to.headings():
                findings.append(f"{page.path}:{number}: link to {target}: no such heading")
    return findings


def check_files(page, root):
    return [f"{page.path}:{number}: no file {span}" for number, span in page.spans()
            if FILE.fullmatch(span) and not (root / span).exists()]


def check_comments(root):
    """What CMake makes of a .in file counts as a file."""
    texts = sources.files_under(root, FOLDERS)
    there = {"/".join(path.relative_to(root).parts[start:]).removesuffix(".in")
             for folder in (*FOLDERS, "cmake") for path in (root / folder).rglob("*") if path.is_file()
             for start in range(len(path.relative_to(root).parts))}
    return [f"{path}:{number}: no file {name}" for path, text in texts for number, comment in sources.comments_of(text)
            for name in NAMED_FILE.findall(comment) if name not in there and name not in FOREIGN_FILES]


def commands_of(page):
    """[(line, command line)] of code blocks and code spans."""
    return page.code + page.spans()


def words_of_dev(text):
    """{command: the words that it takes, or None where it takes any} of `./dev help`."""
    words = dict.fromkeys(DEV_COMMANDS.findall(text))
    for pattern, commands in ((DEV_STEPS, ("check",)), (DEV_PRESETS, ("build", "test"))):
        if match := pattern.search(text):
            words |= dict.fromkeys(commands, set(match.group(1).replace(",", " ").split()))
    return words


def check_dev_commands(page, number, text, dev_words):
    """dev_words: as of words_of_dev. Words behind a command that a comment names are prose."""
    findings = []
    for match in DEV.finditer(text):
        command, rest = match.groups()
        if command not in dev_words:
            findings.append(f"{page.path}:{number}: ./dev has no command {command}")
        elif dev_words[command] is not None and "#" not in text[:match.start()]:
            findings += [f"{page.path}:{number}: ./dev {command} knows no {word}"
                         for word in WORD.findall(rest) if word not in dev_words[command]]
    return findings


def check_commands(page, help_of, dev_words):
    """help_of("codec encode"): the help text of a command; None where there is no such command."""
    findings = []
    for number, text in commands_of(page):
        for match in FERRY.finditer(text):
            command, rest = match.groups()
            known = help_of(command)
            if known is None:
                findings.append(f"{page.path}:{number}: ferry has no command {command}")
                continue
            options = set(OPTION.findall(known))
            findings += [f"{page.path}:{number}: ferry {command} has no option {option}"
                         for option in OPTION.findall(rest) if option not in options]
        findings += check_dev_commands(page, number, text, dev_words)
    return findings


def body_of(code, name):
    """What is inside the braces of a struct, class or enum of that name; None without one."""
    head = re.search(rf"\b(?:struct|class|enum|concept)\s+{name}\b[^;{{]*{{", code)
    if not head:
        return None
    depth, end = 1, head.end()
    while depth and end < len(code):
        depth += {"{": 1, "}": -1}.get(code[end], 0)
        end += 1
    return code[head.end():end]


def has_name(text, name):
    """Whether the C++ text has the name; in A::B, whether the type A has B."""
    outer, _, inner = name.removeprefix("ferry::").rpartition("::")
    where = body_of(sources.code_of(text), outer) if outer else text
    return where is not None and re.search(rf"\b{inner}\b", where) is not None


def check_names(page, root):
    public = "\n".join(text for path, text in sources.files_under(root, ("include/ferry",))
                       if not path.startswith(DETAIL) or path == FORMAT_LIST)
    findings = []
    for number, line in page.prose:
        told = line.split("|", 2)[2] if line.startswith("|") else line  # the first column has the other system's names
        spans = SPAN.findall(told)
        inside = [root / span for span in spans if FILE.fullmatch(span) and span.startswith(("src/", DETAIL))]
        text = "\n".join([public] + [path.read_text(encoding="utf-8") for path in inside if path.is_file()])
        findings += [f"{page.path}:{number}: include/ferry has no {span}" for span in spans
                     if NAME.fullmatch(span) and not has_name(text, span)]
    return findings


def paragraphs(page):
    """[(line, words)] of the prose; an item of a list is one, a line of a table none."""
    found = []
    open_at = None
    for number, line in page.prose:
        ends = not line.strip() or line.startswith(("|", "#"))
        if ends or re.match(r"\s*(?:[-*]|\d+\.)\s", line):
            open_at = None
        if not ends:
            if open_at is None or open_at != number - 1:
                found.append([number, 0])
            found[-1][1] += len(line.split())
            open_at = number
    return found


def check_lengths(page):
    if page.path in REFERENCES or not page.path.startswith("docs/") or page.path.startswith("docs/lab/"):
        return []
    words = sum(bool(re.search(r"\w", word)) for _, line in page.prose + page.code for word in line.split())
    findings = [f"{page.path}: {words} words, at most {MOST_WORDS}"] if words > MOST_WORDS else []
    return findings + [f"{page.path}:{number}: a paragraph of {count} words, at most {MOST_WORDS_OF_PARAGRAPH}"
                       for number, count in paragraphs(page) if count > MOST_WORDS_OF_PARAGRAPH]


def pages_under(root):
    """Those of the project: what else lies in the clone, such as environments and builds, is of others."""
    found = [(path.name, path.read_text(encoding="utf-8")) for path in sorted(root.glob("*.md"))]
    found += sources.files_under(root, FOLDERS, (".md",))
    return {path: Page(path, text) for path, text in found if "/." not in path}


def output_of(*command):
    """What the command prints; None where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def check(root, binary):
    """(pages, findings); without a binary the commands are left out."""
    pages = pages_under(root)
    findings = []
    texts = {}
    if binary:
        dev_words = words_of_dev(output_of(str(root / "dev"), "help") or "")

    def help_of(command):
        if command not in texts:
            *parents, last = command.split()
            text = output_of(binary, *parents, last, "--help")
            texts[command] = None if text == output_of(binary, *parents, "--help") else text  # it skips unknown words
        return texts[command]

    for page in pages.values():
        findings += check_links(page, pages, root) + check_files(page, root) + check_lengths(page)
        if binary:
            findings += check_commands(page, help_of, dev_words)
    findings += check_comments(root)
    for name in NAMES_PAGES:
        findings += check_names(pages[name], root) if name in pages else []
    return pages, findings


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=pathlib.Path)
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--ferry", help="the binary that knows its commands")
    how.add_argument("--without-commands", action="store_true")
    asked = parser.parse_args()
    pages, findings = check(asked.root.resolve(), asked.ferry)
    return sources.finish("docs", len(pages), findings)


if __name__ == "__main__":
    sys.exit(main())
