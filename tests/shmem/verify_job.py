#!/usr/bin/env python3
"""Runs the conformance suite as so many processes and prints its table. Fails where a case fails, and where one is left
out that so many processes can run. Skipped may be only what needs more ranks, cases of ranks that are one process, and
what is about what worlds of OpenSHMEM cannot do, or only other worlds cannot.

usage: verify_job.py [--in-all] LAUNCHER PROCESSES FERRY [option of ferry verify]...
--in-all: only where FERRY_TEST_ALL is set (./dev test --all); elsewhere the exit code is 77.
"""
import json
import os
import re
import subprocess
import sys

SKIPPED = 77
OF_OTHER_WORLDS = ("the ranks of this backend are not one process", "the exchanges of this world do all of it",
                   "the exchanges of this world cannot give memory back")


def may_be_skipped(reason, processes):
    more = re.match(r"needs (\d+) ranks", reason)
    return reason in OF_OTHER_WORLDS or (more is not None and int(more[1]) > processes)


def is_left_out(case, processes):
    """Of a case of the report that `ferry verify --json` prints."""
    return case["result"] == "skipped" and not may_be_skipped(case["detail"], processes)


def main():
    arguments = sys.argv[1:]
    if arguments[0] == "--in-all":
        if not os.environ.get("FERRY_TEST_ALL"):
            print("left to ./dev test --all")
            return SKIPPED
        arguments = arguments[1:]
    launcher, processes, ferry, *options = arguments
    done = subprocess.run([launcher, "-np", processes, ferry, "verify", "--backend", "shmem", "--json", *options],
                          stdout=subprocess.PIPE, text=True)
    if not done.stdout:
        return done.returncode or 1
    report = json.loads(done.stdout)
    left_out = 0
    for case in report["cases"]:
        wrong = is_left_out(case, int(processes))
        left_out += wrong
        print(f'{"LEFT OUT" if wrong else case["result"]:9}{case["case"]:34}{case["seconds"]:8.2f} s  {case["detail"]}')
    print(f'{report["ok"]} ok, {report["skipped"]} skipped, {left_out} of them left out, {report["failed"]} failed')
    return 1 if left_out or report["failed"] else done.returncode


if __name__ == "__main__":
    sys.exit(main())
