#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a build folder's tests through ctest and counts them one by one.

    tools/run_tests.py BUILD_DIR [--filter REGEX] [--jobs N] [--counts FILE]

A GoogleTest program counts as many tests as it holds, any other ctest entry counts once. A program
that fails without a failed test of its own (it crashed, a sanitizer spoke at its end, or it ran
nothing) adds one failure, and so does a filter that selects no entry. The last line is
"P passed, F failed, S skipped"; --counts appends the three numbers to FILE. Status 1 if F > 0.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import defaultdict
from pathlib import Path


def executables(listing, build):
    """ctest entry name -> base name of the program it runs, from ctest --show-only=json-v1.

    That is the first word of the command that is a file directly in the build folder (an emulator
    may stand before it), else the first word.
    """
    names = {}
    build = Path(build).resolve()
    for test in listing.get("tests", []):
        command = test.get("command") or [test["name"]]
        built = [word for word in command if Path(word).parent == build]
        names[test["name"]] = Path((built or command)[0]).name
    return names


def read_entries(junit_text):
    """ctest entry name -> 'passed', 'failed' or 'skipped'."""
    outcome = {}
    for case in ET.fromstring(junit_text).iter("testcase"):
        status = case.get("status")
        if status == "run":
            outcome[case.get("name")] = "passed"
        elif case.find("skipped") is not None and status == "notrun" and \
                "SKIP" in (case.find("skipped").get("message") or ""):
            outcome[case.get("name")] = "skipped"
        elif status == "disabled":
            outcome[case.get("name")] = "skipped"
        else:
            outcome[case.get("name")] = "failed"
    return outcome


def report_counts(report):
    """(passed, failed, skipped) of one GoogleTest JSON report."""
    passed = failed = skipped = 0
    for suite in report.get("testsuites", []):
        for test in suite.get("testsuite", []):
            if test.get("failures"):
                failed += 1
            elif test.get("result") == "SKIPPED":
                skipped += 1
            elif test.get("status") == "RUN":
                passed += 1
    return passed, failed, skipped


def total(entries, programs, reports):
    """Sums entries and reports. `reports`: program -> list of (passed, failed, skipped)."""
    groups = defaultdict(list)
    for name, outcome in entries.items():
        groups[programs.get(name, name)].append(outcome)
    sums = [0, 0, 0]
    for program, outcomes in groups.items():
        found = reports.get(program, [])
        for counts in found:
            sums = [a + b for a, b in zip(sums, counts)]
        failed_entries = outcomes.count("failed")
        if found:
            # A failed entry is explained by a report with a failed test, each by one.
            unexplained = max(0, failed_entries - sum(1 for c in found if c[1] > 0))
            without_report = max(0, len(outcomes) - len(found) - unexplained)
            sums[0] += without_report
            sums[1] += unexplained
        else:
            sums[0] += outcomes.count("passed")
            sums[1] += failed_entries
            sums[2] += outcomes.count("skipped")
    return tuple(sums)


def collect_reports(folder, programs):
    reports = defaultdict(list)
    for path in sorted(Path(folder).glob("*.json")):
        # Further runs of one program get _1, _2, ... appended by GoogleTest.
        program = path.stem
        if program not in programs:
            program = re.sub(r"_\d+$", "", program)
        try:
            reports[program].append(report_counts(json.loads(path.read_text())))
        except ValueError:
            pass  # cut short by a crash; its entry's failure is counted
    return reports


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--filter", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--timeout", type=int, default=1500, help="seconds for one ctest entry")
    parser.add_argument("--counts")
    args = parser.parse_args()

    select = ["-R", args.filter] if args.filter else []
    base = ["ctest", "--test-dir", args.build]
    listing = json.loads(subprocess.run(base + select + ["--show-only=json-v1"], check=True,
                                        capture_output=True, text=True).stdout)
    programs = executables(listing, args.build)
    with tempfile.TemporaryDirectory() as folder:
        junit = Path(folder, "ctest.xml")
        reports_folder = Path(folder, "reports")
        reports_folder.mkdir()
        environment = dict(os.environ, GTEST_OUTPUT=f"json:{reports_folder}/")
        subprocess.run(base + select + ["--output-on-failure", "--no-tests=error", "-j",
                                        str(args.jobs), "--timeout", str(args.timeout),
                                        "--output-junit", str(junit)], env=environment)
        entries = read_entries(junit.read_text()) if junit.exists() else {}
        reports = collect_reports(reports_folder, set(programs.values()))
    for name in programs:
        entries.setdefault(name, "failed")  # listed, but ctest never came to it
    passed, failed, skipped = total(entries, programs, reports)
    if not programs:
        print(f"no test is called '{args.filter}'", file=sys.stderr)
        failed += 1
    if args.counts:
        with open(args.counts, "a") as out:
            out.write(f"{passed} {failed} {skipped}\n")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
