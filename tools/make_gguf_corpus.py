#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of the GGUF fuzz corpus: small valid files and damaged ones, each the shape of
one fault. Findings of the fuzzer and what it minimised lie beside them under other names.

usage: make_gguf_corpus.py FOLDER      (tests/corpus/gguf)
"""
import pathlib
import struct
import sys

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B",
         U64: "Q", I64: "q", F64: "d"}
# GGML type number, elements and bytes of a block.
TENSOR_TYPES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q5_0": (6, 32, 22),
                "Q8_0": (8, 32, 34), "Q4_K": (12, 256, 144), "Q6_K": (14, 256, 210),
                "BF16": (30, 1, 2)}


def string(text):
    return struct.pack("<Q", len(text)) + text.encode()


def scalar(kind, value):
    return string(value) if kind == STRING else struct.pack("<" + CODES[kind], value)


def pair(key, kind, value):
    return string(key) + struct.pack("<I", kind) + scalar(kind, value)


def array(key, kind, values):
    return (string(key) + struct.pack("<IIQ", ARRAY, kind, len(values))
            + b"".join(scalar(kind, value) for value in values))


def tensor(name, sizes, kind, offset):
    return (string(name) + struct.pack("<I", len(sizes))
            + b"".join(struct.pack("<Q", size) for size in sizes)
            + struct.pack("<IQ", kind, offset))


def gguf(pairs=(), tensors=(), data=0, version=3, alignment=32, counts=None):
    n_tensors, n_pairs = counts or (len(tensors), len(pairs))
    head = b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_pairs)
    head += b"".join(pairs) + b"".join(tensors)
    if data:
        head += bytes(-len(head) % alignment)
    return head + bytes(i * 37 & 255 for i in range(data))


def valid():
    scalars = [pair("s.%d" % kind, kind, "text" if kind == STRING else 1)
               for kind in range(13) if kind != ARRAY]
    arrays = [array("a.%d" % kind, kind, ["a", "bc"] if kind == STRING else [1, 0])
              for kind in range(13) if kind != ARRAY]
    yield "empty", gguf()
    yield "version-2", gguf([pair("k", U32, 1)], version=2)
    yield "scalars", gguf(scalars)
    yield "arrays", gguf(arrays)
    yield "empty-array", gguf([array("k", STRING, [])])
    for name, (kind, elements, size) in TENSOR_TYPES.items():
        yield "tensor-" + name.lower(), gguf(
            tensors=[tensor("w", [elements, 2], kind, 0)], data=2 * size)
    yield "alignment-64", gguf([pair("general.alignment", U32, 64)],
                               [tensor("a", [3], 0, 0), tensor("b", [2, 2], 0, 64)],
                               80, alignment=64)
    yield "part", gguf([pair("split.no", U16, 0), pair("split.count", U16, 2),
                        pair("split.tensors.count", I32, 1)], [tensor("w", [1], 0, 0)], 4)


def damaged():
    one = [tensor("w", [8], 0, 0)]
    yield "magic", b"GGML" + gguf()[4:]
    yield "big-endian", b"GGUF" + struct.pack(">IQQ", 3, 0, 0)
    yield "version-1", gguf(version=1)
    yield "truncated-header", gguf()[:13]
    yield "truncated-data", gguf(tensors=one, data=32)[:-7]
    yield "zero-dimension", gguf(tensors=[tensor("w", [1, 0], 0, 0)])
    yield "no-dimensions", gguf(tensors=[tensor("w", [], 0, 0)], data=32)
    yield "five-dimensions", gguf(tensors=[tensor("w", [1] * 5, 0, 0)], data=32)
    yield "empty-key", gguf([pair("", U32, 1)])
    yield "empty-tensor-name", gguf(tensors=[tensor("", [8], 0, 0)], data=32)
    for value in (0, 7, 0x80000000):
        yield "alignment-%d" % value, gguf([pair("general.alignment", U32, value)], one, 32)
    yield "alignment-string", gguf([pair("general.alignment", STRING, "32")], one, 32)
    for power in (40, 63):
        huge = 1 << power
        yield "tensor-count-%d" % power, gguf(counts=(huge, 0))
        yield "key-count-%d" % power, gguf(counts=(0, huge))
        yield "string-length-%d" % power, gguf(
            [string("k") + struct.pack("<IQ", STRING, huge) + b"text"])
        yield "array-count-%d" % power, gguf(
            [string("k") + struct.pack("<IIQ", ARRAY, U8, huge) + b"text"])
        yield "dimension-%d" % power, gguf(tensors=[tensor("w", [huge, huge], 0, 0)], data=32)
    yield "offset-overflow", gguf(tensors=[tensor("w", [8], 0, 2**64 - 32)], data=32)
    yield "offset-misaligned", gguf(tensors=[tensor("w", [1], 0, 4)], data=32)
    yield "overlap", gguf(tensors=[tensor("a", [9], 0, 0), tensor("b", [8], 0, 32)], data=64)
    yield "duplicate-tensor", gguf(tensors=one + [tensor("w", [8], 0, 32)], data=64)
    yield "duplicate-key", gguf([pair("k", U32, 1), pair("k", U32, 2)])
    yield "nested-array", gguf([string("k") + struct.pack("<IIQIQB", ARRAY, ARRAY, 1, U8, 1, 1)])
    yield "bool-2", gguf([string("k") + struct.pack("<IB", BOOL, 2)])
    yield "half-block", gguf(tensors=[tensor("w", [48], 8, 0)], data=64)
    yield "type-unsupported", gguf(tensors=[tensor("w", [256], 13, 0)], data=176)
    yield "type-unknown", gguf(tensors=[tensor("w", [256], 1000, 0)], data=176)
    yield "scores-of-u8", gguf([array("tokenizer.ggml.scores", U8, [1] * 20)])


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for prefix, files in (("valid", valid()), ("damaged", damaged())):
        for name, content in files:
            (folder / ("%s-%s" % (prefix, name))).write_bytes(content)


if __name__ == "__main__":
    main()
