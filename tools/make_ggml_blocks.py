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
          "Q4_K": [0, 2], "Q6_K": [208], "Q4_1": [0, 2], "Q5_1": [0, 2], "Q2_K": [80, 82],
          "Q3_K": [108], "Q5_K": [0, 2], "Q8_K": [], "IQ1_S": [0], "IQ1_M": [], "IQ2_XXS": [0],
          "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "IQ4_NL": [0],
          "IQ4_XS": [0], "TQ1_0": [52], "TQ2_0": [64], "MXFP4": [], "NVFP4": []}
SCALE_VALUES = np.array([0.0123, -1.75, 3e-6], dtype=np.float16)


def set_other_scales(name, data):
    """The scales of the formats that do not have them as f16 at a fixed place."""
    if name == "Q8_K":
        data[:, :4] = SCALE_VALUES.astype(np.float32).view(np.uint8).reshape(3, 4)
    if name == "IQ1_M":  # a nibble of the scale in the top of each of four 16-bit words
        words = data[:, 48:].copy().view(np.uint16)
        for i in range(4):
            nibble = SCALE_VALUES.view(np.uint16) >> np.uint16(4 * i) & np.uint16(15)
            words[:, i] = words[:, i] & np.uint16(0x0FFF) | nibble << np.uint16(12)
        data[:, 48:] = words.view(np.uint8)
    if name == "MXFP4":
        data[:, 0] = [0, 1, 121]  # the two subnormal powers, an ordinary one
    if name == "NVFP4":
        data[:, :4] = [[0, 1, 7, 8], [0x3C, 0x7E, 0x7F, 0x80], [0x55, 0x2A, 0xC1, 0xFF]]


def dequantize(name, data, kind):
    if name == "Q8_K":  # the package knows its size and not its meaning, which is d * q
        blocks = data.reshape(-1, 292)
        scales = blocks[:, :4].copy().view(np.float32)
        return scales * blocks[:, 4:260].view(np.int8).astype(np.float32)
    return gguf.quants.dequantize(data, kind)


def blocks_of(name, rng):
    """Random bytes with finite scales: one of ordinary size, one negative or subnormal."""
    kind = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    count = 3 if elements > 1 else 32
    if elements == 1:
        values = rng.standard_normal(count).astype(np.float32)
        if name == "F32":
            return kind, values.view(np.uint8)
        if name == "F16":
            values[:4] = [2.0**-24, -(2.0**-14), 65504.0, 0.0]
            return kind, values.astype(np.float16).view(np.uint8)
        return kind, (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    data = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for offset in SCALES[name]:
        data[:, offset:offset + 2] = SCALE_VALUES.view(np.uint8).reshape(count, 2)
    set_other_scales(name, data)
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
            values = np.ascontiguousarray(dequantize(name, data, kind), dtype="<f4")
            out.write("%s %s %s\n" % (name, data.tobytes().hex(), values.tobytes().hex()))


if __name__ == "__main__":
    main()
