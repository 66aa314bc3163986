// SPDX-License-Identifier: Apache-2.0
// Causal attention over key-value heads: MHA, MQA and GQA are one spec, full or in a sliding
// window, with sinks, soft-cap, ALiBi and clamp as fields. This file owns the spec and the f32
// definition of attending; projections, norms and rotation are other operations.
// Formulas: docs/contract.md, "Causal attention".
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "algorithm/slot.hpp"

namespace lemma::algorithm {

struct GqaSpec {
  std::uint32_t query_heads = 0;  ///< H
  std::uint32_t kv_heads = 0;     ///< K, divides H; query head h reads KV head h / (H / K)
  std::uint32_t head_dim = 0;     ///< d of queries and keys
  std::uint32_t value_dim = 0;    ///< d of values
  float scale = 0.f;              ///< multiplies q.k; usually head_dim^-0.5
  std::uint32_t window = 0;       ///< 0: full; W: a query sees itself and the W - 1 keys before it
  float softcap = 0.f;            ///< 0: none; c: scores become c * tanh(s / c) before the softmax
  bool sinks = false;             ///< one learned score per head joins the softmax, without a value
  float alibi_max_bias = 0.f;     ///< 0: none; else scores get slope_h * (j - p), usually 8
  /// False in an encoder: a row also sees the rows behind it, to the end of its sequence.
  bool causal = true;
  /// Query temperature by position: 0 is none; else the query at p is first multiplied by
  /// 1 + temperature_scale * ln(1 + floor(p / temperature_floor)).
  float temperature_scale = 0.f;
  std::uint32_t temperature_floor = 0;

  /// Throws kUnsupported naming the field that is wrong.
  void validate() const;
  /// The KV head that query head `h` reads: neighbours share one.
  std::uint32_t kv_head(std::uint32_t h) const noexcept { return h / (query_heads / kv_heads); }
  /// Keys and values: two slots of rows, [K * d] each.
  Slots slots() const;
  friend bool operator==(const GqaSpec&, const GqaSpec&) = default;
};

/// Half-open range of kv indices.
struct VisibleRange {
  std::uint32_t begin = 0, end = 0;
  friend bool operator==(const VisibleRange&, const VisibleRange&) = default;
};

/// What a query at kv index `position` sees under `window` (0: everything up to itself). A block
/// end beyond position + 1 (`visible_end`, 0 for none) lets it look ahead to there.
VisibleRange visible_range(std::uint32_t position, std::uint32_t window,
                           std::uint32_t visible_end = 0) noexcept;

/// ALiBi's slope of each query head: 2^(-max_bias * (h + 1) / H) for H a power of two, and the
/// two-run rule of the ALiBi paper otherwise.
std::vector<float> alibi_slopes(std::uint32_t query_heads, float max_bias);

/// The factor of the query at `position`: 1 without a temperature.
float query_temperature(const GqaSpec& spec, std::uint32_t position) noexcept;

/// Gives the key or value row of kv index `j`, decoded to f32, for one KV head.
using RowReader = std::function<std::span<const float>(std::uint32_t kv_index)>;

/// Attention of one query head: `query` [d] at `position` over `range`, keys and values through
/// the readers, into `out` [d_v]. `sink` joins the softmax if not null; `slope` is ALiBi's (0:
/// none). The largest score is subtracted first; sums run in ascending kv index.
void attend(const GqaSpec& spec, std::span<const float> query, std::uint32_t position,
            VisibleRange range, const RowReader& key, const RowReader& value, const float* sink,
            float slope, std::span<float> out) noexcept;

}  // namespace lemma::algorithm
