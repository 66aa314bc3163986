// SPDX-License-Identifier: Apache-2.0
#include "eval/windows.hpp"

#include <algorithm>
#include <vector>

#include "base/raise.hpp"

namespace lemma::eval {

void for_each_window(std::span<const std::int32_t> tokens, const PerplexityOptions& options,
                     std::uint32_t context, const std::function<void(const Window&)>& body) {
  const std::size_t window = options.window;
  if (window < 4 || window > context)
    base::raise(ErrorKind::kUsage, "a window of {} tokens; expected 4 to the context's {}", window,
                context);
  const bool half = options.score == PerplexityOptions::Score::kHalf;
  const std::size_t least = half ? window : 2;
  if (tokens.size() < least)
    base::raise(ErrorKind::kUsage, "the text has {} tokens; at least {} are needed", tokens.size(),
                least);
  std::vector<std::int32_t> ids;
  for (std::size_t begin = 0; begin + least <= tokens.size(); begin += window) {
    const auto part = tokens.subspan(begin, std::min(window, tokens.size() - begin));
    ids.assign(part.begin(), part.end());
    if (options.bos) ids[0] = *options.bos;
    body({begin, ids, half ? window / 2 : 0});
    if (options.progress)
      options.progress("evaluating", double(begin + part.size()) / double(tokens.size()));
  }
}

}  // namespace lemma::eval
