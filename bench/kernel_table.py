#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the products with packed weights do beside the limits of the machine, as a table.

  kernel_table.py --bench build/release/kernels_bench --isa avx512 --table docs/performance.md

One thread, by processor time, the best of --repetitions. One row: GB/s of panels from memory, and of
panels from the second cache, where arithmetic alone counts. More rows: G multiply-adds a second from the
second cache, many rows as the benchmark has them, and as a part of the limit of the format's kind. Limits
are measured in the same run. Start nothing else meanwhile.
"""
import argparse
import datetime
import json
import subprocess

import compare

BEGIN, END = "<!-- written by bench/kernel_table.py -->", "<!-- end of what bench/kernel_table.py wrote -->"
FORMATS = ("F32 F16 BF16 Q8_0 Q6_K Q5_K Q5_0 Q4_K Q4_0 IQ4_NL IQ4_XS MXFP4 NVFP4 Q3_K IQ3_S IQ3_XXS Q2_K "
           "IQ2_S IQ2_XS IQ2_XXS IQ1_M IQ1_S TQ2_0 TQ1_0").split()
FLOATS = ("F32", "F16", "BF16")
FEW = (2, 4, 8, 16, 32, 64)
MANY = 512


def measure(options):
    """By benchmark name: the best bytes and items a second, in 1e9."""
    rows = "|".join(map(str, (1, *FEW)))
    wanted = (f"^(memory_read/threads:1|limit/(f32|int8)/{options.isa}"
              f"|compute/{options.isa}/({'|'.join(FORMATS)})/rows:({rows})"
              f"|project/{options.isa}/({'|'.join(FORMATS)})/rows:(1|{MANY})/threads:1)$")
    output = subprocess.run(
        [options.bench, f"--benchmark_filter={wanted}", "--benchmark_format=json",
         f"--benchmark_min_time={options.seconds}",
         f"--benchmark_repetitions={options.repetitions}"],
        check=True, capture_output=True, text=True).stdout
    best = {}
    for run in json.loads(output)["benchmarks"]:
        if run.get("run_type") == "aggregate":
            continue
        kept = best.setdefault(run["run_name"], {})
        for key in ("bytes_per_second", "items_per_second"):
            kept[key] = max(kept.get(key, 0), run.get(key, 0) / 1e9)
    return best


def table(options, best):
    def rate(name, key="items_per_second"):
        return best[name][key]
    limits = {kind: rate(f"limit/{kind}/{options.isa}") for kind in ("f32", "int8")}
    lines = [f"{datetime.date.today()}, {compare.processor()}, one thread, {options.isa}: one core reads "
             f"{rate('memory_read/threads:1', 'bytes_per_second'):.0f} GB/s and does {limits['f32']:.0f} "
             f"G multiply-adds a second of f32 and {limits['int8']:.0f} of int8.", "",
             "| format | one row, GB/s | of arithmetic alone | "
             + " | ".join(f"{rows} rows, G/s" for rows in (*FEW, MANY)) + " | of the peak |",
             "|" + "---|" * (5 + len(FEW))]
    for name in FORMATS:
        def case(kind, rows, end="", name=name):
            return f"{kind}/{options.isa}/{name}/rows:{rows}{end}"
        many = rate(case("project", MANY, "/threads:1"))
        cells = [f"{rate(case('project', 1, '/threads:1'), 'bytes_per_second'):.1f}",
                 f"{rate(case('compute', 1), 'bytes_per_second'):.0f}",
                 *(f"{rate(case('compute', rows)):.0f}" for rows in FEW), f"{many:.0f}",
                 f"{many / limits['f32' if name in FLOATS else 'int8']:.2f}"]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--isa", default="avx512")
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--table", help="a file with the two marks between which the table goes")
    options = parser.parse_args()
    text = table(options, measure(options))
    print(text)
    if options.table:
        compare.write_table(options.table, text + "\n", (BEGIN, END))


if __name__ == "__main__":
    main()
