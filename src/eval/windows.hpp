// SPDX-License-Identifier: Apache-2.0
// Windows: how a text is cut for evaluation. Shared by perplexity and comparison, so that both
// score the same positions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "eval/perplexity.hpp"

namespace lemma::eval {

struct Window {
  std::size_t begin = 0;              ///< of its first token in the text
  std::span<const std::int32_t> ids;  ///< its tokens, BOS in place of the first where asked for
  std::size_t first_scored = 0;       ///< logits from this row on count, all but the last row's

  bool scores(std::size_t row) const noexcept {
    return row >= first_scored && row + 1 < ids.size();
  }
};

/// Calls body for each window of `tokens`, and tells options.progress. Throws kUsage where the
/// text is too short to score a token, or the window past `context`.
void for_each_window(std::span<const std::int32_t> tokens, const PerplexityOptions& options,
                     std::uint32_t context, const std::function<void(const Window&)>& body);

}  // namespace lemma::eval
