#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures lemma and llama.cpp in turn where histories are long or sequences many.

  long_context.py --lemma build/release/lemma --llama llama.cpp/build/bin --model tinyllama:Q4_K_M \\
      --rounds 3 --log long.jsonl

  prefill   --prompt tokens entered (4,096)
  decode    --generate tokens behind --depth entered ones (32 behind 16,384)
  batch     --sequences decoded together, each --batch-generate tokens behind --batch-prompt (16, 64,
            128): tokens per second of all of them

Within a round the programs take turns, every second round in reverse; compare only ratios of one
run. --llama names the folder of llama-bench and llama-batched-bench; flash attention is on. Models
are made (make_model.py), measured and deleted; a path to a file is measured and kept.
"""
import argparse
import json
import os
import shlex
import statistics
import sys
import tempfile

import compare
import make_model

LEMMA = "{lemma} bench {model} --threads {threads} --reps 1 --no-check --json "
LLAMA = "{llama}/llama-bench -m {model} -t {threads} -r 1 -fa 1 -o json "
COMMANDS = {  # case: the part of the result that counts, lemma's command, llama.cpp's
    "prefill": ("prefill", LEMMA + "--ctx {context} --prompt {prompt} --generate 0",
                LLAMA + "-p {prompt} -n 0"),
    "decode": ("decode", LEMMA + "--ctx {context} --prompt {depth} --generate {generate}",
               LLAMA + "-p 0 -n {generate} -d {depth}"),
    "batch": ("decode", LEMMA + "--ctx {batch_context} --prompt {batch_prompt} "
              "--generate {batch_generate} --sequences {sequences}",
              "{llama}/llama-batched-bench -m {model} -t {threads} -fa on -c {batch_all} "
              "-npp {batch_prompt} -ntg {batch_generate} -npl {sequences} --output-format jsonl"),
}


def rate_of(output, part):
    """The rate in what a process printed; llama-batched-bench prints a line of its own kind."""
    for line in output.splitlines():
        if line.startswith("{") and "speed_tg" in line:
            return json.loads(line)["speed_tg" if part == "decode" else "speed_pp"]
    return statistics.median(compare.rates(output)[part])


def measure(options, path, name, log):
    values = dict(vars(options), model=path,
                  context=max(options.depth + options.generate, options.prompt) + 64,
                  batch_context=options.batch_prompt + options.batch_generate + 64,
                  batch_all=options.sequences * (options.batch_prompt + options.batch_generate + 64))
    for case in options.case:
        part, lemma, llama = COMMANDS[case]
        commands = {"lemma": lemma} | ({"llama.cpp": llama} if options.llama else {})
        results = {engine: [] for engine in commands}
        for round_number in range(options.rounds):
            for engine in list(commands)[::1 if round_number % 2 == 0 else -1]:
                words = [word.format(**values) for word in shlex.split(commands[engine])]
                result = compare.run_once(words, lambda output: {"rate": rate_of(output, part)})
                results[engine].append(result)
                record = dict(model=name, case=case, round=round_number, engine=engine, **result)
                log.write(json.dumps(record) + "\n")
                log.flush()
                print(json.dumps(record), file=sys.stderr)
        medians = {e: statistics.median(r["rate"] for r in rs) for e, rs in results.items()}
        for engine, runs in results.items():
            ratio = (f"{medians['lemma'] / medians['llama.cpp']:.2f}"
                     if engine == "lemma" and len(medians) > 1 else "")
            yield [name, case, engine, f"{medians[engine]:.1f}",
                   f"{max(r['rate'] for r in runs):.1f}", ratio,
                   str(max(r["peak_mib"] for r in runs)),
                   f"{statistics.median([r['stolen'] for r in runs]):.0f}",
                   f"{statistics.median([r['others'] for r in runs]):.0f}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lemma", required=True, help="the program")
    parser.add_argument("--llama", help="the folder of llama.cpp's programs")
    parser.add_argument("--model", action="append", required=True, metavar="SHAPE:PRESET|FILE")
    parser.add_argument("--case", action="append", choices=list(COMMANDS), help="default: all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompt", type=int, default=4096)
    parser.add_argument("--depth", type=int, default=16384)
    parser.add_argument("--generate", type=int, default=32)
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--batch-prompt", type=int, default=128)
    parser.add_argument("--batch-generate", type=int, default=64)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--folder", help="where models are made (default: a temporary folder)")
    parser.add_argument("--log", help="every run as a line of JSON")
    options = parser.parse_args()
    options.case = options.case or list(COMMANDS)
    rows = []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder, \
            open(options.log or os.devnull, "a") as log:
        for model in options.model:
            path, name = model, os.path.basename(model)
            if not os.path.exists(model):
                shape, preset = model.split(":")
                path, name = os.path.join(folder, f"{shape}-{preset}.gguf"), f"{shape} {preset}"
                make_model.make(shape, preset, path)
            rows += measure(options, path, name, log)
            if path != model:
                os.remove(path)
    head = ["model", "case", "engine", "tokens/s", "best", "ratio", "peak MiB", "stolen %",
            "others %"]
    print("\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head)] + rows))


if __name__ == "__main__":
    main()
