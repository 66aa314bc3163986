// SPDX-License-Identifier: Apache-2.0
// For tests: the int8 form of kernels_amx.cpp with its tiles in plain C++. All but the tile
// instructions, the vectors beside them too, is what runs there.
#include "backend/cpu/kernels/project_int8_tiles.hpp"
#include "backend/cpu/kernels/simd_avx512.hpp"
#include "backend/cpu/kernels/tiles_emulated.hpp"

namespace lemma::cpu {
namespace {
namespace emulated {

struct Below {
  static const KernelTable& table(std::size_t) { return kAvx512Kernels; }
};

}  // namespace emulated
}  // namespace

constinit const Int8Kernels kEmulatedTilesKernels =
    int8_tile_kernels<EmulatedTiles, avx512::Simd, emulated::Below>("amxint8 emulated");

}  // namespace lemma::cpu
