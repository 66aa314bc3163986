// SPDX-License-Identifier: Apache-2.0
// Which rows of a step go to which experts, as the chosen experts' executor needs it: gathered by
// expert, so that an expert's weights are read once however many rows chose it. Nothing here
// allocates after it is made.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "backend/cpu/context.hpp"

namespace lemma::cpu {

/// Reads distinct whole numbers below `bound`; false if they are not.
inline bool read_ids(const float* values, std::size_t n, std::size_t bound,
                     std::uint32_t* ids) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    if (!(values[i] >= 0.f && values[i] < static_cast<float>(bound))) return false;
    ids[i] = static_cast<std::uint32_t>(values[i]);
    if (std::find(ids, ids + i, ids[i]) != ids + i) return false;
  }
  return true;
}

/// The rows of a step by the experts that they chose; an entry is a pair of both. Experts ascend,
/// and within one its rows. The layers share one, which then stays in the cache.
class Grouping {
 public:
  /// Shape: rows, chosen, experts.
  Grouping(const Context&, std::span<const std::size_t> shape)
      : ids_(shape[0] * shape[1]),
        offsets_(shape[2] + 1),
        rows_(ids_.size()),
        ranks_(ids_.size()),
        weights_(ids_.size()),
        runs_(ids_.size()),
        run_offsets_(shape[2] + 1),
        active_(shape[2]) {}

  /// Groups rows [first, first + rows) of the context's step. Rows whose ids are no ids are marked
  /// and left out.
  void make(Context& context, const backend::Experts& op, std::size_t first,
            std::size_t rows) noexcept {
    const std::size_t k = op.ids.width, experts = op.experts;
    first_row_ = first;
    row_count_ = rows;
    std::fill(offsets_.begin(), offsets_.end(), 0u);
    for (std::size_t r = 0; r < rows; ++r) {
      std::uint32_t* const ids = ids_.data() + r * k;
      if (!read_ids(context.arena.row(op.ids, first + r), k, experts, ids)) {
        context.mark(first + r);
        std::fill_n(ids, k, kNoExpert);
        continue;
      }
      for (std::size_t i = 0; i < k; ++i) ++offsets_[ids[i] + 1];
    }
    std::partial_sum(offsets_.begin(), offsets_.end(), offsets_.begin());
    // While it is filled, offsets_[e] runs from the begin of its group to its end.
    for (std::size_t i = 0; i < rows * k; ++i) {
      if (ids_[i] == kNoExpert) continue;
      const std::uint32_t entry = offsets_[ids_[i]]++;
      rows_[entry] = static_cast<std::uint32_t>(first + i / k);
      ranks_[entry] = static_cast<std::uint32_t>(i % k);
      weights_[entry] = context.arena.row(op.weights, first + i / k)[i % k];
    }
    for (std::size_t e = experts; e > 0; --e) offsets_[e] = offsets_[e - 1];
    offsets_[0] = 0;
    make_runs(context);
  }

  std::size_t first_row() const noexcept { return first_row_; }
  std::size_t row_count() const noexcept { return row_count_; }
  std::size_t entries() const noexcept { return offsets_.back(); }
  std::size_t begin(std::size_t expert) const noexcept { return offsets_[expert]; }
  std::size_t count(std::size_t expert) const noexcept {
    return offsets_[expert + 1] - offsets_[expert];
  }
  /// Experts with rows, ascending.
  std::span<const std::uint32_t> active() const noexcept { return {active_.data(), active_count_}; }
  std::size_t row(std::size_t entry) const noexcept { return rows_[entry]; }
  /// Where among its row's experts the entry's stands.
  std::size_t rank(std::size_t entry) const noexcept { return ranks_[entry]; }
  float weight(std::size_t entry) const noexcept { return weights_[entry]; }
  /// Runs of one token class among an expert's rows, counted from its first.
  std::span<const ClassRun> runs(std::size_t expert) const noexcept {
    return {runs_.data() + run_offsets_[expert], run_offsets_[expert + 1] - run_offsets_[expert]};
  }
  std::size_t bytes() const noexcept {
    return ids_.size() * 4 * sizeof(std::uint32_t) + runs_.size() * sizeof(ClassRun) +
           offsets_.size() * 3 * sizeof(std::uint32_t);
  }

 private:
  static constexpr std::uint32_t kNoExpert = ~std::uint32_t{0};

  void make_runs(const Context& context) noexcept {
    std::uint32_t runs = 0;
    active_count_ = 0;
    for (std::size_t e = 0; e + 1 < offsets_.size(); ++e) {
      run_offsets_[e] = runs;
      if (count(e) > 0) active_[active_count_++] = static_cast<std::uint32_t>(e);
      for (std::size_t i = 0; i < count(e); ++i) {
        const std::size_t token_class = context.class_of(rows_[begin(e) + i]);
        if (runs == run_offsets_[e] || runs_[runs - 1].token_class != token_class) {
          runs_[runs++] = {i, 0, token_class};
        }
        ++runs_[runs - 1].rows;
      }
    }
    run_offsets_.back() = runs;
  }

  std::vector<std::uint32_t> ids_;      ///< [rows, k]
  std::vector<std::uint32_t> offsets_;  ///< [E + 1]: entries of each expert
  std::vector<std::uint32_t> rows_;     ///< by entry
  std::vector<std::uint32_t> ranks_;    ///< by entry
  std::vector<float> weights_;          ///< by entry
  std::vector<ClassRun> runs_;
  std::vector<std::uint32_t> run_offsets_;  ///< [E + 1]
  std::vector<std::uint32_t> active_;
  std::size_t active_count_ = 0;
  std::size_t first_row_ = 0, row_count_ = 0;
};

}  // namespace lemma::cpu
