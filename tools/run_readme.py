#!/usr/bin/env python3
"""Types what sections of the pages say to type, one after another in a folder of its own, and fails where a command
fails.

usage: run_readme.py ROOT BINARY FOLDER HEADING PAGE...
FOLDER gets what the commands expect of a clone after a build: examples/ and build/release/ferry. HEADING is that of the
section in each PAGE.
"""

import pathlib
import re
import shutil
import subprocess
import sys


def commands_of(readme, heading):
    """The first shell block of the section with that heading; None without one."""
    section = re.search(rf"^#+ {re.escape(heading)}$(.*?)(?=^#+ |\Z)", readme, re.MULTILINE | re.DOTALL)
    block = section and re.search(r"^```sh\n(.*?)^```$", section.group(1), re.MULTILINE | re.DOTALL)
    return block.group(1) if block else None


def run(commands, root, binary, folder):
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "build" / "release").mkdir(parents=True)
    (folder / "build" / "release" / "ferry").symlink_to(binary)
    (folder / "examples").symlink_to(root / "examples")
    return subprocess.run(["bash", "-euxo", "pipefail", "-c", commands], cwd=folder, check=False).returncode


def main():
    root, binary, folder = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
    heading, *pages = sys.argv[4:]
    commands = [commands_of((root / page).read_text(encoding="utf-8"), heading) for page in pages]
    if not all(commands):
        print(f"{' or '.join(pages)}: no shell block under the heading {heading}")
        return 1
    return run("".join(commands), root, binary, folder)


if __name__ == "__main__":
    sys.exit(main())
