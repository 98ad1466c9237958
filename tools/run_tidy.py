#!/usr/bin/env python3
"""clang-tidy of every file of a build folder whose path matches, each as it is compiled there, where ccache does not know
that it is clean.

usage: run_tidy.py CLANG_TIDY JOBS FOLDER REGEX [FOLDER REGEX]...
Prints what was found, and how many files were looked at. tools/tidy_object.sh says how ccache comes to know.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

TOOLS = pathlib.Path(__file__).resolve().parent
SETTINGS = TOOLS.parent / ".clang-tidy"
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


def look_at(file, options, environment):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["ccache", TOOLS / "tidy_object.sh", *options, "-c", file, "-o", f"{folder}/object"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, check=False)
    return done.returncode, done.stdout


def main():
    clang_tidy, jobs, *places = sys.argv[1:]
    version = subprocess.run([clang_tidy, "--version"], capture_output=True, text=True, check=True).stdout
    environment = os.environ | {
        "CLANG_TIDY": clang_tidy, "CCACHE_COMPILERTYPE": "gcc", "CCACHE_COMPILERCHECK": f"string:{version}",
        "CCACHE_EXTRAFILES": f"{SETTINGS}:{TOOLS / 'tidy_object.sh'}",
        "CCACHE_COMMENTS": "1"}  # NOLINT is a comment
    commands = sorted(set().union(*(commands_of(*place) for place in zip(places[::2], places[1::2]))))
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(int(jobs)) as pool:
        for code, said in pool.map(lambda command: look_at(*command, environment), commands):
            if code != 0:
                failed += 1
                print(said, end="" if said.endswith("\n") else "\n", flush=True)
    print(f"tidy: {len(commands)} files, {failed} with findings")
    return 1 if failed or not commands else 0


if __name__ == "__main__":
    sys.exit(main())
