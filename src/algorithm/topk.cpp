// SPDX-License-Identifier: Apache-2.0
#include "algorithm/topk.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.hpp"

namespace lemma::algorithm {

bool comparable(std::span<const float> scores) noexcept {
  return std::all_of(scores.begin(), scores.end(), [](float score) {
    return score < std::numeric_limits<float>::infinity();  // false for NaN too
  });
}

std::optional<std::size_t> topk(std::span<const float> scores, std::size_t k, TopkOrder order,
                                std::span<std::uint32_t> out) noexcept {
  LEMMA_CHECK(out.size() >= std::min(k, scores.size()));
  LEMMA_CHECK(scores.size() <= std::numeric_limits<std::uint32_t>::max());
  const auto better = [&](std::uint32_t a, std::uint32_t b) {
    return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);  // -0 == +0 here
  };
  // The best so far form a heap with the worst of them on top, which a better one replaces.
  const auto begin = out.begin();
  auto end = begin;
  for (std::uint32_t i = 0; i < scores.size(); ++i) {
    if (std::isnan(scores[i])) return std::nullopt;
    if (scores[i] == -std::numeric_limits<float>::infinity() || k == 0) continue;
    if (std::size_t(end - begin) < k) {
      *end++ = i;
      std::push_heap(begin, end, better);
    } else if (better(i, *begin)) {
      std::pop_heap(begin, end, better);
      *(end - 1) = i;
      std::push_heap(begin, end, better);
    }
  }
  if (order == TopkOrder::kRank) {
    std::sort_heap(begin, end, better);
  } else {
    std::sort(begin, end);
  }
  return std::size_t(end - begin);
}

}  // namespace lemma::algorithm
