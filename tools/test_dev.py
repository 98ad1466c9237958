#!/usr/bin/env python3
"""Tests of ./dev: what it refuses, before it installs or builds anything."""

import pathlib
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


if __name__ == "__main__":
    unittest.main()
