// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/linear.hpp"

#include <algorithm>
#include <string_view>

#include "algorithm/linear.hpp"
#include "base/check.hpp"

namespace lemma::cpu {
namespace {

/// Columns decoded at a time: whole blocks of every format, and 16 KiB as f32 panel.
constexpr std::size_t kDecodedCols = 256;

/// Decodes columns [first, first + cols) of 16 rows from `row` on into a panel [cols][16].
void decode_panel(const weights::Matrix& matrix, std::size_t row, std::size_t first,
                  std::size_t cols, float* panel) noexcept {
  const weights::FormatTraits& format = weights::traits(matrix.format);
  float decoded[kDecodedCols];
  for (std::size_t r = 0; r < kPanelRows; ++r) {
    if (row + r < matrix.rows) {
      const std::size_t offset = first / format.block_elements * format.block_bytes;
      format.dequantize(matrix.row(row + r) + offset, {decoded, cols});
    } else {
      std::fill_n(decoded, cols, 0.f);
    }
    for (std::size_t k = 0; k < cols; ++k) panel[k * kPanelRows + r] = decoded[k];
  }
}

void append_once(std::string& list, std::string_view item) {
  if (list.find(item) != std::string::npos) return;
  if (!list.empty()) list += ", ";
  list += item;
}

}  // namespace

std::string implementations(std::initializer_list<const Linear*> linears) {
  std::string names;
  for (const Linear* linear : linears) {
    if (*linear) append_once(names, linear->weight().describe());
  }
  return names;
}

std::string formats(std::initializer_list<const Linear*> linears) {
  std::string names;
  for (const Linear* linear : linears) {
    if (*linear) append_once(names, weights::traits(linear->weight().matrix.format).name);
  }
  return names;
}

Linear::Linear(const Context& context, backend::WeightId weight, backend::WeightId bias,
               float clamp)
    : weight_(&context.weight(weight)), bias_(context.vector(bias)), clamp_(clamp) {
  LEMMA_CHECK(weight_->product != Product::kNone);
  LEMMA_CHECK(bias_.empty() || bias_.size() == outputs());
}

std::size_t Linear::chunk_outputs(std::size_t chunk) const noexcept {
  return std::min(kChunk, outputs() - chunk * kChunk);
}

void Linear::run(const KernelTable& kernels, const ProductInput& in, std::size_t chunk, float* out,
                 std::size_t out_stride) const noexcept {
  run(kernels, in, chunk * kChunk, chunk_outputs(chunk), out, out_stride);
}

void Linear::run(const KernelTable& kernels, const ProductInput& in, std::size_t first,
                 std::size_t count, float* out, std::size_t out_stride) const noexcept {
  for (const ClassRun& run : in.runs) {
    float* const to = out + run.first * out_stride;
    if (weight_->product == Product::kDecoded) {
      multiply_decoded(kernels, in, run, first, count, to, out_stride);
    } else if (first % kPanelRows == 0) {
      multiply(kernels, in, run, first, count, to, out_stride);
    } else {
      multiply_unaligned(kernels, in, run, first, count, to, out_stride);
    }
    for (std::size_t r = 0; r < run.rows; ++r) {
      float* const row = to + r * out_stride;
      if (!bias_.empty()) {
        for (std::size_t o = 0; o < count; ++o) row[o] += bias_[first + o];
      }
      if (clamp_ != 0.f) {
        for (std::size_t o = 0; o < count; ++o) row[o] = algorithm::clamp(row[o], clamp_);
      }
    }
  }
}

void Linear::multiply(const KernelTable& kernels, const ProductInput& in, const ClassRun& run,
                      std::size_t first, std::size_t count, float* out,
                      std::size_t out_stride) const noexcept {
  ProjectJob job;
  job.panels = weight_->panels.data() + first / kPanelRows * weight_->panel_bytes;
  job.panel_bytes = weight_->panel_bytes;
  job.outputs = count;
  job.cols = cols();
  job.rows = run.rows;
  job.out = out;
  job.out_stride = out_stride;
  if (weight_->product == Product::kFloat) {
    job.x_stride = in.x_stride != 0 ? in.x_stride : cols();
    job.x = in.x + run.first * job.x_stride;
  } else {
    const std::size_t groups = run.first * (cols() / kGroup);
    job.quantized = {in.quantized.codes + run.first * cols(), in.quantized.scales + groups,
                     in.quantized.scaled_sums + groups, in.quantized.sums + groups * 3};
  }
  kernels.project[static_cast<std::size_t>(weight_->kernel)][run.token_class](job);
}

/// Computes whole panels for a few rows at a time and copies what was asked for. An output's bits
/// do not depend on its place in a panel.
void Linear::multiply_unaligned(const KernelTable& kernels, const ProductInput& in,
                                const ClassRun& run, std::size_t first, std::size_t count,
                                float* out, std::size_t out_stride) const noexcept {
  constexpr std::size_t kRows = 8, kWidth = kChunk + kPanelRows;
  float wide[kRows * kWidth];
  const std::size_t lead = first % kPanelRows;
  for (std::size_t r = 0; r < run.rows; r += kRows) {
    const ClassRun some{run.first + r, std::min(kRows, run.rows - r), run.token_class};
    multiply(kernels, in, some, first - lead, lead + count, wide, kWidth);
    for (std::size_t i = 0; i < some.rows; ++i) {
      std::copy_n(wide + i * kWidth + lead, count, out + (r + i) * out_stride);
    }
  }
}

void Linear::multiply_decoded(const KernelTable& kernels, const ProductInput& in,
                              const ClassRun& run, std::size_t first, std::size_t count, float* out,
                              std::size_t out_stride) const noexcept {
  alignas(64) float panel[kDecodedCols * kPanelRows];
  const std::size_t x_stride = in.x_stride != 0 ? in.x_stride : cols();
  for (std::size_t o = 0; o < count; o += kPanelRows) {
    for (std::size_t k = 0; k < cols(); k += kDecodedCols) {
      const std::size_t width = std::min(kDecodedCols, cols() - k);
      decode_panel(weight_->matrix, first + o, k, width, panel);
      ProductJob job;
      job.panel = panel;
      job.k_stride = kPanelRows;
      job.panel_stride = 0;  // one panel only
      job.k = width;
      job.columns = std::min(kPanelRows, count - o);
      job.x = in.x + run.first * x_stride + k;
      job.x_stride = x_stride;
      job.rows = run.rows;
      job.out = out + o;
      job.out_stride = out_stride;
      job.accumulate = k > 0;
      kernels.product(job);
    }
  }
}

}  // namespace lemma::cpu
