#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/weights/formats/testdata/ggml_blocks.txt: blocks of every format with the values that
the Python package `gguf` decodes them to. One line a row: format, bytes and f32 bits in hex.

usage: make_ggml_blocks.py OUT     (needs: pip install gguf numpy)
"""
import importlib.metadata
import sys

import gguf
import numpy as np

# Format -> byte offsets of its f16 scales in a block.
SCALES = {"F32": [], "F16": [], "BF16": [], "Q8_0": [0], "Q4_0": [0], "Q5_0": [0],
          "Q4_K": [0, 2], "Q6_K": [208]}


def blocks_of(name, rng):
    """Random bytes with finite scales: one of ordinary size, one negative or subnormal."""
    kind = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    count = 3 if elements > 1 else 32
    if not SCALES[name]:
        values = rng.standard_normal(count).astype(np.float32)
        if name == "F32":
            return kind, values.view(np.uint8)
        if name == "F16":
            values[:4] = [2.0**-24, -(2.0**-14), 65504.0, 0.0]
            return kind, values.astype(np.float16).view(np.uint8)
        return kind, (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    data = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for offset in SCALES[name]:
        scales = np.array([0.0123, -1.75, 3e-6], dtype=np.float16)
        data[:, offset:offset + 2] = scales.view(np.uint8).reshape(count, 2)
    return kind, data.reshape(-1)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    rng = np.random.default_rng(20)
    with open(sys.argv[1], "w", encoding="ascii") as out:
        out.write("# made by tools/make_ggml_blocks.py with gguf %s and numpy %s\n"
                  % (importlib.metadata.version("gguf"), np.__version__))
        for name in SCALES:
            kind, data = blocks_of(name, rng)
            values = np.ascontiguousarray(gguf.quants.dequantize(data, kind), dtype="<f4")
            out.write("%s %s %s\n" % (name, data.tobytes().hex(), values.tobytes().hex()))


if __name__ == "__main__":
    main()
