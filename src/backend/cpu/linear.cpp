// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/linear.hpp"

#include <algorithm>

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

}  // namespace

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
  const std::size_t count = chunk_outputs(chunk);
  for (const ClassRun& run : in.runs) {
    if (weight_->product == Product::kDecoded) {
      multiply_decoded(kernels, in, run, chunk, out, out_stride);
    } else {
      multiply(kernels, in, run, chunk, out, out_stride);
    }
    for (std::size_t r = run.first; r < run.first + run.rows; ++r) {
      float* const row = out + r * out_stride;
      if (!bias_.empty()) {
        for (std::size_t o = 0; o < count; ++o) row[o] += bias_[chunk * kChunk + o];
      }
      if (clamp_ != 0.f) {
        for (std::size_t o = 0; o < count; ++o) row[o] = algorithm::clamp(row[o], clamp_);
      }
    }
  }
}

void Linear::multiply(const KernelTable& kernels, const ProductInput& in, const ClassRun& run,
                      std::size_t chunk, float* out, std::size_t out_stride) const noexcept {
  ProjectJob job;
  job.panels = weight_->panels.data() + chunk * (kChunk / kPanelRows) * weight_->panel_bytes;
  job.panel_bytes = weight_->panel_bytes;
  job.outputs = chunk_outputs(chunk);
  job.cols = cols();
  job.rows = run.rows;
  job.out = out + run.first * out_stride;
  job.out_stride = out_stride;
  if (weight_->product == Product::kFloat) {
    job.x = in.x + run.first * cols();
    job.x_stride = cols();
  } else {
    const std::size_t groups = run.first * (cols() / kGroup);
    job.quantized = {in.quantized.codes + run.first * cols(), in.quantized.scales + groups,
                     in.quantized.scaled_sums + groups, in.quantized.sums + groups * 3};
  }
  kernels.project[static_cast<std::size_t>(weight_->kernel)][run.token_class](job);
}

void Linear::multiply_decoded(const KernelTable& kernels, const ProductInput& in,
                              const ClassRun& run, std::size_t chunk, float* out,
                              std::size_t out_stride) const noexcept {
  alignas(64) float panel[kDecodedCols * kPanelRows];
  const std::size_t count = chunk_outputs(chunk);
  for (std::size_t o = 0; o < count; o += kPanelRows) {
    for (std::size_t first = 0; first < cols(); first += kDecodedCols) {
      const std::size_t width = std::min(kDecodedCols, cols() - first);
      decode_panel(weight_->matrix, chunk * kChunk + o, first, width, panel);
      ProductJob job;
      job.panel = panel;
      job.k_stride = kPanelRows;
      job.panel_stride = 0;  // one panel only
      job.k = width;
      job.columns = std::min(kPanelRows, count - o);
      job.x = in.x + run.first * cols() + first;
      job.x_stride = cols();
      job.rows = run.rows;
      job.out = out + run.first * out_stride + o;
      job.out_stride = out_stride;
      job.accumulate = first > 0;
      kernels.product(job);
    }
  }
}

}  // namespace lemma::cpu
