#!/usr/bin/env python3
"""Runs the tests of one class, or of one module. Exit code 77 where every one of them was skipped: a class that ran
nothing is not one that passed, whatever its reason.

usage: run_class.py <module>[.<Class>]     (in the folder of the module)
"""
import os
import sys
import unittest

SKIPPED = 77


def main():
    sys.path[0] = os.getcwd()
    tests = unittest.defaultTestLoader.loadTestsFromName(sys.argv[1])
    result = unittest.TextTestRunner(verbosity=2).run(tests)
    if not result.wasSuccessful() or result.testsRun == 0:
        return 1
    return SKIPPED if len(result.skipped) == result.testsRun else 0


if __name__ == "__main__":
    sys.exit(main())
