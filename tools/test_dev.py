#!/usr/bin/env python3
"""Tests of ./dev: what it refuses, before it installs or builds anything."""

import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent


def dev(*arguments):
    return subprocess.run([ROOT / "dev", *arguments], capture_output=True, text=True, timeout=60, check=False)


class RefusalTests(unittest.TestCase):
    def assert_refused(self, done, *words):
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        for word in words:
            self.assertIn(word, done.stderr)

    def test_presets(self):
        for arguments in (["build", "nosuch"], ["test", "nosuch"], ["test", "release", "nosuch"]):
            with self.subTest(arguments=arguments):
                done = dev(*arguments)
                self.assert_refused(done, "dev: there is no preset nosuch", "release, debug, tsan, cuda-compile, cuda")
                self.assertEqual(done.stderr.count("\n"), 1)

    def test_commands(self):
        self.assert_refused(dev("nosuch"), "no command nosuch", "usage: ./dev")


class ProgressTests(unittest.TestCase):
    """What a build says where it has no terminal, from what ninja says."""

    def some_progress(self, text):
        function = re.search(r"^some_progress\(\) {$.*?^}$", (ROOT / "dev").read_text(), re.MULTILINE | re.DOTALL).group()
        script = "say() { printf '== %s\\n' \"$*\"; }\n" + function + "\nsome_progress"
        return subprocess.run(["bash", "-c", script], input=text, capture_output=True, text=True, timeout=60,
                              check=True).stdout.splitlines()

    def test_a_line_for_each_tenth(self):
        said = self.some_progress("".join(f"[{step}/200] Building CXX object a{step}.o\n" for step in range(201)))
        self.assertEqual(said, [f"== {20 * tenth} of 200 built ({10 * tenth} %)" for tenth in range(1, 11)])

    def test_all_that_is_no_progress_stays(self):
        others = ["FAILED: a.o", "a.cpp:3:1: error: expected '}'", "ninja: build stopped: subcommand failed."]
        said = self.some_progress("\n".join(["ninja: Entering directory `build'", "[1/2] Building a.o", *others, ""]))
        self.assertEqual(said, ["== 1 of 2 built (50 %)", *others])
        self.assertEqual(self.some_progress("ninja: no work to do.\n"), [])


if __name__ == "__main__":
    unittest.main()
