// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule.hpp"

#include <algorithm>

namespace lemma::runtime {

std::vector<Share> share_rows(std::span<const Task> tasks, std::uint32_t max_rows,
                              bool whole_prompts) {
  std::vector<Share> shares;
  std::uint32_t left = max_rows;
  for (const bool decode : {true, false}) {
    for (std::size_t i = 0; i < tasks.size() && left > 0; ++i) {
      if ((tasks[i].kind == TaskKind::kDecodeRound) != decode) continue;
      if (whole_prompts && !decode && tasks[i].tokens.size() > left) continue;
      const auto rows = std::uint32_t(std::min<std::size_t>(tasks[i].tokens.size(), left));
      shares.push_back({i, rows});
      left -= rows;
    }
  }
  return shares;
}

}  // namespace lemma::runtime
