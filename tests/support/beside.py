#!/usr/bin/env python3
"""Runs the tests of one class beside each other: so many at once, or one for each core.

usage: beside.py <module>.<Class> [AT_ONCE]     (in the folder of the module)
Each runs in a Python of its own, so signals and the names of its network are its own, too. Exit code 77 where every one
of them was skipped.
"""
import concurrent.futures
import os
import subprocess
import sys
import unittest

SAYS_SKIPPED = "OK (skipped="
SKIPPED = 77


def run(test):
    return subprocess.run([sys.executable, "-m", "unittest", "-v", test], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)


def main():
    sys.path[0] = os.getcwd()
    tests = [test.id() for test in unittest.defaultTestLoader.loadTestsFromName(sys.argv[1])]
    failed = skipped = 0
    at_once = int(sys.argv[2]) if len(sys.argv) > 2 else len(os.sched_getaffinity(0))
    with concurrent.futures.ThreadPoolExecutor(at_once) as cores:
        for done in cores.map(run, tests):
            failed += done.returncode != 0
            skipped += done.returncode == 0 and SAYS_SKIPPED in done.stdout
            # What one test ends with must not be taken for the end of all.
            print(done.stdout if done.returncode != 0 else done.stdout.split("\n-----")[0], flush=True)
    print(f"Ran {len(tests)} tests")
    if failed or not tests:
        print(f"FAILED ({failed})")
        return 1
    print(f"{SAYS_SKIPPED}{skipped})" if skipped else "OK")
    return SKIPPED if skipped == len(tests) else 0


if __name__ == "__main__":
    sys.exit(main())
