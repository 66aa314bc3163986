// SPDX-License-Identifier: Apache-2.0
#include "algorithm/attention/dsa.hpp"

#include <algorithm>

#include "algorithm/attention/require.hpp"
#include "base/check.hpp"

namespace lemma::algorithm {
namespace {

constexpr std::string_view kSpec = "token selection";

std::vector<SelectionMode> checked(std::vector<SelectionMode> schedule) {
  require(schedule.empty() || schedule.front() == SelectionMode::kFull, kSpec, "schedule",
          "a first layer that selects", "one that shares");
  return schedule;
}

/// Replaces the `count` pool indices at the front by the indices of their tokens. The last pool
/// moves first, so that none is overwritten before it was read.
std::size_t expand_pools(std::uint32_t kpool, std::size_t count,
                         std::span<std::uint32_t> tokens) noexcept {
  for (std::size_t i = count; i-- > 0;) {
    const std::uint32_t first = tokens[i] * kpool;
    for (std::uint32_t s = 0; s < kpool; ++s) tokens[i * kpool + s] = first + s;
  }
  return count * kpool;
}

}  // namespace

void DsaSpec::validate() const {
  attention.validate();
  if (mode == SelectionMode::kShared) return;
  indexer.validate();
  require(attention.q_rank > 0, kSpec, "attention.q_rank",
          "at least 1: index queries come from the query latent", attention.q_rank);
  require(std::isfinite(key_norm_eps) && key_norm_eps >= 0.f, kSpec, "key_norm_eps",
          "a finite number >= 0", key_norm_eps);
  require(kpool != 1, kSpec, "kpool", "0 for none or at least 2", kpool);
  require(kpool == 0 || indexer.top_k % kpool == 0, kSpec, "indexer.top_k", "a multiple of kpool",
          indexer.top_k);
  require(kpool > 0 || !always_select_tail, kSpec, "always_select_tail", "false without kpool",
          always_select_tail);
  require(std::uint64_t(indexer.top_k) + kpool <= 0xffffffffu, kSpec, "indexer.top_k",
          "a list below 2^32 tokens", indexer.top_k);
  if (kpool > 0) pools().validate();
}

std::uint32_t DsaSpec::list_limit() const noexcept {
  return kpool > 0 ? indexer.top_k + kpool - 1 : indexer.top_k;
}

Slots DsaSpec::slots() const {
  Slots slots = attention.slots();
  if (mode == SelectionMode::kShared) return slots;
  if (kpool == 0) {
    slots.push_back(row_slot(indexer.dim));
  } else {
    for (const Slot& slot : pools().slots()) slots.push_back(slot);
  }
  return slots;
}

std::optional<std::size_t> select_tokens(const DsaSpec& spec, std::span<const float> query,
                                         std::span<const float> weights, std::uint32_t position,
                                         const RowReader& key, std::span<float> scores,
                                         std::span<std::uint32_t> tokens) noexcept {
  LEMMA_CHECK(spec.mode == SelectionMode::kFull && tokens.size() >= spec.list_limit());
  const std::uint32_t length = position + 1, k = spec.indexer.top_k;
  if (spec.kpool == 0) {
    return select_rows(spec.indexer, query, weights, length, k, key, scores, tokens);
  }
  const std::uint32_t whole = closed_rows(length, spec.kpool);
  const auto pools =
      select_rows(spec.indexer, query, weights, whole, k / spec.kpool, key, scores, tokens);
  if (!pools) return std::nullopt;
  std::size_t count = expand_pools(spec.kpool, *pools, tokens);
  // Before the first pool is whole its tokens are all there is to see.
  if (spec.always_select_tail || whole == 0) {
    for (std::uint32_t j = whole * spec.kpool; j < length; ++j) tokens[count++] = j;
  }
  return count;
}

std::vector<SelectionMode> selection_schedule(std::uint32_t layers, std::uint32_t frequency,
                                              std::uint32_t offset) {
  require(frequency > 0, kSpec, "frequency", "at least 1", frequency);
  std::vector<SelectionMode> schedule(layers);
  for (std::uint32_t i = 0; i < layers; ++i) {
    const std::uint64_t since = std::uint64_t(i) + 1 > offset ? std::uint64_t(i) + 1 - offset : 0;
    schedule[i] = since % frequency == 0 ? SelectionMode::kFull : SelectionMode::kShared;
  }
  return checked(std::move(schedule));
}

std::vector<SelectionMode> selection_schedule(std::uint32_t layers, std::string_view pattern) {
  require(pattern.size() == layers, kSpec, "schedule", "one letter per layer", pattern);
  std::vector<SelectionMode> schedule;
  for (const char letter : pattern) {
    require(letter == 'F' || letter == 'S', kSpec, "schedule", "the letters F and S", pattern);
    schedule.push_back(letter == 'F' ? SelectionMode::kFull : SelectionMode::kShared);
  }
  return checked(std::move(schedule));
}

std::uint32_t selection_source(std::span<const SelectionMode> schedule,
                               std::uint32_t layer) noexcept {
  LEMMA_CHECK(layer < schedule.size() && schedule[0] == SelectionMode::kFull);
  while (schedule[layer] == SelectionMode::kShared) --layer;
  return layer;
}

}  // namespace lemma::algorithm
