#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What computing in the fast way costs: lemma's logits and llama.cpp's of the same files, each against
the f32 reference of that file, as a Markdown table.

  compare_accuracy.py --lemma build/release/lemma --llama llama.cpp/build/bin/llama-perplexity \\
      --text held-out.txt --folder /scratch model-Q4_0.gguf model-Q4_K_M.gguf

The reference decodes the file's rows by the definition of their format and multiplies in f32 (`--numerics
strict`). Both programs run as they come, only threads and windows are set. Scored are the tokens of
the second half of each whole window, which are those that llama-perplexity saves; that the tokens are
the same is checked. llama-perplexity stores log-probabilities in 16 bits, down to 16 below the
largest. So that this favours nobody, KL divergence counts for both only words whose reference
log-probability is above that floor, and as sum(p log(p / q) - p + q), which is not negative over
any set of words and over all words is the usual sum. numpy is needed, and on disk 8 bytes for each
scored token and word of the vocabulary.
"""
import argparse
import json
import pathlib
import subprocess
import sys

import numpy as np

REACH = 15.9  # of the 16 that llama-perplexity stores; its lowest code stands for all below


def run(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr[-2000:]}")
    return done.stdout


class LemmaLogits:
    """What `lemma eval --save-logits` wrote: a safetensors file with all tokens and their logits."""

    def __init__(self, path):
        raw = np.memmap(path, np.uint8, "r")
        size = int(raw[:8].view("<u8")[0])
        header = json.loads(raw[8:8 + size].tobytes())
        self.tokens = self.tensor(raw[8 + size:], header["tokens"], "<i4")
        self.logits = self.tensor(raw[8 + size:], header["logits"], "<f4")

    @staticmethod
    def tensor(data, entry, kind):
        begin, end = entry["data_offsets"]
        return data[begin:end].view(kind).reshape(entry["shape"])

    def log_probabilities(self, row):
        return log_softmax(self.logits[row].astype(np.float64))


class LlamaLogits:
    """What `llama-perplexity --save-all-logits` wrote: for each window n of W tokens a row for each
    of the tokens n W + W/2 .. n W + W - 2: scale and least value (f32), then codes of 16 bits."""

    def __init__(self, path):
        raw = np.memmap(path, np.uint8, "r")
        if raw[:8].tobytes() != b"_logits_":
            sys.exit(f"{path}: expected the file of llama-perplexity, found {raw[:8].tobytes()}")
        self.window, self.words, self.windows = (int(v) for v in raw[8:20].view("<i4"))
        end = 20 + 4 * self.window * self.windows
        self.tokens = raw[20:end].view("<i4")
        self.first = self.window // 2
        self.rows = raw[end:].view("<u2").reshape(
            self.windows, self.window - 1 - self.first, 4 + (self.words + 1) // 2 * 2)

    def log_probabilities(self, window, row):
        stored = self.rows[window, row - self.first]
        scale, least = stored[:4].copy().view("<f4").astype(np.float64)
        return stored[4:4 + self.words] * scale + least


def log_softmax(logits):
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def divergence(reference, found):
    """KL over the words that count, and whether the likeliest word is the same."""
    counts = reference > reference.max() - REACH
    log_p, log_q = reference[counts], found[counts]
    p = np.exp(log_p)
    return (np.sum(p * (log_p - log_q) - p + np.exp(log_q)),
            reference.argmax() == found.argmax())


class Accuracy:
    def __init__(self, args):
        self.args = args
        self.folder = pathlib.Path(args.folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def lemma(self, model, out, *more):
        run([self.args.lemma, "eval", model, self.args.text, "--window", self.args.window,
             "--threads", self.args.threads, "--save-logits", out, *more])
        return LemmaLogits(out)

    def llama(self, model, out):
        run([self.args.llama, "-m", model, "-f", self.args.text, "-c", self.args.window,
             "-b", self.args.window, "-t", self.args.threads, "--save-all-logits", out])
        return LlamaLogits(out)

    def measure(self, model):
        paths = [self.folder / name for name in ("reference", "lemma", "llama.cpp")]
        reference = self.lemma(model, paths[0], "--numerics", "strict")
        fast = self.lemma(model, paths[1])
        peer = self.llama(model, paths[2])
        scored = peer.window * peer.windows
        if not np.array_equal(reference.tokens[:scored], peer.tokens):
            sys.exit(f"{model}: the two programs cut the text into other tokens")
        found = {"lemma": [], "llama.cpp": []}
        for window in range(peer.windows):
            for row in range(peer.first, peer.window - 1):
                at = window * peer.window + row
                expected = reference.log_probabilities(at)
                found["lemma"].append(divergence(expected, fast.log_probabilities(at)))
                found["llama.cpp"].append(
                    divergence(expected, peer.log_probabilities(window, row)))
        for path in paths:
            path.unlink()
        return found

    def table(self):
        print("| file | by | KL against f32 | largest | same best, % |")
        print("|---|---|---|---|---|")
        for model in self.args.models:
            for words, rows in self.measure(model).items():
                kl = np.array([row[0] for row in rows])
                same = np.mean([row[1] for row in rows])
                print(f"| {pathlib.Path(model).stem} | {words} | {kl.mean():.2e} ± "
                      f"{kl.std(ddof=1) / np.sqrt(len(kl)):.1e} | {kl.max():.1e} | "
                      f"{100 * same:.2f} |", flush=True)
        print(f"\n{len(kl)} tokens scored of each file")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--lemma", required=True)
    parser.add_argument("--llama", required=True, help="the program llama-perplexity")
    parser.add_argument("--text", required=True)
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", required=True)
    Accuracy(parser.parse_args()).table()


if __name__ == "__main__":
    main()
