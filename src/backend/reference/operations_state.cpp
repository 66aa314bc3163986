// SPDX-License-Identifier: Apache-2.0
// The operations around what a sequence remembers: storing rows, choosing among them, compressing
// them, and the recurrent mixers. Fixed blocks are worked on in place; the step's end decides
// whether they count.
#include <algorithm>
#include <functional>

#include "backend/reference/operations.hpp"
#include "base/check.hpp"

namespace lemma::reference {

using algorithm::CompressedSparseSpec;
using algorithm::DsaSpec;
using algorithm::MsaSpec;
using backend::Segment;

namespace {

/// Writes a list: its length, then its indices.
void write_list(std::span<const std::uint32_t> indices, std::span<float> out) noexcept {
  LEMMA_CHECK(indices.size() < out.size());
  out[0] = float(indices.size());
  for (std::size_t i = 0; i < indices.size(); ++i) out[i + 1] = float(indices[i]);
  std::fill(out.begin() + 1 + static_cast<std::ptrdiff_t>(indices.size()), out.end(), 0.f);
}

}  // namespace

void Operations::run(const backend::Store& op) noexcept {
  each_row([&](std::size_t r, const Segment& segment, std::uint32_t position) {
    if (!encode(op.slot, segment, position, row(op.in, r))) fail(r, op.in);
  });
}

template <>
bool Operations::select(const backend::Select& op, const DsaSpec& spec, std::size_t r,
                        const Segment& segment, std::uint32_t position) noexcept {
  const auto key = reader(op.keys, segment, 0, grown(key_, spec.indexer.dim));
  const std::span<std::uint32_t> tokens = grown(chosen_, spec.list_limit());
  const auto count =
      algorithm::select_tokens(spec, row(op.query, r), row(op.weights, r), position, std::cref(key),
                               grown(scores_, std::size_t{position} + 1), tokens);
  if (count) write_list(tokens.first(*count), row(op.out, r));
  return count.has_value();
}

template <>
bool Operations::select(const backend::Select& op, const MsaSpec& spec, std::size_t r,
                        const Segment& segment, std::uint32_t position) noexcept {
  const auto key = reader(op.keys, segment, 0, grown(key_, spec.index_dim));
  const std::span<std::uint32_t> blocks = grown(chosen_, spec.top_k);
  const std::span<std::uint32_t> keys = grown(indices_, spec.list_limit());
  const std::size_t stride = std::size_t{1} + spec.list_limit();
  for (std::size_t head = 0; head < spec.index_heads; ++head) {
    const auto count = algorithm::select_blocks(
        spec, row(op.query, r).subspan(head * spec.index_dim, spec.index_dim), position,
        std::cref(key), grown(scores_, spec.visible_blocks(position)), blocks);
    if (!count) return false;
    const std::size_t size = algorithm::expand_blocks(spec, blocks.first(*count), position, keys);
    write_list(keys.first(size), row(op.out, r).subspan(head * stride, stride));
  }
  return true;
}

template <>
bool Operations::select(const backend::Select& op, const CompressedSparseSpec& spec, std::size_t r,
                        const Segment& segment, std::uint32_t position) noexcept {
  const auto key = reader(op.keys, segment, 0, grown(key_, spec.indexer.dim));
  const std::span<std::uint32_t> entries = grown(chosen_, spec.indexer.top_k);
  const auto count = algorithm::select_entries(
      spec, row(op.query, r), row(op.weights, r), position, std::cref(key),
      grown(scores_, spec.visible_entries(position)), entries);
  if (count) write_list(entries.first(*count), row(op.out, r));
  return count.has_value();
}

void Operations::run(const backend::Select& op) noexcept {
  each_row([&](std::size_t r, const Segment& segment, std::uint32_t position) {
    const bool made = std::visit(
        [&](const auto& rule) { return select(op, rule, r, segment, position); }, op.rule);
    if (made) return;
    fail(r, op.query);
    // Whoever reads the failed row finds lists that hold the first row alone.
    const std::span<float> out = row(op.out, r);
    std::fill(out.begin(), out.end(), 0.f);
    const auto* const blocks = std::get_if<MsaSpec>(&op.rule);
    const std::size_t lists = blocks ? blocks->index_heads : 1;
    for (std::size_t i = 0; i < lists; ++i) out[i * (out.size() / lists)] = 1.f;
  });
}

void Operations::run(const backend::Compress& op) noexcept {
  const std::span<const float> bias = vector(op.bias), norm = vector(op.norm);
  const std::span<float> pooled = grown(scratch_, op.spec.width);
  const auto& rope = entry_ropes_[static_cast<std::size_t>(op.rows)];
  each_row([&](std::size_t r, const Segment& segment, std::uint32_t position) {
    if (!all_finite(row(op.value, r))) fail(r, op.value);
    if (!all_finite(row(op.gate, r))) fail(r, op.gate);
    algorithm::Frontier frontier{position, block(op.frontier, segment)};
    const algorithm::CompressStep step = algorithm::compress(
        op.spec, bias, position, row(op.value, r), row(op.gate, r), frontier, pooled);
    if (step != algorithm::CompressStep::kClosed) return;
    const std::uint32_t index = position / op.spec.ratio;
    if (op.entry) algorithm::finish_entry(*op.entry, *rope, norm, index, pooled);
    if (!encode(op.rows, segment, algorithm::row_position(index, op.spec.ratio), pooled))
      fail(r, op.value);
  });
}

void Operations::run(const backend::Recur& op) noexcept {
  const std::span<const float> convolution = convolutions_[static_cast<std::size_t>(op.matrix)];
  const auto take = [&](const auto& spec, std::span<const float> channels, std::size_t r,
                        std::uint32_t position, algorithm::RecurrentState& state) {
    using Spec = std::remove_cvref_t<decltype(spec)>;
    if constexpr (std::is_same_v<Spec, algorithm::KdaSpec>) {
      return algorithm::kda(
          spec, {convolution, vector(op.rate), vector(op.dt_bias), vector(op.norm)}, position,
          {channels, row(op.decay, r), row(op.beta, r), row(op.gate, r)}, state,
          grown(scratch_, spec.scratch_size()), row(op.out, r));
    } else {
      return algorithm::gated_delta_net(
          spec, {convolution, vector(op.rate), vector(op.dt_bias), vector(op.norm)}, position,
          {channels, row(op.decay, r), row(op.beta, r), row(op.gate, r)}, state,
          grown(scratch_, spec.channels()), row(op.out, r));
    }
  };
  std::size_t width = 0;
  for (const backend::Tensor part : op.channels) width += part.width;
  const std::span<float> channels = grown(gathered_, width);
  each_row([&](std::size_t r, const Segment& segment, std::uint32_t position) {
    auto to = channels.begin();
    for (const backend::Tensor part : op.channels) {
      const std::span<const float> from = row(part, r);
      to = std::copy(from.begin(), from.end(), to);
    }
    algorithm::RecurrentState state{.next = position, .matrix = block(op.matrix, segment)};
    if (op.history >= 0) state.history = block(op.history, segment);
    const bool taken = std::visit(
        [&](const auto& spec) { return take(spec, channels, r, position, state); }, op.spec);
    LEMMA_CHECK(taken);
    if (!all_finite(row(op.out, r))) fail(r, op.out);
  });
}

}  // namespace lemma::reference
