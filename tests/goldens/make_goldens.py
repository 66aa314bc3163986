#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the project's own golden models: tiny seeded models of many architectures as GGUF files,
and their logits as llama.cpp computes them.

    python3 -m venv VENV && VENV/bin/pip install gguf numpy xllamacpp
    VENV/bin/python tests/goldens/make_goldens.py [VARIANT...] [--out tests/goldens]

xllamacpp is a Python package that carries llama.cpp whole; peer.py calls the latter's C API in it.
A weight depends on variant, tensor name and shape alone, so the same run gives the same models.
The folders hold model.gguf, tokens.json, logits.f32 (float32, [tokens, vocabulary], one prefill)
and info.json, which says what was used and how exact the peer is.
"""
import argparse
import importlib.metadata
import json
import shutil
import sys
import zlib
from pathlib import Path

import gguf
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import peer  # noqa: E402
import variants  # noqa: E402

SEED = 20261129
# An engine in f32 with f32 keys and values: sums in another order, some layers deep.
EXACT = 5e-4


def seeded(*words):
    return np.random.Generator(np.random.PCG64([SEED, zlib.crc32(" ".join(words).encode())]))


def values_of(variant, name, shape, kind):
    """`kind` says what a tensor is for: a matrix keeps the size of what it multiplies."""
    random = seeded(variant, name)
    uniform = random.random(shape, dtype=np.float32)
    low, high = {
        "matrix": (-(3 / shape[-1])**0.5, (3 / shape[-1])**0.5),
        "embedding": (-1.7, 1.7),
        "norm": (0.75, 1.25),
        "bias": (-0.2, 0.2),
        "sinks": (-1.0, 1.0),
        "decay": (-1.0, -0.05),  # -exp(A_log)
        "rate": (0.05, 1.5),  # exp(A_log)
        "step": (-2.0, 0.0),
        "divisors": (1.0, 4.0),
        "scale": (0.5, 1.5),
    }[kind]
    return (low + (high - low) * uniform).astype(np.float32)


def add_vocabulary(writer, size):
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in (0x0A, 0x20)]
    kinds = [2, 3, 3, 6, 6]
    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces = list(letters) + [a + b for a in letters for b in letters]
    while len(tokens) < size:
        tokens.append(pieces[len(tokens) - 5])
        kinds.append(1)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(i) for i in range(size)])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def write_model(path, variant):
    writer = gguf.GGUFWriter(str(path), variant.architecture)
    writer.add_name("seeded test model")
    for key, value in variant.keys.items():
        key = f"{variant.architecture}.{key}"
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)
    add_vocabulary(writer, variant.vocabulary)
    for name, (shape, kind) in variant.tensors.items():
        if kind == "table":
            random = seeded(variant.name, name)
            rows = [random.permutation(variant.keys["expert_count"])[:shape[1]]
                    for _ in range(shape[0])]
            writer.add_tensor(name, np.array(rows, dtype=np.int32))
        else:
            writer.add_tensor(name, values_of(variant.name, name, shape, kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make(variant, out):
    folder = out / variant.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model = folder / "model.gguf"
    write_model(model, variant)
    random = seeded(variant.name, "tokens")
    tokens = [1] + random.integers(5, variant.vocabulary, variant.length - 1).tolist()
    logits = peer.logits(model, [tokens], variant.flash)
    half = len(tokens) // 2
    stepwise = peer.logits(model, [tokens[:half]] + [[token] for token in tokens[half:]],
                           variant.flash)
    assert np.isfinite(logits).all() and logits.std() > 0.05, variant.name
    (folder / "tokens.json").write_text(json.dumps(tokens) + "\n")
    logits.tofile(folder / "logits.f32")
    info = {
        "variant": variant.name,
        "shows": variant.shows,
        "engine": "llama.cpp in xllamacpp " + importlib.metadata.version("xllamacpp"),
        "made_with": {name: importlib.metadata.version(name) for name in ("gguf", "numpy")},
        "settings": "CPU, 1 thread, f32 keys and values, flash attention "
                    + ("on" if variant.flash else "off"),
        "seed": SEED,
        "std": float(logits.std()),
        "prefill_against_steps": float(np.abs(logits - stepwise).max()),
        "tolerance": {"max_abs": variant.tolerance or EXACT,
                      "reason": variant.reason or "f32 sums in another order"},
    }
    (folder / "info.json").write_text(json.dumps(info, indent=1) + "\n")
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{variant.name:<20} {size / 1024:7.0f} KiB  std {info['std']:.2f}  "
          f"prefill against steps {info['prefill_against_steps']:.1e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent)
    arguments = parser.parse_args()
    for variant in variants.all_variants():
        if not arguments.names or variant.name in arguments.names:
            make(variant, arguments.out)


if __name__ == "__main__":
    main()
