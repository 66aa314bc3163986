// SPDX-License-Identifier: Apache-2.0
// share_rows: who runs how many rows in the next step. Every decode round gets its row first, so
// that a long prompt never holds up running answers; prompts then take what is left, in order of
// arrival. How tokens are shared out changes when a row runs, never what it computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/job.hpp"

namespace lemma::runtime {

struct Share {
  std::size_t job = 0;     ///< index into the tasks
  std::uint32_t rows = 0;  ///< the first so many tokens of its task
  friend bool operator==(const Share&, const Share&) = default;
};

/// At most `max_rows` rows; jobs that get none are left out. Decode rounds come first. With
/// `whole_prompts` a prompt gets all its rows or none, and none that is longer than `max_rows` may
/// be asked for.
std::vector<Share> share_rows(std::span<const Task> tasks, std::uint32_t max_rows,
                              bool whole_prompts = false);

}  // namespace lemma::runtime
