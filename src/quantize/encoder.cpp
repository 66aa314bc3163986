// SPDX-License-Identifier: Apache-2.0
#include "quantize/encoder.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "base/raise.hpp"
#include "weights/rows_of.hpp"

namespace lemma::quantize {
namespace {

constexpr std::size_t kPartBytes = std::size_t{32} << 20;  ///< f32 of the rows in work at a time
constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();

}  // namespace

std::size_t matrices_of(const weights::TensorInfo& tensor) {
  return tensor.shape.size() == 3 ? static_cast<std::size_t>(tensor.shape.front()) : 1;
}

const Gptq* GptqSource::of(const weights::TensorInfo& tensor, std::size_t matrix,
                           weights::Format format) {
  const Hessians::Hessian hessian = hessians_.at(tensor.name, matrix);
  if (hessian.rows == 0) return nullptr;
  if (last_ && hessian.sum.data() == last_sum_ && hessians_.runs() == last_run_ &&
      format == last_format_)
    return &*last_;
  last_.emplace(hessian.sum, tensor.row_elements(), format, damping_, pool_);
  last_sum_ = hessian.sum.data();
  last_run_ = hessians_.runs();
  last_format_ = format;
  return &*last_;
}

Encoder::Encoder(const weights::Checkpoint& checkpoint, const weights::TensorInfo& tensor,
                 weights::Format to, const std::optional<Importance::Entry>& importance,
                 GptqSource* gptq, base::ThreadPool& pool)
    : tensor_(tensor),
      matrix_(weights::rows_of(checkpoint, tensor)),
      from_(weights::traits(tensor.format)),
      to_(weights::traits(to)),
      gptq_(gptq),
      pool_(pool),
      rows_each_(matrix_.rows / matrices_of(tensor)),
      bad_row_(kNone) {
  if (!importance) return;
  // A matrix that was never seen is encoded as if there were no importance.
  for (std::size_t m = 0; m < importance->matrices(); ++m)
    means_.push_back(importance->counts[m] > 0.f ? importance->means(m) : std::vector<float>());
}

void Encoder::stream(const Sink& sink, const std::function<void(std::uint64_t rows)>& done) {
  const std::uint64_t part =
      std::max<std::uint64_t>(kPartBytes / (matrix_.cols * sizeof(float)), Gptq::kRowsAtOnce);
  const std::size_t row_bytes = weights::row_bytes(to_.format, matrix_.cols);
  std::vector<std::byte> out(std::min(part, rows_each_) * row_bytes);
  without_hessian_ = 0;
  for (std::uint64_t begin = 0; begin < matrix_.rows; begin += rows_each_) {
    const std::size_t m = begin / rows_each_;
    const Gptq* const gptq = gptq_ ? gptq_->of(tensor_, m, to_.format) : nullptr;
    if (gptq_ && !gptq) ++without_hessian_;
    for (std::uint64_t first = begin; first < begin + rows_each_; first += part) {
      const std::uint64_t count = std::min(part, begin + rows_each_ - first);
      if (gptq)
        encode_part(*gptq, first, count, out.data());
      else
        encode_part(first, count, out.data());
      if (const std::uint64_t bad = bad_row_.load(); bad != kNone)
        base::raise(ErrorKind::kBadFile, "tensor '{}': row {} holds a number that is not finite",
                    tensor_.name, bad);
      sink(std::span(out).first(count * row_bytes));
      done(first + count);
    }
  }
}

void Encoder::encode_part(std::uint64_t first, std::uint64_t count, std::byte* out) {
  const std::size_t row_bytes = weights::row_bytes(to_.format, matrix_.cols);
  pool_.parallel_for(count, 4, [&](std::size_t begin, std::size_t end) {
    for (std::size_t r = begin; r < end; ++r)
      if (const std::vector<float> row = decoded(first + r, 1); !row.empty())
        to_.quantize(row, out + r * row_bytes, means_of(first + r));
  });
}

void Encoder::encode_part(const Gptq& gptq, std::uint64_t first, std::uint64_t count,
                          std::byte* out) {
  const std::size_t row_bytes = weights::row_bytes(to_.format, matrix_.cols);
  pool_.parallel_for(count, Gptq::kRowsAtOnce, [&](std::size_t begin, std::size_t end) {
    if (const std::vector<float> rows = decoded(first + begin, end - begin); !rows.empty())
      gptq.encode(rows, end - begin, out + begin * row_bytes);
  });
}

/// Rows as f32; none, and a mark, where one is not finite.
std::vector<float> Encoder::decoded(std::uint64_t row, std::uint64_t count) {
  std::vector<float> rows(count * matrix_.cols);
  for (std::uint64_t r = 0; r < count; ++r) {
    const std::span<float> values = std::span(rows).subspan(r * matrix_.cols, matrix_.cols);
    from_.dequantize(matrix_.row(row + r), values);
    if (std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); }))
      continue;
    std::uint64_t none = kNone;
    bad_row_.compare_exchange_strong(none, row + r);
    return {};
  }
  return rows;
}

const float* Encoder::means_of(std::uint64_t row) const noexcept {
  if (means_.empty()) return nullptr;
  const std::vector<float>& means = means_[means_.size() == 1 ? 0 : row / rows_each_];
  return means.empty() ? nullptr : means.data();
}

}  // namespace lemma::quantize
