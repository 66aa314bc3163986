// SPDX-License-Identifier: Apache-2.0
// The operations on single rows: embedding, norms, projections, rotation, gates, sums, the head.
#include <algorithm>

#include "algorithm/linear.hpp"
#include "backend/reference/operations.hpp"
#include "base/check.hpp"

namespace lemma::reference {

void Operations::run(const backend::Embed& op) noexcept {
  const std::span<const float> token_type = vector(op.token_type);
  each_row([&](std::size_t r, const backend::Segment&, std::uint32_t position) {
    const std::span<float> out = row(op.out, r);
    const auto token = static_cast<std::uint64_t>(step_->tokens[r]);
    const std::span<const float> entry = decode(op.table, token, 1, decoded_);
    for (std::size_t c = 0; c < out.size(); ++c) out[c] = entry[op.begin + c] * op.scale;
    if (op.positions != backend::kNoWeight) {
      const std::span<const float> learned = decode(op.positions, position, 1, decoded_);
      for (std::size_t c = 0; c < out.size(); ++c) out[c] += learned[c];
    }
    for (std::size_t c = 0; c < token_type.size(); ++c) out[c] += token_type[c];
  });
}

void Operations::run(const backend::Receive& op) noexcept {
  LEMMA_CHECK(step_->received.size() == rows() * op.out.width);
  std::copy(step_->received.begin(), step_->received.end(), memory_.arena.data(op.out));
}

void Operations::run(const backend::Norm& op) noexcept {
  const std::size_t group = op.group ? op.group : op.in.width;
  const std::span<const float> weight = vector(op.weight), bias = vector(op.bias);
  for (std::size_t r = 0; r < rows(); ++r) {
    if (!all_finite(row(op.in, r))) fail(r, op.in);
    for (std::size_t begin = 0; begin < op.in.width; begin += group) {
      const auto own = [&](std::span<const float> v) {
        return op.weight_per_group && !v.empty() ? v.subspan(begin, group) : v;
      };
      algorithm::normalize(op.spec, row(op.in, r).subspan(begin, group), own(weight), own(bias),
                           row(op.out, r).subspan(begin, group));
    }
  }
}

void Operations::run(const backend::Project& op) noexcept {
  for (const auto& output : op.outputs) {
    float* const out = memory_.arena.data(output.out);
    multiply(output.weight, output.bias, memory_.arena.data(op.in), rows(), out);
    for (std::size_t i = 0; i < rows() * output.out.width; ++i)
      out[i] = algorithm::clamp(out[i], op.clamp);
  }
}

void Operations::run(const backend::ProjectGroups& op) noexcept {
  const algorithm::GroupedLinearSpec& spec = op.spec;
  for (std::size_t o = 0; o < op.out.width; ++o) {
    const std::size_t own = spec.shared ? o % spec.out : o;
    const std::span<const float> weight = decode(op.weight, own, 1, decoded_);
    const std::size_t group = o / spec.out;
    algorithm::dot_rows(weight, memory_.arena.data(op.in) + group * spec.in, op.in.width, rows(),
                        memory_.arena.data(op.out) + o, op.out.width);
  }
}

void Operations::run(const backend::Rotate& op) noexcept {
  const algorithm::RopeTable& table = ropes_[op.rope];
  const std::size_t pairs = table.inv_freq().size();
  const std::span<float> cos = grown(cos_, pairs), sin = grown(sin_, pairs);
  for (std::size_t r = 0; r < rows(); ++r) {
    table.angles(step_->positions[r], cos, sin);
    const std::span<float> in = row(op.in, r), out = row(op.out, r);
    std::copy(in.begin(), in.end(), out.begin());
    for (std::size_t begin = 0; begin < out.size(); begin += op.head_dim)
      algorithm::rotate(table.spec(), cos, sin, op.inverse, out.subspan(begin, op.head_dim));
  }
}

void Operations::run(const backend::Gate& op) noexcept {
  LEMMA_CHECK(op.gate.width > 0 && op.in.width % op.gate.width == 0);
  const std::size_t run = op.in.width / op.gate.width;
  for (std::size_t r = 0; r < rows(); ++r) {
    const std::span<const float> in = row(op.in, r), gate = row(op.gate, r);
    const std::span<float> out = row(op.out, r);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = in[i] * algorithm::sigmoid(gate[i / run]);
  }
}

void Operations::run(const backend::Activate& op) noexcept {
  for (std::size_t r = 0; r < rows(); ++r)
    algorithm::activate(op.spec, row(op.gate, r), row(op.up, r).subspan(op.up_begin, op.gate.width),
                        row(op.out, r));
}

void Operations::run(const backend::Add& op) noexcept {
  const float *const a = memory_.arena.data(op.a), *const b = memory_.arena.data(op.b);
  float* const out = memory_.arena.data(op.out);
  for (std::size_t i = 0; i < rows() * op.out.width; ++i)
    out[i] = (a[i] + b[i] * op.b_scale) * op.out_scale;
}

void Operations::run(const backend::Head& op) noexcept {
  const std::size_t wanted = step_->logit_rows.size();
  const std::size_t vocabulary = memory_.program.vocabulary;
  LEMMA_CHECK(wanted * vocabulary <= logits_.size());
  const std::span<float> gathered = grown(gathered_, wanted * op.in.width);
  const std::span<float> logits(logits_.data(), wanted * vocabulary);
  for (std::size_t i = 0; i < wanted; ++i)
    std::copy_n(memory_.arena.row(op.in, step_->logit_rows[i]), op.in.width,
                gathered.begin() + static_cast<std::ptrdiff_t>(i * op.in.width));
  multiply(op.weight, op.bias, gathered.data(), wanted, logits.data());
  for (std::size_t i = 0; i < wanted; ++i) {
    const std::span<float> row = logits.subspan(i * vocabulary, vocabulary);
    for (float& logit : row) logit = algorithm::softcap(logit * op.scale, op.softcap);
    if (!all_finite(row)) fail(step_->logit_rows[i], op.in);
  }
}

}  // namespace lemma::reference
