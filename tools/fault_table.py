#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants each fault in the cpu backend, runs `lemma check`, and writes what it named as a table.

usage: tools/fault_table.py build/release/lemma_faulty DENSE_MODEL MODEL_WITH_EXPERTS > docs/faults.md

`lemma_faulty` is built with the tests; `lemma` of a build with -DLEMMA_TEST_FAULTS=ON does as well.
"""
import json
import os
import re
import subprocess
import sys

FAULTS = {
    "none": "nothing",
    "mask": "a row does not see the oldest key that it should see",
    "rope": "pairs of the wrong layout are turned",
    "route-order": "a row's first two experts have each other's weight",
    "row": "one row of keys or values is stored one element off",
    "eps": "a norm's epsilon is a hundred times as large",
}


def check(program: str, model: str, fault: str, forced: bool) -> tuple[dict, str, int]:
    environment = {key: value for key, value in os.environ.items() if key != "LEMMA_FAULT"}
    if fault != "none":
        environment["LEMMA_FAULT"] = fault
    arguments = [program, "check", model, "--json"] + ["--teacher-forced"] * forced
    run = subprocess.run(arguments, env=environment, capture_output=True, text=True)
    planted = re.search(r"is planted at (\S+)", run.stderr)
    return json.loads(run.stdout), planted.group(1) if planted else "-", run.returncode


def worst(report: dict, site: str) -> str:
    values = [s["of_tolerance"] for s in report["sites"] if s["site"] == site]
    return f"{values[0]:.0f}" if values and values[0] is not None else "-"


def main() -> int:
    if len(sys.argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    program, dense, experts = sys.argv[1:]
    print("# Planted faults, as found\n")
    print("Written by `tools/fault_table.py`. `lemma check` with one operation of one layer of the cpu"
          " backend made wrong\n(src/backend/cpu/fault.hpp), each site on its own rows; in the last"
          " column fed the reference's rows.\n")
    print("| fault | what is wrong | planted at | named first | times its tolerance | status |"
          " sites past their tolerance, teacher-forced |")
    print("|---|---|---|---|---|---|---|")
    for fault, what in FAULTS.items():
        model = experts if fault == "route-order" else dense
        report, planted, status = check(program, model, fault, False)
        forced, _, _ = check(program, model, fault, True)
        past = [s["site"] for s in forced["sites"]
                if s["of_tolerance"] is None or s["of_tolerance"] > 1]
        first = report["first_failed"] or "-"
        print(f"| {fault} | {what} | {planted} | {first} | {worst(report, first)} | {status} |"
              f" {', '.join(past) or 'none'} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
