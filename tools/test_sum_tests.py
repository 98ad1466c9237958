#!/usr/bin/env python3
"""Tests of sum_tests.py: what adds up, and what must fail."""

import contextlib
import io
import pathlib
import tempfile
import unittest

import sum_tests


class SumTests(unittest.TestCase):
    GOOD = '<testsuite tests="3"><testcase name="unit/a" status="run"/><testcase name="unit/b" status="disabled"/>' \
           '<testcase name="cli/c" status="notrun"><skipped/></testcase></testsuite>'

    def run_on(self, *texts, require=()):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for index, text in enumerate(texts):
                paths.append(str(pathlib.Path(folder) / f"{index}.xml"))
                if text is not None:
                    pathlib.Path(paths[-1]).write_text(text, encoding="utf-8")
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                code = sum_tests.main([part for prefix in require for part in ("--require", prefix)] + paths)
            return code, output.getvalue().splitlines()[-1]

    def test_results_add_up(self):
        self.assertEqual(self.run_on(self.GOOD, self.GOOD, require=["0:unit/", "1:unit/"]), (0, "2 passed, 0 failed, 4 skipped"))

    def test_a_failure_fails(self):
        bad = self.GOOD.replace('status="run"/>', 'status="fail"><failure message=""/></testcase>')
        self.assertEqual(self.run_on(self.GOOD, bad), (1, "1 passed, 1 failed, 4 skipped"))
        odd = self.GOOD.replace('status="run"', 'status="lost"')
        self.assertEqual(self.run_on(odd), (1, "0 passed, 1 failed, 2 skipped"))

    def test_no_result_fails(self):
        for texts in ((), (None,), ("",), ('<testsuite tests="0"></testsuite>',), (self.GOOD, None),
                      (self.GOOD.replace('tests="3"', 'tests="4"'),)):
            self.assertEqual(self.run_on(*texts)[0], 1, texts)

    def test_reasons_of_skipped_tests(self):
        skipped = '<testcase name="gpu/{0}" status="notrun"><skipped/><system-out>{1}</system-out></testcase>'
        outputs = ("x.cpp:28: Skipped\nno GPU was found\n\n[  SKIPPED ] A.B (0 ms)", "a ... skipped 'no GPU was found'\n",
                   "gpu_stress: skipped: no GPU was found", "nothing",
                   "= short test summary info =\nSKIPPED [2] python/tests/test_x.py:44: this build has no NVSHMEM\n2 skipped")
        text = '<testsuite tests="5">' + "".join(map(skipped.format, range(5), outputs)) + "</testsuite>"
        self.assertEqual(self.run_on(text)[0], 1)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "gpu.xml"
            path.write_text(text, encoding="utf-8")
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                self.assertEqual(sum_tests.main(["--may-skip-all", str(path)]), 0)
        self.assertIn("skipped 3: no GPU was found\n", output.getvalue())
        self.assertIn("skipped 1: no reason given\n", output.getvalue())
        self.assertIn("skipped 1: this build has no NVSHMEM\n", output.getvalue())

    def test_a_suite_that_vanished_fails(self):
        self.assertEqual(self.run_on(self.GOOD, require=["0:protocol/"])[0], 1)
        self.assertEqual(self.run_on(self.GOOD, require=["0:cli/"])[0], 1)
        self.assertEqual(self.run_on(self.GOOD, self.GOOD.replace("unit/", "cli/"), require=["1:unit/"])[0], 1)


if __name__ == "__main__":
    unittest.main()
