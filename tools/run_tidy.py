#!/usr/bin/env python3
"""clang-tidy of every file of a build folder whose path matches, each as it is compiled there, where ccache does not know
that it is clean.

usage: run_tidy.py [--together REGEX] CLANG_TIDY JOBS FOLDER REGEX [FOLDER REGEX]...
Prints what was found, and how many files were looked at. tools/tidy_object.sh says how ccache comes to know.
Files that match the first REGEX are looked at as one text of several, since most of the time is headers that all of them
include. Where that text is not clean, each of its files is looked at alone, and only what is found then counts.
"""

import argparse
import collections
import concurrent.futures
import hashlib
import itertools
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

import together

TOOLS = pathlib.Path(__file__).resolve().parent
ROOT = TOOLS.parent
SETTINGS = ROOT / ".clang-tidy"
MAKES_NO_DIFFERENCE = {"-MD": 1, "-MT": 2, "-MF": 2, "-o": 2, "-c": 1}  # and how many words it is


def options_of(command):
    """The words of a compiler's command without the compiler, its output and its source."""
    words = command["arguments"] if "arguments" in command else shlex.split(command["command"])
    words = words[next(i for i, word in enumerate(words) if word.startswith("-")):]
    kept = []
    while words:
        step = MAKES_NO_DIFFERENCE.get(words[0], 1)
        if words[0] not in MAKES_NO_DIFFERENCE and words[0] != command["file"]:
            kept.append(words[0])
        words = words[step:]
    return kept


def commands_of(folder, pattern):
    """(file, options) of each command; a file may be compiled with several."""
    commands = json.loads((pathlib.Path(folder) / "compile_commands.json").read_text(encoding="utf-8"))
    return {(command["file"], tuple(options_of(command))) for command in commands if re.search(pattern, command["file"])}


def texts_of(commands, pattern):
    """The commands as lists of those that are looked at as one text."""
    groups = collections.defaultdict(list)
    for file, options in commands:
        alone = pattern is None or not re.search(pattern, file)
        groups[file if alone else os.path.dirname(file), options].append(file)
    return [[(file, options) for file in files] for (_, options), all_files in groups.items() for files in together.in_texts(all_files)]


def text_of(files):
    """One text of several files. A macro between two says that what the first includes is not there twice."""
    return "".join(f"#define FERRY_TIDY_FILE_{i}\n{pathlib.Path(file).read_text(encoding='utf-8')}" for i, file in enumerate(files))


def settings_of(file):
    """The .clang-tidy of the folders below the tree's that the file is in."""
    return [folder / SETTINGS.name for folder in pathlib.Path(file).parents
            if ROOT in folder.parents and (folder / SETTINGS.name).exists()]


def write_text(files, folder):
    """The path of the text of these files, in a folder like theirs, where the same .clang-tidy counts."""
    for settings in settings_of(files[0]):
        copied = folder / settings.relative_to(ROOT)
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(settings, copied)
    names = [os.path.relpath(file, ROOT) for file in files]
    first = pathlib.Path(names[0] if not names[0].startswith("..") else os.path.basename(names[0]))
    text = (folder / first).with_suffix(f".{hashlib.sha256(' '.join(names).encode()).hexdigest()[:12]}.cpp")
    text.parent.mkdir(parents=True, exist_ok=True)
    text.write_text(text_of(files), encoding="utf-8")
    return str(text)


def look_at_all(text, commands, environment):
    """(code, what was said) of each file. text: the path of that of all of them, where they have one."""
    if text is not None:
        file, options = commands[0]
        if look_at(text, (*options, f"-iquote{os.path.dirname(file)}"), environment)[0] == 0:
            return [(0, "")] * len(commands)
    return [look_at(file, options, environment) for file, options in commands]


def look_at(file, options, environment):
    environment = environment | {"CCACHE_EXTRAFILES": ":".join(map(str, [SETTINGS, TOOLS / "tidy_object.sh", *settings_of(file)]))}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["ccache", TOOLS / "tidy_object.sh", *options, "-c", file, "-o", f"{folder}/object"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, check=False)
    return done.returncode, done.stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--together")
    parser.add_argument("rest", nargs="+")
    arguments = parser.parse_args()
    clang_tidy, jobs, *places = arguments.rest
    version = subprocess.run([clang_tidy, "--version"], capture_output=True, text=True, check=True).stdout
    environment = os.environ | {
        "CLANG_TIDY": clang_tidy, "CCACHE_COMPILERTYPE": "gcc", "CCACHE_COMPILERCHECK": f"string:{version}",
        "CCACHE_COMMENTS": "1"}  # NOLINT is a comment
    commands = sorted(set().union(*(commands_of(*place) for place in zip(places[::2], places[1::2]))))
    folder = pathlib.Path(places[0]).resolve() / "texts"
    shutil.rmtree(folder, ignore_errors=True)
    texts = texts_of(commands, arguments.together)
    paths = [write_text([file for file, _ in text], folder) if len(text) > 1 else None for text in texts]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(int(jobs)) as pool:
        for found in pool.map(look_at_all, paths, texts, itertools.repeat(environment)):
            for _, said in filter(lambda one: one[0] != 0, found):
                failed += 1
                print(said, end="" if said.endswith("\n") else "\n", flush=True)
    print(f"tidy: {len(commands)} files in {len(texts)} texts, {failed} with findings")
    return 1 if failed or not commands else 0


if __name__ == "__main__":
    sys.exit(main())
