#!/usr/bin/env python3
"""Adds up result files (JUnit XML, as ctest --output-junit writes it) and prints one closing line.

usage: sum_tests.py [--require RESULT:PREFIX]... [--may-skip-all] RESULT.xml...
Exit code 1 where a test failed, a file is missing or holds no test, no test of RESULT.xml whose name starts with PREFIX
passed, though that is required, or none passed at all, unless --may-skip-all. Then the reasons of the skipped tests are
printed, too.
"""

import argparse
import collections
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree


# What GoogleTest, Python's unittest, this project's own test programs and pytest print.
REASON = re.compile(r": Skipped\n(.+)|skipped '(.+?)'\n|: skipped: (.+)|^SKIPPED \[\d+\] [^:\n]+:(?:\d+:)? (.+)", re.MULTILINE)


def reason(case):
    """Why a skipped test says that it is."""
    match = REASON.search((case.findtext("system-out") or "") + "\n")
    return next(text for text in match.groups() if text) if match else "no reason given"


def outcome(case):
    """passed, failed or skipped: what a test case says of itself. Anything unknown is a failure."""
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    if case.find("skipped") is not None or case.get("status") == "disabled":
        return "skipped"
    return "passed" if case.get("status") == "run" else "failed"


def read(path):
    """[(name, outcome, reason)] of one result file. A count in its head that its cases do not bear out is an error."""
    suite = ElementTree.parse(path).getroot()
    cases = [(case.get("name"), outcome(case), reason(case)) for case in suite.iter("testcase")]
    if suite.get("tests") != str(len(cases)):
        raise ValueError(f"says {suite.get('tests')} tests but lists {len(cases)}")
    if not cases:
        raise ValueError("holds no test")
    return cases


def line(count):
    return f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped"


def main(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("--require", action="append", default=[])
    parser.add_argument("--may-skip-all", action="store_true")
    parser.add_argument("results", nargs="*", type=pathlib.Path)
    options = parser.parse_args(arguments)

    total = collections.Counter()
    passed_names = set()
    reasons = collections.Counter()
    faults = [] if options.results else ["no result file"]
    for path in options.results:
        try:
            cases = read(path)
        except (OSError, ValueError, ElementTree.ParseError) as error:
            faults.append(f"{path}: {error}")
            continue
        count = collections.Counter(result for _, result, _ in cases)
        total += count
        passed_names |= {f"{path.stem}:{name}" for name, result, _ in cases if result == "passed"}
        faults += [f"{path.stem}: {name} failed" for name, result, _ in cases if result == "failed"]
        reasons.update(why for _, result, why in cases if result == "skipped")
        print(f"{path.stem}: {line(count)}")
    faults += [f"no test {prefix}* passed" for prefix in options.require
               if not any(name.startswith(prefix) for name in passed_names)]
    for fault in faults:
        print(fault)
    if options.may_skip_all:
        for why, count in reasons.most_common():
            print(f"skipped {count}: {why}")
    print(line(total))
    return 1 if faults or (total["passed"] == 0 and not options.may_skip_all) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
