"""Prints what a commit's tree is like: files and lines of each folder, and the include graph of GPU code and the tool.

    python3 tools/measure_tree.py [COMMIT]

A line of the graph has the parts, the levels (the longest chain of parts of which each includes the next; parts that
include each other are one) and the arrows between parts. Parts are the folders of the room, and the files that lie in
none of them.
"""

import collections
import functools
import re
import subprocess
import sys

ROOMS = ("include/", "src/", "tool/", "apps/")
GRAPHS = {"src/cuda": ("src/cuda/",), "GPU code that compiled hooks need": ("include/ferry/detail/cuda/",),
          "tool": ("tool/", "apps/ferry/")}
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


def git(*arguments):
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def sources_of(commit):
    """The text of each source file, by path."""
    names = git("ls-tree", "-r", "--name-only", commit).splitlines()
    kept = [name for name in names if name.startswith(ROOMS) and re.search(r"\.(h|cuh|cpp|cu)$", name)]
    return {name: git("show", f"{commit}:{name}") for name in kept}


def folder_of(path):
    return path.rsplit("/", 1)[0]


def include_graph(sources, roots):
    """The parts below `roots`, and for each the parts that it includes."""
    def part_of(name):
        root = next(root for root in roots if name.startswith(root))
        return root + name[len(root):].split("/")[0]

    mine = [name for name in sources if name.startswith(roots)]
    graph = {part_of(name): set() for name in mine}
    for name in mine:
        for included in INCLUDE.findall(sources[name]):
            ends = [other for other in mine if other == included or other.endswith("/" + included)]
            graph[part_of(name)].update(part_of(other) for other in ends[:1] if part_of(other) != part_of(name))
    return graph


def components(graph):
    """For each part the parts with which it includes each other in a circle."""
    @functools.cache
    def reached(part):
        seen, open_parts = set(), [part]
        while open_parts:
            for other in graph[open_parts.pop()] - seen:
                seen.add(other)
                open_parts.append(other)
        return seen

    return {part: frozenset({part} | {other for other in reached(part) if part in reached(other)}) for part in graph}


def levels_of(graph):
    circle = components(graph)

    @functools.cache
    def depth(part):
        below = [depth(min(circle[other])) for one in circle[part] for other in graph[one] - circle[part]]
        return 1 + max(below, default=0)

    return max((depth(min(circle[part])) for part in graph), default=0)


def main():
    commit = sys.argv[1] if len(sys.argv) > 1 else "HEAD"
    sources = sources_of(commit)
    folders = collections.defaultdict(list)
    for name, text in sources.items():
        folders[folder_of(name)].append(text.count("\n"))
    for folder, lines in sorted(folders.items()):
        print(f"{len(lines):5} files {sum(lines):7} lines  {folder}")
    for name, roots in GRAPHS.items():
        graph = include_graph(sources, roots)
        arrows = sum(len(others) for others in graph.values())
        print(f"{name}: {len(graph)} parts, {levels_of(graph)} levels, {arrows} arrows")


if __name__ == "__main__":
    main()
