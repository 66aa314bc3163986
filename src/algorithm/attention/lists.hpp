// SPDX-License-Identifier: Apache-2.0
// Attention of one query head over rows that are named by a range or by a list, taken from one or
// several sources under one softmax: latents by token (MLA, DSA), keys of chosen blocks (MSA), a
// window and compressed entries side by side (CSA, HCA), segments of a block. The order of all
// sums is that of the sources, and within a source that of its indices. Formulas:
// docs/contract.md, "Attention over lists".
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "algorithm/attention/gqa.hpp"

namespace lemma::algorithm {

/// Row indices that a query sees, in the order in which they are summed: a range or a list.
class RowIndices {
 public:
  RowIndices(VisibleRange range) noexcept  // NOLINT: a range is one kind of indices
      : begin_(range.begin), size_(range.end > range.begin ? range.end - range.begin : 0) {}
  RowIndices(std::span<const std::uint32_t> list) noexcept  // NOLINT: so is a list
      : list_(list.data()), size_(std::uint32_t(list.size())) {}
  RowIndices(const std::vector<std::uint32_t>& list) noexcept  // NOLINT: the same
      : RowIndices(std::span(list)) {}

  std::uint32_t size() const noexcept { return size_; }
  std::uint32_t operator[](std::uint32_t i) const noexcept { return list_ ? list_[i] : begin_ + i; }

 private:
  const std::uint32_t* list_ = nullptr;
  std::uint32_t begin_ = 0, size_ = 0;
};

/// Rows of one source. The readers see a row's index in its own source.
struct RowSource {
  RowIndices indices;
  const RowReader& key;
  const RowReader& value;
};

/// Attention of one query head: `query` [d] at `position` over all rows of all `sources`, into
/// `out` [d_v]. Scale, soft-cap and temperature are those of `head`, `sink` joins the softmax if
/// not null. Every source may be empty, but not all of them without a sink; with a sink alone the
/// output is zero. A span that a reader returns is used before its reader is called again.
void attend_lists(const GqaSpec& head, std::span<const float> query, std::uint32_t position,
                  std::span<const RowSource> sources, const float* sink,
                  std::span<float> out) noexcept;

/// x[i] * sigmoid(gate[i]) in place: the output gate of gated MLA and of others.
void gate_output(std::span<const float> gate, std::span<float> x) noexcept;

}  // namespace lemma::algorithm
