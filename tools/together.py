#!/usr/bin/env python3
"""Which sources can be one text: where several are compiled or looked at together, most of their headers are read once.

usage: together.py FILE...
Prints one line for each text: the paths of its files, with a tab between two, which no path has.
"""

import pathlib
import re
import sys

SIZE = 8
# What a file declares for itself, in an unnamed namespace or as static.
DECLARED = re.compile(r"^(?!TEST|INSTANTIATE|TYPED|using [\w:]+;)(?:(?:struct|class|enum|enum class|using) (\w+)|"
                      r"[a-z_A-Z][\w:<>,&* ]*?\b(\w+)\s*[({=;\[])", re.M)
UNNAMED = re.compile(r"^namespace \{$(.*?)^\}  // namespace$", re.M | re.S)
STATIC = re.compile(r"^static .*$", re.M)
# Words that say nothing of a name outside of classes: in comments and literals, and names of members where they are used.
NO_NAMES = re.compile(r"//.*$|\"(?:\\.|[^\"\\\n])*\"|(?:\.|->)\w+", re.M)
ALONE = re.compile(r"^\s*#\s*(define|undef)\b|\bmain\(", re.M)


class Text:
    """Files of which none has a name of its own that another uses."""

    def __init__(self):
        self.files, self.own, self.words = [], set(), set()

    def takes(self, own, words):
        return len(self.files) < SIZE and not own & self.words and not self.own & words

    def add(self, file, own, words):
        self.files.append(file)
        self.own |= own
        self.words |= words


def names_of(text):
    """The names that a source has for itself, and all its words."""
    words = set(re.findall(r"[A-Za-z_]\w*", NO_NAMES.sub(" ", text)))
    if ALONE.search(text):
        return words, words
    inside = "".join(UNNAMED.findall(text)) + "\n".join(STATIC.findall(text))
    return {name for names in DECLARED.findall(inside) for name in names if name}, words


def in_texts(files):
    """The files in as few texts as come of taking the first text that has room for a file."""
    texts = []
    for file in files:
        own, words = names_of(pathlib.Path(file).read_text(encoding="utf-8"))
        fitting = next((text for text in texts if text.takes(own, words)), None)
        if fitting is None:
            fitting = Text()
            texts.append(fitting)
        fitting.add(file, own, words)
    return [text.files for text in texts]


if __name__ == "__main__":
    for text_files in in_texts(sys.argv[1:]):
        print("\t".join(text_files))
