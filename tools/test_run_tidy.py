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

    def run_tidy(self, pattern=r"main\.cpp$", together=()):
        """(exit code, how often the finder looked, what was said)"""
        commands = [{"directory": str(self.folder), "file": str(file),
                     "arguments": ["ccache", "/usr/bin/c++", *self.options, "-MD", "-MF", "x.d", "-o", "x.o", "-c", str(file)]}
                    for file in sorted(self.folder.glob("*.cpp"))]
        self.write("compile_commands.json", json.dumps(commands))
        self.write("looks", "")
        done = subprocess.run([sys.executable, TOOL, *together, self.folder / "finder", "1", self.folder, pattern], text=True,
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
            self.assertIn("1 files in 1 texts, 1 with findings", said)

    def test_files_without_common_names_are_looked_at_as_one_text(self):
        own = "namespace {{\nint {0}() {{ return 1; }}\n}}  // namespace\nint of_{1} = {0}();\n"
        for name in "abc":
            self.write(f"{name}_test.cpp", own.format("one" if name == "a" else "other", name))
        together = ("--together", r"_test\.cpp$")
        code, looks, said = self.run_tidy(r"\.cpp$", together)  # main; a and b; c, whose name b has
        self.assertEqual((code, looks), (0, 3), said)
        self.assertIn("4 files in 3 texts, 0 with findings", said)
        self.write("b_test.cpp", own.format("other", "b") + "// BAD\n")
        code, looks, said = self.run_tidy(r"\.cpp$", together)  # the text of a and b, then each of them
        self.assertEqual((code, looks), (1, 3), said)
        self.assertIn("b_test.cpp", said)
        self.assertIn("1 with findings", said)
        self.assertEqual(self.run_tidy(r"\.cpp$")[:2], (1, 1), "b: the others are known to be clean, alone, too")

    def test_one_text_is_a_line_in_which_paths_may_have_spaces(self):
        files = [self.write(f"{name} test.cpp", f"int {name};\n") for name in "ab"]
        done = subprocess.run([sys.executable, TOOL.parent / "together.py", *files], capture_output=True, text=True, check=True)
        self.assertEqual([line.split("\t") for line in done.stdout.splitlines()], [[str(file) for file in files]])

    def test_no_file_at_all_is_no_success(self):
        self.assertEqual(self.run_tidy("nothing")[0], 1)


if __name__ == "__main__":
    unittest.main()
