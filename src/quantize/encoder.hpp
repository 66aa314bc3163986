// SPDX-License-Identifier: Apache-2.0
// Encoder: the rows of one tensor in another format, part by part, on all threads. A row is encoded
// by itself, its errors weighed by importance where that is known; or, with a Hessian, by GPTQ. The
// bytes do not depend on the number of threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/thread_pool.hpp"
#include "quantize/gptq.hpp"
#include "quantize/hessians.hpp"
#include "quantize/importance.hpp"
#include "weights/checkpoint.hpp"
#include "weights/gguf/writer.hpp"
#include "weights/view.hpp"

namespace lemma::quantize {

/// Matrices in a tensor: those of a stack of experts, or one.
std::size_t matrices_of(const weights::TensorInfo& tensor);

/// Makes what GPTQ needs of each matrix; the last one is kept, since matrices that read the same
/// rows follow each other in a file.
class GptqSource {
 public:
  GptqSource(Hessians& hessians, double damping, base::ThreadPool& pool)
      : hessians_(hessians), damping_(damping), pool_(pool) {}

  Hessians& hessians() noexcept { return hessians_; }
  /// Null where the matrix saw no row of the text. Valid until the next call.
  const Gptq* of(const weights::TensorInfo& tensor, std::size_t matrix, weights::Format format);

 private:
  Hessians& hessians_;
  double damping_;
  base::ThreadPool& pool_;
  std::optional<Gptq> last_;
  const float* last_sum_ = nullptr;  ///< of which Hessian
  std::size_t last_run_ = 0;
  weights::Format last_format_ = weights::Format::kF32;
};

class Encoder {
 public:
  using Sink = weights::gguf::Writer::Sink;

  /// All must outlive it. `gptq` may be null; else its Hessians must know the tensor.
  Encoder(const weights::Checkpoint& checkpoint, const weights::TensorInfo& tensor,
          weights::Format to, const std::optional<Importance::Entry>& importance, GptqSource* gptq,
          base::ThreadPool& pool);

  /// `done` is told of the rows that are through. Throws kBadFile for a row that is not finite.
  void stream(const Sink& sink, const std::function<void(std::uint64_t rows)>& done);
  /// Matrices that GPTQ had no Hessian for; after stream().
  std::size_t without_hessian() const noexcept { return without_hessian_; }

 private:
  void encode_part(std::uint64_t first, std::uint64_t count, std::byte* out);
  void encode_part(const Gptq& gptq, std::uint64_t first, std::uint64_t count, std::byte* out);
  std::vector<float> decoded(std::uint64_t row, std::uint64_t count);
  const float* means_of(std::uint64_t row) const noexcept;

  const weights::TensorInfo& tensor_;
  weights::Matrix matrix_;
  const weights::FormatTraits& from_;
  const weights::FormatTraits& to_;
  GptqSource* gptq_;
  base::ThreadPool& pool_;
  std::vector<std::vector<float>> means_;  ///< [matrices][cols]; empty: all inputs alike
  std::uint64_t rows_each_;                ///< of one matrix
  std::size_t without_hessian_ = 0;
  std::atomic<std::uint64_t> bad_row_;
};

}  // namespace lemma::quantize
