#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures lemma against other engines on models of random weights, and writes the table.

  compare.py --lemma build/release/lemma --model tinyllama:Q4_K_M --model moe:Q8_0 \\
      --peer 'llama.cpp=llama-bench -m {model} -p {prompt} -n {generate} -t {threads} -r 1 -o json' \\
      --rounds 3 --log rounds.jsonl --table docs/performance.md

Models are made one by one (make_model.py), measured and deleted. Within a round the engines take
turns, every second round in reverse, so that what else the machine does hits all alike; compare
only ratios of one run. Each process must print JSON: lemma's, llama-bench's, or
{"prefill": [tokens/s ...], "decode": [...]}. Beside each rate stand two meters: `stolen`, what the
hypervisor took (/proc/stat), and `others`, what other processes of this machine used, both in
percent of all processors; a round in which either is high says little.

--busy is for a machine that is never quiet: each engine runs a few times on one thread, and its
rates are tokens per second of processor time, from the differences between the runs: what a longer
prompt and more generated tokens cost beyond a short run. Loading cancels out, and so does waiting;
what others do to caches and memory remains.
"""
import argparse
import datetime
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

import make_model

BEGIN, END = "<!-- written by bench/compare.py -->", "<!-- end of what bench/compare.py wrote -->"
LEMMA = ("{lemma} bench {model} --prompt {prompt} --generate {generate} --threads {threads} "
         "--ctx {context} --reps 1 --no-check --json")
BARE_PROMPT = 1  # lemma generates behind at least one token, llama-bench behind none


def processor_seconds():
    """(seconds stolen, seconds busy) of all processors since the system started."""
    fields = [int(x) for x in open("/proc/stat").readline().split()[1:]]
    user, nice, system, _, _, irq, softirq, steal = fields[:8]
    tick = os.sysconf("SC_CLK_TCK")
    return steal / tick, (user + nice + system + irq + softirq) / tick


def rates(output):
    """Prefill and decode rates in what a process printed."""
    starts = [i for i in (output.find("{"), output.find("[")) if i >= 0]
    value = json.JSONDecoder().raw_decode(output[min(starts):])[0]
    if isinstance(value, list):  # llama-bench
        found = {"prefill": [], "decode": []}
        for test in value:
            part = "prefill" if test["n_prompt"] else "decode"
            found[part] += test.get("samples_ts") or [test["avg_ts"]]
        return found
    return {part: v["tokens_per_second"] if isinstance(v, dict) else v
            for part, v in value.items() if part in ("prefill", "decode")}


def run_once(command, read=rates):
    """Runs a program: what `read` finds in its output, beside time, memory and the meters."""
    stolen, busy = processor_seconds()
    begun = time.monotonic()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        tail = errors.read()[-400:]
    seconds = time.monotonic() - begun
    stolen_after, busy_after = processor_seconds()
    own = usage.ru_utime + usage.ru_stime
    whole = seconds * os.cpu_count() / 100
    if process.returncode != 0:
        raise SystemExit(f"{shlex.join(command)} failed with {process.returncode}: {tail}")
    return read(output) | {
        "seconds": round(seconds, 2), "cpu": round(own, 2), "peak_mib": usage.ru_maxrss // 1024,
        "stolen": round((stolen_after - stolen) / whole, 1),
        "others": round(max(0.0, busy_after - busy - own) / whole, 1)}


def run_parts(words_of, values):
    """lemma's two phases, each by itself as llama-bench does them: generated tokens do not stand
    behind the entered ones."""
    entered = run_once(words_of(values | dict(generate=0)))
    answered = run_once(words_of(values | dict(prompt=BARE_PROMPT)))
    return {"prefill": entered["prefill"], "decode": answered["decode"],
            **{key: round(entered[key] + answered[key], 2) for key in ("seconds", "cpu")},
            **{key: max(entered[key], answered[key]) for key in ("peak_mib", "stolen", "others")}}


SHORT_PROMPT, SHORT_ANSWER = 32, 1  # tokens of the run that the others are compared with


def run_busy(words_of, values):
    """Rates by processor time, of the engine whose command words_of(values) is. Short runs are
    repeated and the least is taken: what differs is how the system hands out memory."""
    def seconds(prompt, generate, repeats):
        results = [run_once(words_of(values | dict(prompt=prompt, generate=generate)))
                   for _ in range(repeats)]
        return min(r["cpu"] for r in results), results[-1]
    seconds(SHORT_PROMPT, SHORT_ANSWER, 1)  # brings the file into memory
    short, result = seconds(SHORT_PROMPT, SHORT_ANSWER, 2)
    entered, _ = seconds(values["prompt"], SHORT_ANSWER, 1)
    answered, _ = seconds(SHORT_PROMPT, values["generate"], 2)
    return result | {
        "prefill": [round((values["prompt"] - SHORT_PROMPT) / max(entered - short, 1e-3), 2)],
        "decode": [round((values["generate"] - SHORT_ANSWER) / max(answered - short, 1e-3), 2)],
        "cpu": [short, entered, answered]}


def measure(options, model_path, shape, preset, log):
    commands = {"lemma": LEMMA} | dict(peer.split("=", 1) for peer in options.peer)
    values = dict(model=model_path, lemma=options.lemma, prompt=options.prompt,
                  generate=options.generate, threads=options.threads,
                  context=options.prompt + options.generate + 64)
    results = {name: [] for name in commands}
    for round_number in range(options.rounds):
        order = list(commands) if round_number % 2 == 0 else list(commands)[::-1]
        for name in order:
            def words_of(values, name=name):
                return [word.format(**values) for word in shlex.split(commands[name])]
            if options.busy:
                result = run_busy(words_of, values)
            elif name == "lemma":
                result = run_parts(words_of, values)
            else:
                result = run_once(words_of(values))
            results[name].append(result)
            record = dict(shape=shape, preset=preset, round=round_number, engine=name, **result)
            log.write(json.dumps(record) + "\n")
            log.flush()
            print(json.dumps(record), file=sys.stderr)
    return results


def rows_of(shape, preset, results):
    best = {part: max((statistics.median([x for r in rs for x in r[part]])
                       for name, rs in results.items() if name != "lemma"), default=None)
            for part in ("prefill", "decode")}
    for name, runs in results.items():
        cells = [f"{shape} {preset}", name]
        for part in ("prefill", "decode"):
            all_rates = [x for r in runs for x in r[part]]
            median = statistics.median(all_rates)
            ratio = f"{median / best[part]:.2f}" if name == "lemma" and best[part] else ""
            cells += [f"{median:.1f}", f"{max(all_rates):.1f}", ratio]
        cells += [str(max(r["peak_mib"] for r in runs)),
                  f"{statistics.median([r['stolen'] for r in runs]):.0f}",
                  f"{statistics.median([r['others'] for r in runs]):.0f}"]
        yield "| " + " | ".join(cells) + " |"


def processor():
    """What the processor calls itself."""
    return next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo")
                 if line.startswith("model name")), "unknown processor")


def table(options, rows):
    head = ["model", "engine", "prefill", "best", "ratio", "decode", "best", "ratio", "peak MiB",
            "stolen %", "others %"]
    second = "second of processor time" if options.busy else "second"
    lines = [f"{datetime.date.today().isoformat()}, {processor()}, {options.threads} thread(s): tokens per "
             f"{second} of {options.prompt} entered and, by themselves, {options.generate} generated "
             f"tokens, medians of {options.rounds} round(s). Ratios are to the best peer's median.", "",
             "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + rows) + "\n"


def write_table(path, text, marks=(BEGIN, END)):
    """Puts the text between the two marks of a page."""
    page = pathlib.Path(path).read_text()
    begin, end = page.index(marks[0]) + len(marks[0]), page.index(marks[1])
    pathlib.Path(path).write_text(page[:begin] + "\n" + text + page[end:])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lemma", required=True, help="the program")
    parser.add_argument("--model", action="append", required=True, metavar="SHAPE:PRESET")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--generate", type=int, default=64)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--busy", action="store_true", help="one thread, by processor time")
    parser.add_argument("--folder", help="where models are made (default: a temporary folder)")
    parser.add_argument("--log", help="every run as a line of JSON")
    parser.add_argument("--table", metavar="PAGE", help="the page whose table is replaced")
    options = parser.parse_args()
    if options.busy:
        options.threads = 1
    rows = []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder, \
            open(options.log or os.devnull, "a") as log:
        for model in options.model:
            shape, preset = model.split(":")
            path = os.path.join(folder, f"{shape}-{preset}.gguf")
            make_model.make(shape, preset, path)
            rows += rows_of(shape, preset, measure(options, path, shape, preset, log))
            os.remove(path)
    text = table(options, rows)
    print(text)
    if options.table:
        write_table(options.table, text)


if __name__ == "__main__":
    main()
