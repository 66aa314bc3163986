// SPDX-License-Identifier: Apache-2.0
// Perplexity: exp of the mean negative log-likelihood of a text's tokens. The tokens are cut into
// windows of W; each window is evaluated on its own, its first token replaced by BOS where one is
// given.
//   kAll: every token of a window but its first counts, and the last window may be short.
//   kHalf: only whole windows are evaluated, and only tokens W/2 + 1 .. W - 1 count, each of which
//     has at least half a window before it. This is the rule of llama.cpp's perplexity program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "eval/model_run.hpp"

namespace lemma::eval {

struct PerplexityOptions {
  std::uint32_t window = 512;  ///< W, at least 4 and within the context
  enum class Score : std::uint8_t { kAll, kHalf } score = Score::kAll;
  std::optional<std::int32_t> bos;  ///< stands first in each window
  ProgressCallback progress{};
};

struct Perplexity {
  std::size_t tokens = 0;  ///< of the text
  std::size_t windows = 0, scored = 0;
  double mean_nll = 0;        ///< nats per scored token
  double standard_error = 0;  ///< of mean_nll, taking tokens as independent
  double perplexity() const;
};

/// Throws kUsage where the text is too short to score a token, or the window past the context.
Perplexity perplexity(ModelRun& run, std::span<const std::int32_t> tokens,
                      const PerplexityOptions& options);

}  // namespace lemma::eval
