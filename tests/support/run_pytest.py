#!/usr/bin/env python3
"""Runs pytest. Exit code 77 where every test was skipped, whatever its reason, else that of pytest: what a failed test
prints, such as lines of its source, says nothing.

usage: run_pytest.py <what pytest is given>...
"""
import os
import sys

import pytest

SKIPPED = 77
SECONDS_TO_TRACES = 20  # a test that takes longer prints where its threads are, before the default deadline ends it


class Outcomes:
    """How many tests ran, and how many tests or files were skipped."""

    def __init__(self):
        self.ran = self.skipped = 0

    def pytest_runtest_logreport(self, report):
        self.skipped += report.skipped
        self.ran += report.when == "call" and not report.skipped

    def pytest_collectreport(self, report):
        self.skipped += report.skipped


def main():
    sys.path[0] = os.getcwd()
    outcomes = Outcomes()
    code = pytest.main([*sys.argv[1:], "-o", f"faulthandler_timeout={SECONDS_TO_TRACES}"], plugins=[outcomes])
    all_skipped = outcomes.skipped > 0 and outcomes.ran == 0
    return SKIPPED if all_skipped and code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) else int(code)


if __name__ == "__main__":
    sys.exit(main())
