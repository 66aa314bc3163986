// SPDX-License-Identifier: Apache-2.0
#include "algorithm/attention/block.hpp"

#include <algorithm>

#include "algorithm/attention/require.hpp"
#include "base/check.hpp"
#include "base/raise.hpp"

namespace lemma::algorithm {

void BlockSpec::validate() const {
  constexpr std::string_view kSpec = "block attention";
  heads.validate();
  require(heads.window == 0, kSpec, "heads.window", "0", heads.window);
  require(heads.alibi_max_bias == 0.f, kSpec, "heads.alibi_max_bias", "0", heads.alibi_max_bias);
  require(heads.temperature_scale == 0.f, kSpec, "heads.temperature_scale", "0",
          heads.temperature_scale);
}

void check_ranges(std::span<const VisibleRange> ranges, std::uint32_t rows, std::uint32_t kv_rows) {
  if (ranges.size() != rows) {
    base::raise(ErrorKind::kUsage, "visible ranges: expected one per row, {}, found {}", rows,
                ranges.size());
  }
  for (std::size_t row = 0; row < ranges.size(); ++row) {
    const auto [begin, end] = ranges[row];
    if (begin >= end || end > kv_rows) {
      base::raise(ErrorKind::kUsage,
                  "visible range of row {}: expected a non-empty range within {} keys, found "
                  "[{}, {})",
                  row, kv_rows, begin, end);
    }
  }
}

void attend_block(const BlockSpec& spec, std::span<const float> query, VisibleRange range,
                  std::span<const RowSegment> segments, const float* sink,
                  std::span<float> out) noexcept {
  const auto reader = [&](RowReader RowSegment::*side) -> RowReader {
    return [segments, side](std::uint32_t j) {
      std::size_t s = 0;
      while (s < segments.size() && j >= segments[s].rows) j -= segments[s++].rows;
      LEMMA_CHECK(s < segments.size());
      return (segments[s].*side)(j);
    };
  };
  attend(spec.heads, query, 0, range, reader(&RowSegment::key), reader(&RowSegment::value), sink,
         0.f, out);
}

std::vector<VisibleRange> draft_ranges(DraftVisibility visibility, std::uint32_t context,
                                       std::uint32_t rows, std::uint32_t window) {
  const std::uint32_t end = context + rows;
  const auto since = [&](std::uint32_t p) { return window != 0 && p > window ? p - window : 0; };
  std::vector<VisibleRange> ranges(rows);
  for (std::uint32_t row = 0; row < rows; ++row) {
    const std::uint32_t p = context + row;
    switch (visibility) {
      case DraftVisibility::kBlock:
        ranges[row] = {since(context), end};
        break;
      case DraftVisibility::kCausal:
        ranges[row] = {since(context), p + 1};
        break;
      case DraftVisibility::kDistance:
        ranges[row] = {since(p + 1), window != 0 ? std::uint32_t(std::min<std::uint64_t>(
                                                       end, std::uint64_t(p) + window))
                                                 : end};
        break;
    }
  }
  return ranges;
}

}  // namespace lemma::algorithm
