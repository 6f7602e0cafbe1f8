#!/usr/bin/env python3
"""Counts what a ctest run found.

  test_results.py RESULTS                       prints "passed failed skipped"
  test_results.py --instruction-sets RESULTS…   prints the instruction sets that the tests ran on

RESULTS holds ctest.xml (ctest --output-junit) and one JSON file per GoogleTest program (GTEST_OUTPUT=json:RESULTS/).
A GoogleTest program counts as many tests as it has cases, a Python unittest run as many as it ran, any other ctest
entry as one. An entry that ctest calls failed counts at least one failure, whatever its own report says.
"""

import argparse
import json
import re
import sys
import xml.etree.ElementTree
from pathlib import Path


def gtest_cases(report):
    for suite in report.get("testsuites", []):
        yield from suite.get("testsuite", [])


def outcome(case):
    if case.get("failures"):
        return "failed"
    return "skipped" if case.get("result") == "SKIPPED" else "passed"


def read_gtest(path):
    """{"passed": n, …} of a GoogleTest report, or None when the program did not get to write it whole."""
    try:
        report = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    counts = dict.fromkeys(("passed", "failed", "skipped"), 0)
    for case in gtest_cases(report):
        if case.get("status") == "RUN":
            counts[outcome(case)] += 1
    return counts


def read_unittest(output):
    """The same of the closing lines of Python's unittest, or None."""
    ran = re.search(r"^Ran (\d+) tests? in ", output, re.MULTILINE)
    if ran is None:
        return None
    numbers = {kind: int(n) for kind, n in re.findall(r"(failures|errors|skipped)=(\d+)", output[ran.end() :])}
    failed = numbers.get("failures", 0) + numbers.get("errors", 0)
    skipped = numbers.get("skipped", 0)
    return {"passed": max(0, int(ran.group(1)) - failed - skipped), "failed": failed, "skipped": skipped}


def count(results):
    total = dict.fromkeys(("passed", "failed", "skipped"), 0)
    for entry in xml.etree.ElementTree.parse(results / "ctest.xml").getroot().iter("testcase"):
        counts = read_gtest(results / f"{entry.get('name')}.json")
        if counts is None:
            counts = read_unittest(entry.findtext("system-out") or "")
        if counts is None:
            counts = dict.fromkeys(total, 0)
            if entry.get("status") == "run":
                counts["passed"] = 1
        if entry.get("status") == "fail" and counts["failed"] == 0:
            counts["failed"] = 1
        if entry.get("status") in ("notrun", "disabled"):
            counts["failed" if entry.get("status") == "notrun" else "skipped"] += 1
        for kind in total:
            total[kind] += counts[kind]
    return total


def instruction_sets(folders):
    """{name: whether a test ran on it} from the property that tests record."""
    found = {}
    for folder in folders:
        for path in sorted(folder.glob("*.json")):
            try:
                report = json.loads(path.read_text())
            except ValueError:
                continue
            for case in gtest_cases(report):
                if "instruction_set" in case:
                    ran = outcome(case) != "skipped"
                    found[case["instruction_set"]] = found.get(case["instruction_set"], False) or ran
    return found


def main():
    parser = argparse.ArgumentParser(description="Counts what a ctest run found.")
    parser.add_argument("--instruction-sets", action="store_true")
    parser.add_argument("results", nargs="+", type=Path)
    arguments = parser.parse_args()
    if arguments.instruction_sets:
        found = instruction_sets(arguments.results)
        ran = [name for name, did in found.items() if did]
        skipped = [name for name, did in found.items() if not did]
        print("Instruction sets the kernels were tested on: " + (", ".join(sorted(ran)) or "none recorded"))
        if skipped:
            print("Not on this processor: " + ", ".join(sorted(skipped)))
    else:
        total = count(arguments.results[0])
        print(total["passed"], total["failed"], total["skipped"])


if __name__ == "__main__":
    sys.exit(main())
