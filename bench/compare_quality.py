#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What quantizing costs: perplexity and KL divergence against the source, of lemma's files and of
files that another quantizer made of the same source, as a Markdown table.

  compare_quality.py --lemma build/release/lemma --source model-f16.gguf --text held-out.txt \\
      --calibration other.txt --format Q4_0 --format Q4_K_M \\
      --peer 'Q4_0=llama.cpp=peer-q4_0.gguf' --window 512 --folder /scratch

For each format lemma makes one file plainly, one with importance from the calibration text, and one
by GPTQ from it (--ways leaves some out). The held-out text is in neither. A peer's row is
FORMAT=WORDS=FILE. Source logits are saved once in --folder: 4 bytes for each token and word of the
vocabulary.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import time

WAYS = ("plain", "importance", "gptq")


def run(command):
    begun = time.monotonic()
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    return done.stdout, time.monotonic() - begun


class Comparison:
    def __init__(self, args):
        self.args = args
        self.folder = pathlib.Path(args.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.logits = self.folder / "source.logits"
        self.importance = self.folder / "importance.gguf"

    def evaluate(self, model, *more):
        text, _ = run([self.args.lemma, "eval", model, self.args.text, "--window",
                       self.args.window, "--json", *self.args.machine, *more])
        return json.loads(text) if text.strip() else {}

    def prepare(self):
        source = self.args.source
        if not self.logits.exists():
            self.evaluate(source, "--save-logits", self.logits)
        if "importance" in self.args.ways and not self.importance.exists():
            run([self.args.lemma, "imatrix", source, self.args.calibration, "-o", self.importance,
                 "--window", self.args.window])

    def make(self, form, way):
        out = self.folder / f"{pathlib.Path(self.args.source).stem}-{form}-{way}.gguf"
        options = {"plain": [], "importance": ["--imatrix", self.importance],
                   "gptq": ["--gptq", "--calibration", self.args.calibration, "--window",
                            self.args.window]}[way]
        seconds = 0
        if not out.exists():
            _, seconds = run([self.args.lemma, "quantize", self.args.source, out, form, *options])
        return out, seconds

    def row(self, form, words, model, seconds=None):
        found = self.evaluate(model, "--against-logits", self.logits)
        size = pathlib.Path(model).stat().st_size / 2**20
        made = "" if not seconds else f"{seconds:.0f} s"
        print(f"| {form} | {words} | {size:.1f} | {found['perplexity']:.3f} | "
              f"{found['mean_kl']:.5f} ± {found['standard_error_kl']:.5f} | "
              f"{100 * found['same_best']:.1f} | {made} |", flush=True)
        return found

    def table(self):
        print("| format | by | MiB | perplexity | KL | same best, % | made in |")
        print("|---|---|---|---|---|---|---|")
        for form in self.args.format:
            for way in self.args.ways:
                model, seconds = self.make(form, way)
                source = self.row(form, f"lemma, {way}", model, seconds)
                if not self.args.keep:
                    model.unlink()
            for peer in self.args.peer:
                own, words, model = peer.split("=", 2)
                if own == form:
                    source = self.row(form, words, model)
        print(f"\nperplexity of the source: {source['other_perplexity']:.3f}; "
              f"{source['scored']} tokens scored")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lemma", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--calibration")
    parser.add_argument("--format", action="append", required=True)
    parser.add_argument("--ways", type=lambda text: text.split(","), default=list(WAYS))
    parser.add_argument("--peer", action="append", default=[], metavar="FORMAT=WORDS=FILE")
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--keep", action="store_true", help="keep the files that lemma makes")
    parser.add_argument("--strict", action="store_true", help="products in f32 in all runs")
    args = parser.parse_args()
    args.machine = ["--numerics", "strict"] if args.strict else []
    unknown = set(args.ways) - set(WAYS)
    if unknown:
        sys.exit(f"--ways: expected some of {', '.join(WAYS)}, found {', '.join(unknown)}")
    if not args.calibration and set(args.ways) != {"plain"}:
        sys.exit("importance and gptq need --calibration")
    comparison = Comparison(args)
    comparison.prepare()
    comparison.table()


if __name__ == "__main__":
    main()
