#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Encoding speed of lemma beside Hugging Face's `tokenizers`, both on one core and in one run.

    python3 bench/compare_tokenizers.py PROGRAM VOCABULARY.gguf PRE TEXT...

PROGRAM is tokenizer_bench of a release build. The vocabulary (byte-level BPE) is read from the GGUF
file with the PyPI package `gguf` and written as a tokenizer.json, which both then read; PRE is
llama3, qwen2 or gpt2. Every text is encoded three times by each, in turns; the best counts, by CPU time,
so that other work on the machine matters less. The ids must be equal.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import gguf  # noqa: E402  (the variables above must stand first)
from tokenizers import Tokenizer  # noqa: E402

WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s"
         r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
EXPRESSIONS = {"llama3": WORDS % "{1,3}", "qwen2": WORDS % "",
               "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"}


def tokenizer_json(path, pre):
    fields = gguf.GGUFReader(path).fields
    strings = {name: [bytes(fields[key].parts[i]).decode() for i in fields[key].data]
               for name, key in (("tokens", "tokenizer.ggml.tokens"),
                                 ("merges", "tokenizer.ggml.merges"))}
    kinds = [int(fields["tokenizer.ggml.token_type"].parts[i][0])
             for i in fields["tokenizer.ggml.token_type"].data]
    special = [i for i, kind in enumerate(kinds) if kind != 1]
    merges = [merge.split(" ") for merge in strings["merges"]]
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": strings["tokens"][i], "single_word": False,
                          "lstrip": False, "rstrip": False, "normalized": False, "special": True}
                         for i in special],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": EXPRESSIONS[pre]}, "behavior": "Isolated",
             "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
             "use_regex": False}]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                    "use_regex": False},
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
                  "byte_fallback": False, "ignore_merges": pre == "llama3",
                  "vocab": {token: i for i, token in enumerate(strings["tokens"])},
                  "merges": merges},
    }


def time_peer(tokenizer, text):
    start = time.process_time()
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    return time.process_time() - start, ids


def time_lemma(program, json_path, text_path):
    """CPU seconds of one encoding in a fresh process, the number of ids and a hash of them."""
    out = subprocess.run([program, json_path, text_path, "1"], capture_output=True, check=True,
                         text=True).stdout.split()
    return float(out[0]), int(out[1]), int(out[2])


def hash_ids(ids):
    value = 0
    for i in ids:
        value = (value * 1000003 + i + 1) % 0xffffffff
    return value


def main():
    program, vocabulary, pre, texts = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder) / "tokenizer.json")
        pathlib.Path(path).write_text(json.dumps(tokenizer_json(vocabulary, pre)))
        tokenizer = Tokenizer.from_file(path)
        tokenizer.encode_special_tokens = True  # text that spells a control token stays text
        for name in texts:
            text = pathlib.Path(name).read_text()
            size = len(text.encode())
            ours, theirs = [], []
            for _ in range(3):
                seconds, ids = time_peer(tokenizer, text)
                theirs.append(size / seconds / 1e6)
                seconds, count, digest = time_lemma(program, path, name)
                ours.append(size / seconds / 1e6)
                if (count, digest) != (len(ids), hash_ids(ids)):
                    sys.exit(f"{name}: the ids differ")
            print(f"{name}: {size / 1e6:.2f} MB, lemma {max(ours):.1f} MB/s, "
                  f"tokenizers {max(theirs):.1f} MB/s, ratio {max(ours) / max(theirs):.1f}")


if __name__ == "__main__":
    main()
