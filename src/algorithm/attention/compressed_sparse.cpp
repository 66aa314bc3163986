// SPDX-License-Identifier: Apache-2.0
#include "algorithm/attention/compressed_sparse.hpp"

#include <vector>

#include "algorithm/attention/require.hpp"
#include "algorithm/linear.hpp"
#include "algorithm/norm.hpp"
#include "base/check.hpp"

namespace lemma::algorithm {
namespace {

constexpr std::string_view kSpec = "compressed sparse attention";
/// The one ratio for which overlapping windows and a learned choice are defined.
constexpr std::uint32_t kFineRatio = 4;

void append(Slots& slots, const Slots& more) {
  slots.insert(slots.end(), more.begin(), more.end());
}

}  // namespace

void GroupedLinearSpec::validate() const {
  constexpr std::string_view kGrouped = "grouped projection";
  require(groups > 0, kGrouped, "groups", "at least 1", groups);
  require(is_row(groups, in), kGrouped, "in", "at least 1 and a row below 2^32 elements", in);
  require(is_row(groups, out), kGrouped, "out", "at least 1 and a row below 2^32 elements", out);
}

void grouped_linear(const GroupedLinearSpec& spec, std::span<const float> weight,
                    std::span<const float> x, std::span<float> y) noexcept {
  LEMMA_CHECK(x.size() == std::size_t(spec.groups) * spec.in);
  LEMMA_CHECK(y.size() == std::size_t(spec.groups) * spec.out);
  const std::size_t rows = spec.shared ? spec.out : y.size();
  LEMMA_CHECK(weight.size() == rows * spec.in);
  for (std::size_t o = 0; o < y.size(); ++o) {
    const float* const group = x.data() + o / spec.out * spec.in;
    dot_rows(weight.subspan(o % rows * spec.in, spec.in), group, spec.in, 1, &y[o], 1);
  }
}

void CompressedSparseSpec::validate() const {
  core().validate();
  require(q_rank > 0, kSpec, "q_rank", "at least 1", q_rank);
  require(window > 0, kSpec, "window", "at least 1", window);
  require(is_positive(norm_eps), kSpec, "norm_eps", "a finite number > 0", norm_eps);
  rope.validate(head_dim);
  require(rope.placement == RopePlacement::kSuffix, kSpec, "rope.placement", "a suffix",
          "a prefix");
  require(output_groups > 0 && heads % output_groups == 0, kSpec, "output_groups",
          "a divisor of heads", output_groups);
  output().validate();
  const bool indexed = selection == EntrySelection::kIndexer;
  require(!overlap || ratio == kFineRatio, kSpec, "overlap", "false unless ratio is 4", overlap);
  require(!indexed || ratio == kFineRatio, kSpec, "selection", "all unless ratio is 4",
          "an indexer");
  if (ratio == 0) return;
  entries().validate();
  if (!indexed) return;
  indexer.validate();
  index_entries().validate();
  require(indexer.rope_dim == rope.rotary_dim, kSpec, "indexer.rope_dim", "rope.rotary_dim",
          indexer.rope_dim);
}

GqaSpec CompressedSparseSpec::core() const noexcept {
  GqaSpec core;
  core.query_heads = heads;
  core.kv_heads = 1;
  core.head_dim = core.value_dim = head_dim;
  core.scale = scale;
  core.window = window;
  core.sinks = sinks;
  return core;
}

Slots CompressedSparseSpec::slots() const {
  // The rows slot of `more` in its fp8 form, and what comes with it.
  Slots slots;
  const auto take = [&](Slots more, Fp8Form form, std::uint32_t tail) {
    more.front().fp8 = form;
    more.front().tail = tail;
    append(slots, more);
  };
  take({row_slot(head_dim, window)}, Fp8Form::kLatent, rope.rotary_dim);
  if (ratio != 0) take(entries().slots(), Fp8Form::kLatent, rope.rotary_dim);
  if (selection == EntrySelection::kIndexer) take(index_entries().slots(), Fp8Form::kIndex, 0);
  return slots;
}

void finish_entry(const CompressedSparseSpec& spec, const RopeTable& rope,
                  std::span<const float> weight, std::uint32_t index,
                  std::span<float> row) noexcept {
  normalize({NormKind::kRms, spec.norm_eps}, row, weight, {}, row);
  thread_local std::vector<float> cos, sin;
  cos.resize(rope.inv_freq().size());
  sin.resize(rope.inv_freq().size());
  const auto position = std::int32_t(row_position(index, spec.ratio));
  rope.angles({position, position, position}, cos, sin);
  rotate(rope.spec(), cos, sin, false, row);
}

std::optional<std::size_t> select_entries(const CompressedSparseSpec& spec,
                                          std::span<const float> query,
                                          std::span<const float> weights, std::uint32_t position,
                                          const RowReader& index_entry, std::span<float> scores,
                                          std::span<std::uint32_t> chosen) noexcept {
  LEMMA_CHECK(spec.selection == EntrySelection::kIndexer);
  return select_rows(spec.indexer, query, weights, spec.visible_entries(position),
                     spec.indexer.top_k, index_entry, scores, chosen);
}

void attend_compressed(const CompressedSparseSpec& spec, std::span<const float> query,
                       std::uint32_t position, const RowReader& row, const RowIndices& entries,
                       const RowReader& entry, const float* sink, std::span<float> out) noexcept {
  const RowSource sources[] = {{visible_range(position, spec.window), row, row},
                               {entries, entry, entry}};
  attend_lists(spec.core(), query, position, sources, sink, out);
}

}  // namespace lemma::algorithm
