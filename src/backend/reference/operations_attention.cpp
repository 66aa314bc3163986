// SPDX-License-Identifier: Apache-2.0
// The operations that attend: over keys and values, over latents, over a window and its entries.
#include <functional>

#include "algorithm/attention/lists.hpp"
#include "algorithm/attention/mla.hpp"
#include "backend/reference/operations.hpp"
#include "base/check.hpp"

namespace lemma::reference {

using backend::Segment;

std::span<const std::uint32_t> Operations::list(backend::Tensor selection, std::size_t r,
                                                std::size_t index, std::size_t lists,
                                                std::uint32_t bound) noexcept {
  const std::size_t stride = selection.width / lists;
  const std::span<const float> from = row(selection, r).subspan(index * stride, stride);
  const std::span<std::uint32_t> to = grown(indices_, stride);
  // An observer may have replaced the row, so no number is taken on trust.
  std::size_t count = 0;
  for (std::size_t i = 1; i < stride && float(i) <= from[0]; ++i)
    if (from[i] >= 0.f && from[i] < float(bound)) to[count++] = std::uint32_t(from[i]);
  return to.first(count);
}

void Operations::run(const backend::Attend& op) noexcept {
  const algorithm::GqaSpec& spec = op.spec;
  const std::span<const float> sinks = vector(op.sinks);
  const std::vector<float>& slopes = slopes_[static_cast<std::size_t>(op.key)];
  const std::span<float> key_row = grown(key_, spec.head_dim);
  const std::span<float> value_row = grown(value_, spec.value_dim);
  each_row([&](std::size_t r, const Segment& segment, std::uint32_t position) {
    const std::uint32_t end = spec.causal ? 0 : segment.past + segment.rows;
    for (std::uint32_t h = 0; h < spec.query_heads; ++h) {
      const std::size_t kv_head = spec.kv_head(h);
      const auto key = reader(op.key, segment, kv_head * spec.head_dim, key_row);
      const auto value = reader(op.value, segment, kv_head * spec.value_dim, value_row);
      const std::span<const float> query =
          row(op.query, r).subspan(std::size_t{h} * spec.head_dim, spec.head_dim);
      const std::span<float> out =
          row(op.out, r).subspan(std::size_t{h} * spec.value_dim, spec.value_dim);
      const float* const sink = spec.sinks ? &sinks[h] : nullptr;
      if (!op.selection) {
        algorithm::attend(spec, query, position,
                          algorithm::visible_range(position, spec.window, end), std::cref(key),
                          std::cref(value), sink, slopes.empty() ? 0.f : slopes[h], out);
        continue;
      }
      const algorithm::RowReader keys = std::cref(key), values = std::cref(value);
      const algorithm::RowSource source{list(op.selection, r, kv_head, spec.kv_heads, position + 1),
                                        keys, values};
      if (source.indices.size() == 0) return fail(r, op.selection);
      algorithm::attend_lists(spec, query, position, {&source, 1}, sink, out);
    }
  });
}

void Operations::run(const backend::AttendLatent& op) noexcept {
  const algorithm::MlaSpec& spec = op.spec;
  const std::size_t rank = spec.latent_rank, nope = spec.nope_dim;
  const std::span<float> latent_row = grown(key_, rank), rope_row = grown(value_, spec.rope_dim);
  for (std::size_t h = 0; h < spec.heads; ++h) {
    // One head's key half as [dn, c], however the file keeps it.
    std::span<const float> key_up;
    if (nope > 0 && !op.key_up_transposed) key_up = decode(op.key_up, h * nope, nope, matrix_);
    if (nope > 0 && op.key_up_transposed) {
      const std::span<const float> stored = decode(op.key_up, h * rank, rank, scratch_);
      const std::span<float> turned = grown(matrix_, nope * rank);
      for (std::size_t c = 0; c < rank; ++c)
        for (std::size_t d = 0; d < nope; ++d) turned[d * rank + c] = stored[c * nope + d];
      key_up = turned;
    }
    const std::span<const float> value_up =
        decode(op.value_up, h * spec.value_dim, spec.value_dim, values_);
    each_row([&](std::size_t r, const Segment& segment, std::uint32_t position) {
      algorithm::RowIndices visible = algorithm::visible_range(position, 0);
      if (op.selection) visible = list(op.selection, r, 0, 1, position + 1);
      if (visible.size() == 0) return fail(r, op.selection);
      const auto latent = reader(op.latent, segment, 0, latent_row);
      const auto rope = reader(spec.rope_dim > 0 ? op.rope : op.latent, segment, 0, rope_row);
      algorithm::attend_expanded(spec, {key_up, value_up},
                                 row(op.query, r).subspan(h * spec.query_dim(), spec.query_dim()),
                                 position, visible, std::cref(latent), std::cref(rope),
                                 row(op.out, r).subspan(h * spec.value_dim, spec.value_dim));
    });
  }
}

void Operations::run(const backend::AttendCompressed& op) noexcept {
  const algorithm::CompressedSparseSpec& spec = op.spec;
  const std::span<const float> sinks = vector(op.sinks);
  const std::span<float> window_row = grown(key_, spec.head_dim);
  const std::span<float> entry_row = grown(value_, spec.head_dim);
  each_row([&](std::size_t r, const Segment& segment, std::uint32_t position) {
    const std::uint32_t visible = spec.visible_entries(position);
    algorithm::RowIndices entries = algorithm::VisibleRange{0, visible};
    if (op.selection) entries = list(op.selection, r, 0, 1, visible);
    const auto window = reader(op.rows, segment, 0, window_row);
    const auto entry = reader(op.entries >= 0 ? op.entries : op.rows, segment, 0, entry_row);
    for (std::size_t h = 0; h < spec.heads; ++h)
      algorithm::attend_compressed(spec, row(op.query, r).subspan(h * spec.head_dim, spec.head_dim),
                                   position, std::cref(window), entries, std::cref(entry),
                                   spec.sinks ? &sinks[h] : nullptr,
                                   row(op.out, r).subspan(h * spec.head_dim, spec.head_dim));
  });
}

}  // namespace lemma::reference
