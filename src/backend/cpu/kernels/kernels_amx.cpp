// SPDX-License-Identifier: Apache-2.0
// Entered rows on AMX: the tile instructions. They are written as assembly, with memory named as
// clobbered: GCC 12's intrinsics neither say that a configuration of 64 bytes is read nor that a
// tile is loaded from memory, and stores into either may then move past them. Tiles are a thread's
// own; base/cpu_features asks the system for them once per process.
#include "backend/cpu/kernels/project_tiles.hpp"

namespace lemma::cpu {
namespace {
namespace amx {

/// What LDTILECFG reads.
struct alignas(64) Configuration {
  std::uint8_t palette = 1, start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(Configuration) == 64);

/// Tiles 0 to 3 are sums (upper left, upper right, lower left, lower right), 4 and 5 activations,
/// 6 and 7 weights.
class Tiles {
 public:
  /// Rows of the upper and the lower tiles. Clears all tiles where they change.
  void shape(std::size_t upper, std::size_t lower) {
    if (upper == upper_ && lower == lower_) return;
    upper_ = upper;
    lower_ = lower;
    Configuration to;
    const std::size_t rows[8] = {upper, upper, lower, lower, upper, lower, 16, 16};
    for (std::size_t t = 0; t < 8; ++t) {
      to.rows[t] = static_cast<std::uint8_t>(rows[t]);
      to.row_bytes[t] = rows[t] > 0 ? 64 : 0;
    }
    asm volatile("ldtilecfg %0" ::"m"(to) : "memory");
  }
  void release() { asm volatile("tilerelease" ::: "memory"); }
  template <int T>
  void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(T) : "memory");
  }
  template <int T>
  void load(const void* from, std::size_t stride) {
    asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(T), "r"(from), "r"(stride) : "memory");
  }
  template <int T>
  void store(void* to, std::size_t stride) {
    asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(T), "r"(to), "r"(stride) : "memory");
  }
  /// sums += activations x weights.
  template <int Sums, int Activations, int Weights>
  void add_product() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Sums), "i"(Activations),
                 "i"(Weights)
                 : "memory");
  }

 private:
  std::size_t upper_ = 0, lower_ = 0;
};

}  // namespace amx
}  // namespace

constinit const EnteredKernels kAmxKernels = tile_kernels<amx::Tiles, kAvx512Kernels>("amx");

}  // namespace lemma::cpu
