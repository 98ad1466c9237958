#!/usr/bin/env python3
"""Tests of the runners of classes in tests/support: what was skipped whole has not passed. That of pytest has a test in
python/tests, where pytest is."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

RUNNERS = pathlib.Path(__file__).resolve().parent.parent / "tests" / "support"
PASSED, FAILED, SKIPPED = 0, 1, 77

CLASSES = """import unittest
class PassedTests(unittest.TestCase):
    def test_one(self): pass
    @unittest.skip("no GPU was found")
    def test_other(self): pass
class FailedTests(unittest.TestCase):
    def test_one(self): self.fail("OK (skipped=1)")
class SkippedTests(unittest.TestCase):
    def setUp(self): self.skipTest("no GPU was found")
    def test_one(self): pass
    def test_other(self): pass
class EmptyTests(unittest.TestCase): pass
"""


class RunnerTests(unittest.TestCase):
    def test_exit_codes(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "test_some.py").write_text(CLASSES, encoding="utf-8")
            for runner in ("run_class.py", "beside.py"):
                for name, code in (("Passed", PASSED), ("Failed", FAILED), ("Skipped", SKIPPED), ("Empty", FAILED)):
                    with self.subTest(runner=runner, name=name):
                        done = subprocess.run([sys.executable, RUNNERS / runner, f"test_some.{name}Tests"], cwd=folder,
                                              capture_output=True, timeout=60, check=False)
                        self.assertEqual(done.returncode, code)


if __name__ == "__main__":
    unittest.main()
