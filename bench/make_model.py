#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a model of random weights for measuring speed: the shape and the block formats are real,
the numbers are not. Speed depends on neither, as long as activations stay finite.

  make_model.py --shape tinyllama --preset Q4_K_M --out model.gguf

Blocks are random bytes whose scales are set so that a weight's deviation is 1 / sqrt(fan in); the
vocabulary is made up. The same arguments give the same bytes. Needs numpy.
"""
import argparse
import struct

import numpy as np

SHAPES = {
    "tinyllama": dict(arch="llama", layers=22, dim=2048, heads=32, kv=4, head=64, ffn=5632, vocab=32000),
    "moe": dict(arch="qwen3moe", layers=16, dim=1024, heads=16, kv=4, head=64, ffn=3072, vocab=32000,
                experts=64, used=8, expert_ffn=512),
    "narrow": dict(arch="llama", layers=28, dim=1536, heads=12, kv=2, head=128, ffn=8960, vocab=32000),
    "middle": dict(arch="llama", layers=16, dim=3072, heads=24, kv=8, head=128, ffn=8192, vocab=32000),
    "wide": dict(arch="llama", layers=8, dim=4096, heads=32, kv=8, head=128, ffn=14336, vocab=32000),
    "tiny": dict(arch="llama", layers=2, dim=256, heads=4, kv=2, head=64, ffn=768, vocab=512),
}

F32, F16 = 0, 1
# ggml's number of the format, elements and bytes of a block.
FORMATS = {
    "F32": (0, 1, 4), "F16": (1, 1, 2), "BF16": (30, 1, 2),
    "Q4_0": (2, 32, 18), "Q5_0": (6, 32, 22), "Q8_0": (8, 32, 34),
    "Q2_K": (10, 256, 84), "Q3_K": (11, 256, 110), "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176),
    "Q6_K": (14, 256, 210), "IQ2_XXS": (16, 256, 66), "IQ4_NL": (20, 32, 18), "MXFP4": (39, 32, 17),
}


def halves(value, n):
    return np.full((n, 1), value, np.float16).view(np.uint8)


def blocks(name, n, std, rng):
    """n random blocks [n, bytes] whose weights deviate by about `std`."""
    _, _, size = FORMATS[name]
    raw = rng.integers(0, 256, (n, size), np.uint8)
    if name == "Q8_0":
        raw[:, 0:2] = halves(std / 74, n)
    elif name == "Q4_0":
        raw[:, 0:2] = halves(std / 4.6, n)
    elif name == "Q5_0":
        raw[:, 0:2] = halves(std / 9.2, n)
    elif name == "IQ4_NL":
        raw[:, 0:2] = halves(std / 65, n)
    elif name == "MXFP4":
        raw[:, 0] = 127 + int(round(np.log2(std / 3)))
    elif name in ("Q4_K", "Q5_K"):  # every scale and minimum 32
        spread, mean = (4.6, 7.5) if name == "Q4_K" else (9.2, 15.5)
        d = std / (spread * 32)
        raw[:, 0:2], raw[:, 2:4] = halves(d, n), halves(mean * d, n)
        raw[:, 4:12], raw[:, 12:16] = 0xA0, 0
    elif name == "Q6_K":
        raw[:, 192:208], raw[:, 208:210] = 32, halves(std / (18.5 * 32), n)
    elif name == "Q2_K":  # every scale and minimum 8
        d = std / (8 * 1.12)
        raw[:, 0:16], raw[:, 80:82], raw[:, 82:84] = 0x88, halves(d, n), halves(1.5 * d, n)
    elif name == "Q3_K":  # every scale 16
        raw[:, 96:104], raw[:, 104:108], raw[:, 108:110] = 0, 0xFF, halves(std / (2.3 * 16), n)
    elif name == "IQ2_XXS":
        raw[:, 0:2] = halves(std / 45, n)
    else:
        raise SystemExit(f"no random blocks for {name}")
    return raw


def preset_format(preset, name, layer, layers):
    """What llama-quantize's presets give to a tensor, in short."""
    more_bits = layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2
    part = name.split(".")[-2]
    if preset == "Q4_K_M":
        if part == "output":
            return "Q6_K"
        return "Q6_K" if part in ("attn_v", "ffn_down", "ffn_down_exps") and more_bits else "Q4_K"
    if preset == "Q2_K":
        if part == "output":
            return "Q6_K"
        if part == "attn_v":
            return "Q4_K"
        return "Q3_K" if part in ("attn_output", "ffn_down", "ffn_down_exps") else "Q2_K"
    if preset == "IQ2_XXS":
        if part in ("output", "token_embd"):
            return "Q5_K" if part == "output" else "Q2_K"
        return "Q4_K" if part == "attn_v" else "IQ2_XXS"
    if preset == "Q4_0" and part == "output":
        return "Q6_K"
    return preset


def tensors_of(shape, preset):
    """(name, dims with the row first in memory, format, deviation or None for ones)."""
    layers, dim = shape["layers"], shape["dim"]
    query, key = shape["heads"] * shape["head"], shape["kv"] * shape["head"]
    branch = (2 * layers) ** -0.5
    out = []

    def weight(name, dims, scale=1.0, layer=-1):
        out.append((name + ".weight", dims, preset_format(preset, name + ".weight", layer, layers),
                    scale * dims[0] ** -0.5))

    def ones(name, n):
        out.append((name + ".weight", (n,), "F32", None))

    weight("token_embd", (dim, shape["vocab"]), dim ** 0.5)
    for i in range(layers):
        at = f"blk.{i}."
        ones(at + "attn_norm", dim)
        weight(at + "attn_q", (dim, query), layer=i)
        weight(at + "attn_k", (dim, key), layer=i)
        weight(at + "attn_v", (dim, key), layer=i)
        weight(at + "attn_output", (query, dim), branch, i)
        if "experts" in shape:
            ones(at + "attn_q_norm", shape["head"])
            ones(at + "attn_k_norm", shape["head"])
        ones(at + "ffn_norm", dim)
        if "experts" in shape:
            experts, ffn = shape["experts"], shape["expert_ffn"]
            out.append((at + "ffn_gate_inp.weight", (dim, experts), "F32", 4 * dim ** -0.5))
            weight(at + "ffn_gate_exps", (dim, ffn, experts), layer=i)
            weight(at + "ffn_up_exps", (dim, ffn, experts), layer=i)
            weight(at + "ffn_down_exps", (ffn, dim, experts), branch, i)
        else:
            ffn = shape["ffn"]
            weight(at + "ffn_gate", (dim, ffn), layer=i)
            weight(at + "ffn_up", (dim, ffn), layer=i)
            weight(at + "ffn_down", (ffn, dim), branch, i)
    ones("output_norm", dim)
    weight("output", (dim, shape["vocab"]))
    return out


U32, FLOAT, STRING, ARRAY, I32 = 4, 6, 8, 9, 5


def text(s):
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


def entry(key, kind, payload):
    return text(key) + struct.pack("<I", kind) + payload


def array(kind, items):
    return struct.pack("<IQ", kind, len(items)) + b"".join(items)


def vocabulary(size):
    """A SentencePiece vocabulary: three special tokens, the bytes, and made-up words."""
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    kinds = [2, 3, 3] + [6] * 256
    letters = "etaoinshrdlucmfw"
    for i in range(size - len(tokens)):
        word, n = "", i + 1
        while n:
            n, digit = divmod(n - 1, len(letters))
            word += letters[digit]
        tokens.append(word)
        kinds.append(1)
    scores = [0.0] * 259 + [-float(i) for i in range(size - 259)]
    pack = struct.pack
    return [entry("tokenizer.ggml.model", STRING, text("llama")),
            entry("tokenizer.ggml.tokens", ARRAY, array(STRING, [text(t) for t in tokens])),
            entry("tokenizer.ggml.scores", ARRAY, array(FLOAT, [pack("<f", s) for s in scores])),
            entry("tokenizer.ggml.token_type", ARRAY, array(I32, [pack("<i", k) for k in kinds])),
            entry("tokenizer.ggml.bos_token_id", U32, pack("<I", 1)),
            entry("tokenizer.ggml.eos_token_id", U32, pack("<I", 2))]


def metadata(name, shape, context):
    arch = shape["arch"]
    numbers = {"block_count": shape["layers"], "context_length": context,
               "embedding_length": shape["dim"], "feed_forward_length": shape["ffn"],
               "attention.head_count": shape["heads"], "attention.head_count_kv": shape["kv"],
               "attention.key_length": shape["head"], "attention.value_length": shape["head"],
               "rope.dimension_count": shape["head"], "vocab_size": shape["vocab"]}
    if "experts" in shape:
        numbers |= {"expert_count": shape["experts"], "expert_used_count": shape["used"],
                    "expert_feed_forward_length": shape["expert_ffn"]}
    out = [entry("general.architecture", STRING, text(arch)),
           entry("general.name", STRING, text("random " + name))]
    out += [entry(f"{arch}.{key}", U32, struct.pack("<I", n)) for key, n in numbers.items()]
    out += [entry(f"{arch}.attention.layer_norm_rms_epsilon", FLOAT, struct.pack("<f", 1e-5)),
            entry(f"{arch}.rope.freq_base", FLOAT, struct.pack("<f", 10000.0))]
    return out + vocabulary(shape["vocab"])


def tensor_bytes(dims, fmt):
    _, elements, size = FORMATS[fmt]
    return int(np.prod(dims)) // elements * size


def write_tensor(file, dims, fmt, std, rng):
    count = int(np.prod(dims))
    if std is None:
        file.write(np.ones(count, np.float32).tobytes())
        return
    _, elements, size = FORMATS[fmt]
    piece = 1 << 18  # blocks of one pool, repeated: making gigabytes of random bits takes minutes
    left = count // elements
    pool = None
    while left:
        n = min(left, piece)
        if pool is None:
            if fmt in ("F32", "F16", "BF16"):
                piece, n = 1 << 22, min(left, 1 << 22)
                numbers = rng.standard_normal(n, np.float32) * np.float32(std)
                pool = {"F32": numbers, "F16": numbers.astype(np.float16),
                        "BF16": (numbers.view(np.uint32) >> 16).astype(np.uint16)}[fmt].tobytes()
            else:
                pool = blocks(fmt, n, std, rng).tobytes()
        file.write(pool[:n * size])
        left -= n


def make(shape_name, preset, path, seed=1, context=32768):
    shape = SHAPES[shape_name]
    tensors = tensors_of(shape, preset)
    infos, offset = [], 0
    for name, dims, fmt, _ in tensors:
        infos.append(text(name) + struct.pack("<I", len(dims)) +
                     b"".join(struct.pack("<Q", n) for n in dims) +
                     struct.pack("<IQ", FORMATS[fmt][0], offset))
        offset += (tensor_bytes(dims, fmt) + 31) // 32 * 32
    entries = metadata(shape_name, shape, context)
    rng = np.random.default_rng(seed)
    with open(path, "wb") as file:
        file.write(struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(entries)))
        file.write(b"".join(entries) + b"".join(infos))
        file.write(b"\0" * (-file.tell() % 32))
        for _, dims, fmt, std in tensors:
            write_tensor(file, dims, fmt, std, rng)
            file.write(b"\0" * (-file.tell() % 32))
    return offset


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--shape", required=True, choices=SHAPES)
    parser.add_argument("--preset", required=True,
                        help="a block format, or Q4_K_M, Q2_K, IQ2_XXS mixed as quantizers do")
    parser.add_argument("--out", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--context", type=int, default=32768)
    options = parser.parse_args()
    size = make(options.shape, options.preset, options.out, options.seed, options.context)
    print(f"{options.out}: {size / 1e6:.0f} MB of weights")


if __name__ == "__main__":
    main()
