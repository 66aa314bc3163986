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


def total(results):
    """Sums (outcome, counts) of entries, where counts is a report's (passed, failed, skipped) or
    None for an entry that is not a GoogleTest program or left no report."""
    passed = failed = skipped = 0
    for outcome, counts in results:
        if counts is None:
            passed += outcome == "passed"
            failed += outcome == "failed"
            skipped += outcome == "skipped"
        else:
            passed += counts[0]
            failed += counts[1] if counts[1] > 0 else outcome == "failed"
            skipped += counts[2]
    return passed, failed, skipped


def rounds(programs):
    """Lists of entries in which no program occurs twice, the first one the longest.

    GoogleTest names a report after its program, so two runs of one program at the same time would
    overwrite each other's.
    """
    result, used = [], []
    for name, program in programs.items():
        # An interpreter runs many entries, but writes no report.
        key = program if program.endswith("_test") else name
        for entries, keys in zip(result, used):
            if key not in keys:
                entries.append(name)
                keys.add(key)
                break
        else:
            result.append([name])
            used.append({key})
    return result


def read_report(path):
    """The counts in the report at `path`, or None where there is none or a crash cut it short."""
    try:
        return report_counts(json.loads(path.read_text()))
    except (OSError, ValueError):
        return None


def run_round(base, names, folder, args):
    """Runs the entries `names` in one ctest; entry -> outcome. Reports land in `folder`."""
    junit = folder / "ctest.xml"
    pattern = "^(" + "|".join(re.escape(name) for name in names) + ")$"
    subprocess.run(base + ["-R", pattern, "--output-on-failure", "-j", str(args.jobs), "--timeout",
                           str(args.timeout), "--output-junit", str(junit)],
                   env=dict(os.environ, GTEST_OUTPUT=f"json:{folder}/"))
    outcomes = read_entries(junit.read_text()) if junit.exists() else {}
    # An entry that is listed but that ctest never came to has failed.
    return {name: outcomes.get(name, "failed") for name in names}


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
    results = []
    with tempfile.TemporaryDirectory() as top:
        for number, names in enumerate(rounds(programs)):
            folder = Path(top, str(number))
            folder.mkdir()
            for name, outcome in run_round(base, names, folder, args).items():
                results.append((outcome, read_report(folder / f"{programs[name]}.json")))
    passed, failed, skipped = total(results)
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
