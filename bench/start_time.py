#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole processes from start to one generated token: wall and processor time, medians, minima.

  start_time.py --lemma build/release/lemma --model model.gguf \\
      --peer 'llama.cpp=/path/llama-bench -m {model} -p 0 -n 1 -t {threads} -r 1 --no-warmup'

lemma runs with --no-repack and without; each program takes its turn in every round. The page cache
should be warm (one round before the first is not counted). Start nothing else meanwhile.
"""
import argparse
import os
import shlex
import statistics
import subprocess
import time


def run(command):
    """Seconds of wall and processor time, and the peak of resident MiB."""
    begun = time.monotonic()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{command[0]} ended with status {process.returncode}: {shlex.join(command)}")
    wall = time.monotonic() - begun
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lemma", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--peer", action="append", default=[], help="NAME=COMMAND")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()

    own = [arguments.lemma, "run", arguments.model, "x", "--max-tokens", "1", "--temp", "0",
           "--threads", str(arguments.threads)]
    commands = {"lemma --no-repack": own + ["--no-repack"], "lemma": own}
    for peer in arguments.peer:
        name, _, command = peer.partition("=")
        commands[name] = shlex.split(command.format(model=arguments.model,
                                                    threads=arguments.threads))
    results = {name: [] for name in commands}
    for turn in range(arguments.rounds + 1):
        for name, command in commands.items():
            result = run(command)
            if turn > 0:
                results[name].append(result)

    print("| program | wall s, median (least) | processor s | peak MiB |")
    print("|---|---|---|---|")
    for name, rows in results.items():
        walls, processor, peaks = zip(*rows)
        print(f"| {name} | {statistics.median(walls):.3f} ({min(walls):.3f}) "
              f"| {statistics.median(processor):.3f} | {max(peaks):.0f} |")


if __name__ == "__main__":
    main()
