#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the golden tests and writes what they measured as a Markdown table.

usage: tools/golden_table.py build/release/golden_test > docs/goldens.md

A row for each variant: the largest absolute difference of any logit from the independent engine's,
on each backend, what is allowed, and whether the bits stayed equal however the tokens were run.
Then a row for each operation: how far the cpu's is from the reference's, and of what is allowed.
"""
import collections
import json
import re
import subprocess
import sys
import tempfile

MEASURED = re.compile(
    r"\[ measured \] (\S+)\s+(cpu|reference)\s+max \|difference\| (\S+) of (\S+) allowed")
OPERATIONS = re.compile(r"\[ measured \] cpu against reference over (\d+) models, (.*)")
OPERATION = re.compile(r"\[ measured \] (\S.*?)\s+(\d+)\s+(\d\.\d+e\S+)\s+(\d\.\d+)")
BITS = {
    "HasTheSameBitsCutAnywhere": "cuts",
    "HasTheSameBitsTokenByToken": "stepwise",
    "HasTheSameBitsWithAnyPageSize": "pages",
    "HasTheSameBitsOnAnyNumberOfThreads": "threads",
    "HasTheSameBitsBesideOthers": "company",
    "HasTheSameBitsAfterRejectedDrafts": "drafts",
}


def print_operations(output: str) -> None:
    rows, models, forced = collections.defaultdict(dict), "", False
    for line in output.splitlines():
        if head := OPERATIONS.match(line):
            models, forced = head[1], "equal inputs" in head[2]
        elif models and (row := OPERATION.match(line)):
            rows[row[1]]["sites"] = row[2]
            rows[row[1]][forced] = f"{row[3]} | {float(row[4]):.0%}"
    print("\n# Operations, as measured\n")
    print(f"The cpu's operations against the reference's at every site of {models} golden models:"
          " largest error of a row's\nlargest value, and the share of the tolerance that is used"
          " (`src/eval/site_tolerance.cpp` has tolerances and reasons).\n")
    print("| operation | sites | on equal inputs | of allowed | on own rows | of allowed |")
    print("|---|---|---|---|---|---|")
    for operation, row in rows.items():
        print(f"| {operation} | {row['sites']} | {row.get(True, '- | -')} | {row.get(False, '- | -')} |")


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        run = subprocess.run([sys.argv[1], f"--gtest_output=json:{report.name}"],
                             capture_output=True, text=True)
        suites = json.load(report)["testsuites"]

    errors = collections.defaultdict(dict)
    for variant, backend, difference, allowed in MEASURED.findall(run.stdout):
        errors[variant][backend] = difference
        errors[variant]["allowed"] = allowed

    broken = collections.defaultdict(set)
    for suite in suites:
        for test in suite["testsuite"]:
            what, _, case = test["name"].partition("/")
            if what in BITS and test.get("failures"):
                variant, _, backend = case.rpartition("_")
                broken[variant, backend].add(BITS[what])

    def bits(variant: str, backend: str) -> str:
        failed = broken.get((variant.replace("-", "_"), backend), set())
        return "differ: " + ", ".join(sorted(failed)) if failed else "equal"

    print("# Golden models, as measured\n")
    print("Written by `tools/golden_table.py`. Largest absolute difference of any logit from the"
          " independent engine's;\nbits: cut anywhere, token by token, any page size, 1 to 3"
          " threads, beside other sequences,\nafter drafts that were taken back. Variants own-..."
          " are those of tests/goldens.\n")
    print("| variant | allowed | reference | cpu | bits on reference | bits on cpu |")
    print("|---|---|---|---|---|---|")
    for variant, row in errors.items():
        print(f"| {variant} | {row['allowed']} | {row.get('reference', '-')} |"
              f" {row.get('cpu', '-')} | {bits(variant, 'reference')} | {bits(variant, 'cpu')} |")
    print_operations(run.stdout)
    return run.returncode


if __name__ == "__main__":
    sys.exit(main())
