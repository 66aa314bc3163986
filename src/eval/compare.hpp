// SPDX-License-Identifier: Apache-2.0
// Comparison of two models over a text, position by position: how far the next-token distributions
// of one (a quantized file, say) are from those of the other. Both see the same tokens in the same
// windows; they step side by side, so that no more than a step's logits are held. The other model's
// logits can also come from a file that a run before has saved.
//
// The file is safetensors: "tokens" I32 [n], the text, and "logits" F32 [n, V], those of every
// token but a window's last, whose row is 0; its metadata names the window.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "eval/model_run.hpp"
#include "eval/perplexity.hpp"

namespace lemma::eval {

/// A scored position: the model's view and the other's of the token that really comes next.
struct ComparedToken {
  std::uint32_t position = 0;    ///< of the predicted token in the text
  std::int32_t token = 0;        ///< the predicted token
  float nll = 0, other_nll = 0;  ///< nats
  float kl = 0;                  ///< KL(other || model), nats
  std::int32_t best = 0, other_best = 0;
};

struct Comparison {
  std::size_t tokens = 0, windows = 0;
  std::vector<ComparedToken> scored;

  double mean_nll() const;
  double other_mean_nll() const;
  double mean_kl() const;
  double kl_standard_error() const;
  /// The q-quantile of the KL, q in [0, 1].
  double kl_quantile(double q) const;
  double same_best() const;  ///< share of positions
  /// Root of the mean squared difference of the probabilities of the tokens that come next.
  double rms_probability_difference() const;
};

/// What a model is compared with.
class OtherLogits {
 public:
  virtual ~OtherLogits() = default;
  virtual std::uint32_t vocabulary() const noexcept = 0;
  /// A new window begins; `first` is its first token's place in the text.
  virtual void begin(std::size_t first) = 0;
  /// The logits of the window's next tokens, [ids.size(), V]; valid until the next call.
  virtual std::span<const float> next(std::span<const std::int32_t> ids) = 0;
};

/// A second model; `run` must outlive it.
std::unique_ptr<OtherLogits> logits_of(ModelRun& run);
/// A file of logits, for `tokens` in windows of `window`. Throws kUsage where it holds others.
std::unique_ptr<OtherLogits> saved_logits(const std::filesystem::path& path,
                                          std::span<const std::int32_t> tokens,
                                          std::uint32_t window);

/// Compares `run` with `other`. Throws what perplexity() throws, and kUsage for vocabularies of
/// different sizes.
Comparison compare(ModelRun& run, OtherLogits& other, std::span<const std::int32_t> tokens,
                   const PerplexityOptions& options);

/// Writes the logits of `tokens` for a later saved_logits().
void save_logits(ModelRun& run, std::span<const std::int32_t> tokens,
                 const PerplexityOptions& options, const std::filesystem::path& path);

}  // namespace lemma::eval
