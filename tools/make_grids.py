#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the grids of the IQ formats, which are constants of those formats, as C++ tables, from the
Python package `gguf`: src/weights/formats/iq1_grid.cpp, iq2_grids.cpp and iq3_grids.cpp.

usage: make_grids.py FOLDER     (needs: pip install gguf numpy)
"""
import pathlib
import sys

import gguf
import numpy as np

# File -> grids: name, GGUF type, bits of a coordinate.
FILES = {
    "iq1_grid.cpp": [("kIQ1Grid", "IQ1_S", 2)],
    "iq2_grids.cpp": [("kIQ2_XXSGrid", "IQ2_XXS", 2), ("kIQ2_XSGrid", "IQ2_XS", 2),
                      ("kIQ2_SGrid", "IQ2_S", 2)],
    "iq3_grids.cpp": [("kIQ3_XXSGrid", "IQ3_XXS", 3), ("kIQ3_SGrid", "IQ3_S", 3)],
}
HEAD = """// SPDX-License-Identifier: Apache-2.0
// Grid points, written by tools/make_grids.py; grids.hpp says how a point is packed.
#include "weights/formats/grids.hpp"

namespace lemma::weights::formats {

// clang-format off
"""
TAIL = """// clang-format on

}  // namespace lemma::weights::formats
"""


def packed(type_name, bits):
    kind = gguf.quants._type_traits[gguf.GGMLQuantizationType[type_name]]
    kind.init_grid()
    grid = kind.grid.reshape(kind.grid_shape).astype(int)
    levels = np.searchsorted(np.unique(grid), grid)
    return [sum(int(level) << (bits * i) for i, level in enumerate(point)) for point in levels]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for name, grids in FILES.items():
        text = HEAD
        for symbol, type_name, bits in grids:
            points = packed(type_name, bits)
            text += "constinit const std::array<std::uint16_t, %d> %s = {\n" % (len(points), symbol)
            for i in range(0, len(points), 12):
                text += "  " + " ".join("%d," % p for p in points[i:i + 12]) + "\n"
            text += "};\n"
        (pathlib.Path(sys.argv[1]) / name).write_text(text + TAIL, encoding="ascii")


if __name__ == "__main__":
    main()
