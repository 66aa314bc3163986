// SPDX-License-Identifier: Apache-2.0
// Products on AMX: the tile instructions. They are written as assembly, with memory named as
// clobbered: GCC 12's intrinsics neither say that a configuration of 64 bytes is read nor that a
// tile is loaded from memory, and stores into either may then move past them. Tiles are a thread's
// own; base/cpu_features asks the system for them once per process.
#include "backend/cpu/kernels/project_int8_tiles.hpp"
#include "backend/cpu/kernels/project_tiles.hpp"
#include "backend/cpu/kernels/simd_avx512.hpp"

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

/// Of bf16, tiles 0 to 3 are sums (upper left, upper right, lower left, lower right), 4 and 5
/// activations, 6 and 7 weights; of bytes, 0 to 3 sums, 4 and 5 activations, 6 and 7 weights.
class Tiles {
 public:
  /// Rows of the upper and the lower tiles of bf16. Clears all tiles where they change.
  void shape(std::size_t upper, std::size_t lower) {
    if (upper == upper_ && lower == lower_) return;
    upper_ = upper;
    lower_ = lower;
    configure({{upper, upper, lower, lower, upper, lower, 16, 16}}, 64);
  }
  /// Tiles of bytes: 16 rows and a product of so many columns. Clears all tiles.
  void shape_bytes(std::size_t columns) {
    configure({{16, 16, 16, 16, 16, 16, columns / 4, columns / 4}}, columns);
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
  /// The same of signed bytes, exactly.
  template <int Sums, int Activations, int Weights>
  void add_bytes() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Sums), "i"(Activations), "i"(Weights)
                 : "memory");
  }

 private:
  struct Rows {
    std::size_t of[8];
  };
  /// Rows of 64 bytes, and of activations of so many.
  static void configure(const Rows& rows, std::size_t activations) {
    Configuration to;
    for (std::size_t t = 0; t < 8; ++t) {
      const bool there = rows.of[t] > 0;
      to.rows[t] = static_cast<std::uint8_t>(rows.of[t]);
      to.row_bytes[t] = static_cast<std::uint16_t>(!there             ? 0
                                                   : t == 4 || t == 5 ? activations
                                                                      : 64);
    }
    asm volatile("ldtilecfg %0" ::"m"(to) : "memory");
  }

  std::size_t upper_ = 0, lower_ = 0;
};

/// Every processor with AMX has VBMI.
struct Below {
  static const KernelTable& table(std::size_t layout) {
    return kAvx512VbmiKernels.project[layout][0] != nullptr ? kAvx512VbmiKernels : kAvx512Kernels;
  }
};

}  // namespace amx
}  // namespace

constinit const EnteredKernels kAmxKernels = tile_kernels<amx::Tiles, kAvx512Kernels>("amx");
constinit const Int8Kernels kAmxInt8Kernels =
    int8_tile_kernels<amx::Tiles, avx512::Simd, amx::Below>("amxint8");

}  // namespace lemma::cpu
