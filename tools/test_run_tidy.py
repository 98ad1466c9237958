#!/usr/bin/env python3
"""run_tidy.py with a clang-tidy that finds the word BAD: what ccache knows is not looked at again, and nothing is missed."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parent / "run_tidy.py"
FINDER = """#!/bin/sh
[ "$1" != --version ] || exec echo "$0 1"
echo looked >>{folder}/looks
! grep -H BAD "$2" {folder}/part.h || exit 1
"""


@unittest.skipUnless(shutil.which("ccache"), "ccache was not found")
class RunTidyTests(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.write("part.h", "inline int part() { return 1; }  // one\n")
        self.write("main.cpp", '#include "part.h"\nint main() { return part(); }\n')
        self.write("finder", FINDER.format(folder=self.folder)).chmod(0o755)
        self.options = ["-I", str(self.folder), f"-I{self.folder}", "-O1"]

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def run_tidy(self, pattern=r"main\.cpp$"):
        """(exit code, how often the finder looked, what was said)"""
        command = {"directory": str(self.folder), "file": str(self.folder / "main.cpp"),
                   "arguments": ["ccache", "/usr/bin/c++", *self.options, "-MD", "-MF", "x.d", "-o", "x.o", "-c",
                                 str(self.folder / "main.cpp")]}
        self.write("compile_commands.json", json.dumps([command]))
        self.write("looks", "")
        done = subprocess.run([sys.executable, TOOL, self.folder / "finder", "1", self.folder, pattern], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=self.folder, check=False, timeout=120,
                              env=os.environ | {"CCACHE_DIR": str(self.folder / "cache"), "CCACHE_BASEDIR": str(self.folder),
                                                "CCACHE_NOHASHDIR": "1"})
        return done.returncode, (self.folder / "looks").read_text().count("looked"), done.stdout

    def test_a_clean_file_is_looked_at_once(self):
        self.assertEqual(self.run_tidy()[:2], (0, 1))
        self.assertEqual(self.run_tidy()[:2], (0, 0))

    def test_a_changed_file_header_comment_or_option_is_looked_at_again(self):
        self.run_tidy()
        self.write("part.h", "inline int part() { return 2; }  // one\n")
        self.assertEqual(self.run_tidy()[:2], (0, 1), "a header")
        self.write("part.h", "inline int part() { return 2; }  // two\n")
        self.assertEqual(self.run_tidy()[:2], (0, 1), "a comment")
        self.options.append("-std=c++20")
        self.assertEqual(self.run_tidy()[:2], (0, 1), "an option")

    def test_findings_are_said_each_time(self):
        self.run_tidy()
        self.write("part.h", "inline int part() { return 1; }  // BAD\n")
        for _ in range(2):
            code, looks, said = self.run_tidy()
            self.assertEqual((code, looks), (1, 1))
            self.assertIn("BAD", said)
            self.assertIn("1 files, 1 with findings", said)

    def test_no_file_at_all_is_no_success(self):
        self.assertEqual(self.run_tidy("nothing")[0], 1)


if __name__ == "__main__":
    unittest.main()
