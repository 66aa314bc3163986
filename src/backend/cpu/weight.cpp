// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/weight.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "backend/cpu/cpu_backend.hpp"
#include "backend/cpu/packing.hpp"
#include "base/mapped_file.hpp"

namespace lemma::cpu {
namespace {

/// Bytes of addresses that packed weights take at a time.
constexpr std::size_t kMemoryBlock = std::size_t{64} << 20;
/// Bytes of the file that are packed between two looks at what can be given back.
constexpr std::size_t kPackedAtOnce = std::size_t{16} << 20;

Product choose_product(weights::Format format, backend::Numerics numerics) noexcept {
  if (!has_kernel(format)) return Product::kDecoded;
  if (!takes_int8(kernel_of(format))) return Product::kFloat;
  return numerics == backend::Numerics::kStrict ? Product::kDecoded : Product::kInt8;
}

/// Packs all panels. The file's pages are given back behind the copy: both together never hold much
/// of a weight.
void pack_matrix(Weight& weight, PanelMemory& memory, base::ThreadPool& pool) {
  weight.panels = memory.take(weight.panel_count() * weight.panel_bytes);
  const std::size_t rows = kPanelRows * weight.matrix.row_bytes();
  const std::size_t some = std::max<std::size_t>(1, kPackedAtOnce / rows);
  for (std::size_t first = 0; first < weight.panel_count(); first += some) {
    const std::size_t count = std::min(some, weight.panel_count() - first);
    pool.parallel_for(count, 1, [&](std::size_t begin, std::size_t end) {
      for (std::size_t p = first + begin; p < first + end; ++p) {
        pack_panel(weight.matrix, p * kPanelRows, weight.panels.data() + p * weight.panel_bytes);
      }
    });
    const std::size_t packed = first * rows;
    base::let_go({weight.matrix.bytes + packed,
                  std::min(count * rows, weight.matrix.size_bytes() - packed)});
  }
}

}  // namespace

std::span<std::byte> PanelMemory::take(std::size_t bytes) {
  if (blocks_.empty() || blocks_.back().size() - used_ < bytes) {
    blocks_.push_back(base::AlignedBuffer::uninitialized(std::max(bytes, kMemoryBlock)));
    used_ = 0;
  }
  base::AlignedBuffer& block = blocks_.back();
  const std::span<std::byte> piece = block.bytes().subspan(used_, bytes);
  used_ = std::min(block.size(), used_ + (bytes + 63) / 64 * 64);
  return piece;
}

std::string Weight::describe(bool exact) const {
  std::string name(weights::traits(matrix.format).name);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (mapped()) name += " mapped";
  const auto rows = [&](std::string_view generated) {
    if (exact || entered == EnteredRows::kAsGenerated) return fmt::format(" x {}", generated);
    return fmt::format(" x {} entered, x {} generated",
                       entered == EnteredRows::kBf16 ? "bf16" : "int13", generated);
  };
  switch (product) {
    case Product::kFloat:
      return name + rows("f32");
    case Product::kInt8:
      return name + rows("int8");
    case Product::kDecoded:
      return name + " decoded x f32";
    case Product::kNone:
      break;
  }
  return name;
}

std::uint64_t packed_bytes(weights::Format format, std::uint64_t rows, std::uint64_t cols,
                           backend::Numerics numerics) noexcept {
  if (choose_product(format, numerics) == Product::kDecoded) return 0;
  return (rows + kPanelRows - 1) / kPanelRows * panel_bytes(format, static_cast<std::size_t>(cols));
}

Weight make_weight(weights::Matrix matrix, backend::WeightUse use, backend::Numerics numerics,
                   PanelMemory* memory, base::ThreadPool& pool) {
  Weight weight;
  weight.matrix = std::move(matrix);
  if (use == backend::WeightUse::kVector) weight.vector = weights::to_f32(weight.matrix);
  if (use != backend::WeightUse::kMatrix) return weight;
  weight.product = choose_product(weight.matrix.format, numerics);
  if (weight.product == Product::kDecoded) return weight;
  weight.kernel = kernel_of(weight.matrix.format);
  weight.panel_bytes = panel_bytes(weight.matrix.format, weight.matrix.cols);
  if (memory != nullptr) pack_matrix(weight, *memory, pool);
  return weight;
}

}  // namespace lemma::cpu
