// SPDX-License-Identifier: Apache-2.0
#include "algorithm/attention/msa.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "algorithm/attention/require.hpp"
#include "algorithm/topk.hpp"
#include "base/check.hpp"

namespace lemma::algorithm {
namespace {

constexpr std::string_view kSpec = "block selection";
constexpr float kForced = std::numeric_limits<float>::infinity();

float dot(std::span<const float> a, std::span<const float> b) noexcept {
  float sum = 0.f;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// The largest score of the keys [begin, end), NaN or infinite if one of them is.
float block_score(std::span<const float> query, std::uint32_t begin, std::uint32_t end,
                  const RowReader& index_key) noexcept {
  float best = -std::numeric_limits<float>::infinity();
  for (std::uint32_t j = begin; j < end; ++j) {
    const float score = dot(query, index_key(j));
    if (!std::isfinite(score)) return std::numeric_limits<float>::quiet_NaN();
    best = std::max(best, score);
  }
  return best;
}

}  // namespace

void MsaSpec::validate() const {
  heads.validate();
  require(heads.window == 0, kSpec, "heads.window", "0", heads.window);
  require(index_heads == heads.kv_heads, kSpec, "index_heads", "one per KV head", index_heads);
  require(is_row(index_heads, index_dim), kSpec, "index_dim",
          "at least 1 and a row below 2^32 elements", index_dim);
  require(block_size > 0, kSpec, "block_size", "at least 1", block_size);
  require(is_row(top_k, block_size), kSpec, "top_k", "at least 1 and a list below 2^32 keys",
          top_k);
  require(std::uint64_t(init_blocks) + local_blocks <= top_k, kSpec, "init_blocks",
          "init_blocks + local_blocks of at most top_k", init_blocks);
}

Slots MsaSpec::slots() const {
  Slots slots = heads.slots();
  slots.push_back(row_slot(index_dim));
  return slots;
}

std::optional<std::size_t> select_blocks(const MsaSpec& spec, std::span<const float> query,
                                         std::uint32_t position, const RowReader& index_key,
                                         std::span<float> scores,
                                         std::span<std::uint32_t> blocks) noexcept {
  const std::uint32_t visible = spec.visible_blocks(position);
  LEMMA_CHECK(query.size() == spec.index_dim);
  LEMMA_CHECK(blocks.size() >= std::min(spec.top_k, visible));
  if (visible <= spec.top_k) {
    std::iota(blocks.begin(), blocks.begin() + visible, 0u);
    return visible;
  }
  LEMMA_CHECK(scores.size() >= visible);
  scores = scores.first(visible);
  for (std::uint32_t b = 0; b < visible; ++b) {
    const std::uint32_t begin = b * spec.block_size;
    const std::uint32_t end = std::min(begin + spec.block_size, position + 1);
    scores[b] = block_score(query, begin, end, index_key);
    if (std::isnan(scores[b])) return std::nullopt;
    if (b < spec.init_blocks || visible - b <= spec.local_blocks) scores[b] = kForced;
  }
  return topk(scores, spec.top_k, TopkOrder::kAscending, blocks);
}

std::size_t expand_blocks(const MsaSpec& spec, std::span<const std::uint32_t> blocks,
                          std::uint32_t position, std::span<std::uint32_t> keys) noexcept {
  std::size_t count = 0;
  for (const std::uint32_t block : blocks) {
    const std::uint32_t begin = block * spec.block_size;
    for (std::uint32_t s = 0; s < spec.block_size && begin + s <= position; ++s) {
      keys[count++] = begin + s;
    }
  }
  return count;
}

bool sees_key(const MsaSpec& spec, std::span<const std::uint32_t> blocks, std::uint32_t position,
              std::uint32_t j) noexcept {
  return j <= position && std::binary_search(blocks.begin(), blocks.end(), j / spec.block_size);
}

}  // namespace lemma::algorithm
