// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/weight.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

#include "backend/cpu/packing.hpp"
#include "base/mapped_file.hpp"

namespace lemma::cpu {
namespace {

/// Bytes of the file that are packed between two looks at what can be given back.
constexpr std::size_t kPackedAtOnce = std::size_t{16} << 20;

Product choose_product(weights::Format format, backend::Numerics numerics) noexcept {
  if (!has_kernel(format)) return Product::kDecoded;
  if (!takes_int8(kernel_of(format))) return Product::kFloat;
  return numerics == backend::Numerics::kStrict ? Product::kDecoded : Product::kInt8;
}

}  // namespace

std::string Weight::describe() const {
  std::string name(weights::traits(matrix.format).name);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  switch (product) {
    case Product::kFloat:
      return name + " x f32";
    case Product::kInt8:
      return name + " x int8";
    case Product::kDecoded:
      return name + " decoded x f32";
    case Product::kNone:
      break;
  }
  return name;
}

Weight make_weight(weights::Matrix matrix, backend::WeightUse use, backend::Numerics numerics,
                   base::ThreadPool& pool) {
  Weight weight;
  weight.matrix = std::move(matrix);
  if (use == backend::WeightUse::kVector) weight.vector = weights::to_f32(weight.matrix);
  if (use != backend::WeightUse::kMatrix) return weight;
  weight.product = choose_product(weight.matrix.format, numerics);
  if (weight.product == Product::kDecoded) return weight;
  weight.kernel = kernel_of(weight.matrix.format);
  weight.panel_bytes = panel_bytes(weight.matrix.format, weight.matrix.cols);
  weight.panels = base::AlignedBuffer::uninitialized(weight.panel_count() * weight.panel_bytes);
  // The file's pages are given back behind the copy: both together never hold much of a weight.
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
  return weight;
}

}  // namespace lemma::cpu
