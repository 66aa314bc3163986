// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/linear.hpp"

#include <algorithm>
#include <string_view>
#include <variant>

#include "algorithm/linear.hpp"
#include "backend/cpu/kernels/project_whole.hpp"
#include "backend/cpu/packing.hpp"
#include "base/check.hpp"
#include "base/mapped_file.hpp"

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

/// Panels that are packed side by side, of `bytes` each: an even number, since kernels for many
/// rows take two at a time, and as many as stay in the second cache beside the rows.
std::size_t panels_at_once(std::size_t bytes) noexcept {
  constexpr std::size_t kRoom = std::size_t{256} << 10;
  return bytes * 4 <= kRoom ? 4 : 2;
}

/// The piece that every mapped weight of the backend can use.
std::size_t largest_piece(const Context& context) noexcept {
  std::size_t largest = 0;
  for (const Weight& weight : context.weights) {
    if (!weight.mapped()) continue;
    largest = std::max(largest, panels_at_once(weight.panel_bytes) * weight.panel_bytes);
  }
  return largest;
}

/// Whether a router's logits are what this weight makes.
bool feeds_route(const backend::Program& program, backend::WeightId weight) noexcept {
  std::int32_t out = -1;
  for (const backend::Operation& operation : program.operations) {
    if (const auto* project = std::get_if<backend::Project>(&operation)) {
      for (const auto& output : project->outputs) {
        if (output.weight == weight) out = output.out.id;
      }
    } else if (const auto* route = std::get_if<backend::Route>(&operation)) {
      if (out >= 0 && route->logits.id == out) return true;
    }
  }
  return false;
}

void append_once(std::string& list, std::string_view item) {
  if (list.find(item) != std::string::npos) return;
  if (!list.empty()) list += ", ";
  list += item;
}

}  // namespace

PanelScratch::PanelScratch(const Context& context, std::span<const std::size_t> shape)
    : memory_(base::AlignedBuffer::uninitialized(static_cast<std::size_t>(context.pool.threads()) *
                                                 shape[0])),
      flags_(static_cast<std::size_t>(context.pool.threads())),
      piece_(shape[0]) {}

/// A thread looks first at the piece that it had last, whose lines are in its cache.
PanelScratch::Lease::Lease(PanelScratch& scratch) noexcept {
  static thread_local std::size_t last = 0;
  for (std::size_t i = last % scratch.flags_.size();; i = (i + 1) % scratch.flags_.size()) {
    std::atomic<bool>& taken = scratch.flags_[i].taken;
    if (taken.load(std::memory_order_relaxed) || taken.exchange(true, std::memory_order_acquire))
      continue;
    last = i;
    taken_ = &taken;
    data_ = scratch.memory_.data() + i * scratch.piece_;
    return;
  }
}

PanelScratch::Lease::~Lease() {
  taken_->store(false, std::memory_order_release);
}

std::string implementations(std::initializer_list<const Linear*> linears) {
  std::string names;
  for (const Linear* linear : linears) {
    if (*linear) append_once(names, linear->describe());
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
  exact_ = weight_->entered != EnteredRows::kAsGenerated && feeds_route(context.program, weight);
  LEMMA_CHECK(weight_->product != Product::kNone);
  LEMMA_CHECK(bias_.empty() || bias_.size() == outputs());
  if (weight_->mapped()) scratch_ = &context.shared<PanelScratch>({largest_piece(context)});
}

std::size_t Linear::chunk_outputs(std::size_t chunk) const noexcept {
  return std::min(kChunk, outputs() - chunk * kChunk);
}

void Linear::expect(std::size_t first, std::size_t count) const noexcept {
  if (!weight_->scattered) return;
  const std::span<const std::byte> rows(weight_->matrix.row(first),
                                        count * weight_->matrix.row_bytes());
  if (!base::seems_cached(rows)) base::prefetch(rows);
}

void Linear::run(const KernelTable& kernels, const ProductInput& in, std::size_t chunk, float* out,
                 std::size_t out_stride) const noexcept {
  run(kernels, in, chunk * kChunk, chunk_outputs(chunk), out, out_stride);
}

void Linear::run(const KernelTable& kernels, const ProductInput& in, std::size_t first,
                 std::size_t count, float* out, std::size_t out_stride) const noexcept {
  if (weight_->product == Product::kDecoded) {
    for (const ClassRun& run : in.runs) {
      multiply_decoded(kernels, in, run, first, count, out + run.first * out_stride, out_stride);
    }
  } else if (weight_->mapped()) {
    multiply_mapped(kernels, in, first, count, out, out_stride);
  } else {
    const std::size_t panel = first / kPanelRows;
    multiply_panels(kernels, in, weight_->panels.data() + panel * weight_->panel_bytes,
                    first - panel * kPanelRows, count, out, out_stride);
  }
  for (const ClassRun& run : in.runs) {
    for (std::size_t r = run.first; r < run.first + run.rows; ++r) {
      float* const row = out + r * out_stride;
      if (!bias_.empty()) {
        for (std::size_t o = 0; o < count; ++o) row[o] += bias_[first + o];
      }
      if (clamp_ != 0.f) {
        for (std::size_t o = 0; o < count; ++o) row[o] = algorithm::clamp(row[o], clamp_);
      }
    }
  }
}

/// Packs a few panels at a time and multiplies them with all rows.
void Linear::multiply_mapped(const KernelTable& kernels, const ProductInput& in, std::size_t first,
                             std::size_t count, float* out, std::size_t out_stride) const noexcept {
  const PanelScratch::Lease scratch(*scratch_);
  const std::size_t bytes = weight_->panel_bytes, end = first + count;
  const std::size_t some = panels_at_once(bytes) * kPanelRows;
  for (std::size_t begin = first / kPanelRows * kPanelRows; begin < end; begin += some) {
    const std::size_t last = std::min(begin + some, end);
    for (std::size_t row = begin; row < last; row += kPanelRows) {
      pack_panel(weight_->matrix, row, scratch.data() + (row - begin) / kPanelRows * bytes);
    }
    const std::size_t from = std::max(begin, first);
    multiply_panels(kernels, in, scratch.data(), from - begin, last - from, out + (from - first),
                    out_stride);
  }
}

void Linear::multiply_panels(const KernelTable& kernels, const ProductInput& in,
                             const std::byte* panels, std::size_t first, std::size_t count,
                             float* out, std::size_t out_stride) const noexcept {
  for (const ClassRun& run : in.runs) {
    float* const to = out + run.first * out_stride;
    if (first == 0) {
      multiply(kernels, in, run, panels, count, to, out_stride);
    } else {
      multiply_unaligned(kernels, in, run, panels, first, count, to, out_stride);
    }
  }
}

void Linear::multiply(const KernelTable& kernels, const ProductInput& in, const ClassRun& run,
                      const std::byte* panels, std::size_t count, float* out,
                      std::size_t out_stride) const noexcept {
  ProjectJob job;
  job.panels = panels;
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
  if (in.quantized.bf16 != nullptr) job.quantized.bf16 = in.quantized.bf16 + run.first * cols();
  if (in.quantized.whole != nullptr)
    job.quantized.whole = in.quantized.whole + run.first * whole_row_bytes(cols());
  kernels.project[static_cast<std::size_t>(weight_->kernel)][exact_ ? 1 : run.token_class](job);
}

/// Computes whole panels for a few rows at a time and copies what was asked for. An output's bits
/// do not depend on its place in a panel.
void Linear::multiply_unaligned(const KernelTable& kernels, const ProductInput& in,
                                const ClassRun& run, const std::byte* panels, std::size_t lead,
                                std::size_t count, float* out,
                                std::size_t out_stride) const noexcept {
  constexpr std::size_t kRows = 8, kWidth = kChunk + kPanelRows;
  float wide[kRows * kWidth];
  for (std::size_t r = 0; r < run.rows; r += kRows) {
    const ClassRun some{run.first + r, std::min(kRows, run.rows - r), run.token_class};
    multiply(kernels, in, some, panels, lead + count, wide, kWidth);
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
