// SPDX-License-Identifier: Apache-2.0
#include "backend/reference/reference_executable.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "algorithm/linear.hpp"
#include "algorithm/row_formats.hpp"
#include "base/check.hpp"

namespace lemma::reference {
namespace {

using backend::Tensor;

bool all_finite(std::span<const float> values) noexcept {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

}  // namespace

ReferenceExecutable::ReferenceExecutable(const backend::Program& program,
                                         const std::vector<Weight>& weights,
                                         backend::HostState& state,
                                         const backend::PrepareOptions& options)
    : program_(program), weights_(weights), state_(state), arena_(program, options.max_rows) {
  for (const algorithm::RopeSpec& rope : program.ropes) ropes_.emplace_back(rope);
  observers_.resize(program.tensors.size());
  for (std::size_t t = 0; t < program.tensors.size(); ++t)
    for (backend::Observer* observer : options.observers)
      if (observer->wants(program.tensors[t])) observers_[t].push_back(observer);

  slopes_.resize(program.slots.size());
  std::size_t widest = 0, hidden = 0, head = 0;
  for (const Weight& weight : weights) widest = std::max<std::size_t>(widest, weight.matrix.cols);
  for (const backend::Operation& operation : program.operations) {
    if (const auto* mlp = std::get_if<backend::Mlp>(&operation))
      hidden = std::max<std::size_t>(hidden, mlp->spec.hidden);
    if (const auto* rotate = std::get_if<backend::Rotate>(&operation))
      head = std::max<std::size_t>(head, rotate->head_dim);
    if (const auto* attend = std::get_if<backend::Attend>(&operation)) {
      const algorithm::GqaSpec& spec = attend->spec;
      head = std::max<std::size_t>({head, spec.head_dim, spec.value_dim});
      if (spec.alibi_max_bias > 0.f)
        slopes_[attend->key] = algorithm::alibi_slopes(spec.query_heads, spec.alibi_max_bias);
    }
  }
  decoded_.resize(widest);
  gate_.resize(hidden * options.max_rows);
  up_.resize(hidden * options.max_rows);
  key_.resize(head);
  value_.resize(head);
  cos_.resize(head);
  sin_.resize(head);
  results_.reserve(options.max_rows);
  segment_of_.resize(options.max_rows);
}

std::span<const backend::SegmentResult> ReferenceExecutable::run(
    const backend::Step& step) noexcept {
  LEMMA_CHECK(step.tokens.size() <= segment_of_.size());
  step_ = &step;
  results_.assign(step.segments.size(), {});
  for (std::size_t s = 0; s < step.segments.size(); ++s)
    std::fill_n(segment_of_.begin() + step.segments[s].first_row, step.segments[s].rows,
                static_cast<std::uint32_t>(s));
  for (const backend::Operation& operation : program_.operations) {
    std::visit([this](const auto& op) { run(op); }, operation);
    observe(operation);
  }
  step_ = nullptr;
  return results_;
}

void ReferenceExecutable::run(const backend::Embed& op) noexcept {
  const weights::Matrix& table = weights_[op.table].matrix;
  const auto& format = weights::traits(table.format);
  for (const backend::Segment& segment : step_->segments)
    for (std::uint32_t i = 0; i < segment.rows; ++i) {
      const std::size_t r = segment.first_row + i;
      const std::span<float> out(arena_.row(op.out, r), op.out.width);
      format.dequantize(table.row(static_cast<std::uint64_t>(step_->tokens[r])), out);
      for (float& x : out) x *= op.scale;
      if (op.positions == backend::kNoWeight) continue;
      const weights::Matrix& positions = weights_[op.positions].matrix;
      const std::span<float> learned(decoded_.data(), out.size());
      weights::traits(positions.format).dequantize(positions.row(segment.past + i), learned);
      for (std::size_t c = 0; c < out.size(); ++c) out[c] += learned[c];
    }
}

void ReferenceExecutable::run(const backend::Norm& op) noexcept {
  const std::size_t group = op.group ? op.group : op.in.width;
  const std::span<const float> weight = vector(op.weight), bias = vector(op.bias);
  for (std::size_t r = 0; r < rows(); ++r) {
    if (!all_finite({arena_.row(op.in, r), op.in.width})) fail(r, op.in);
    for (std::size_t begin = 0; begin < op.in.width; begin += group) {
      const auto own = [&](std::span<const float> v) {
        return op.weight_per_group && !v.empty() ? v.subspan(begin, group) : v;
      };
      algorithm::normalize(op.spec, {arena_.row(op.in, r) + begin, group}, own(weight), own(bias),
                           {arena_.row(op.out, r) + begin, group});
    }
  }
}

void ReferenceExecutable::run(const backend::Project& op) noexcept {
  for (const auto& output : op.outputs) {
    float* out = arena_.data(output.out);
    multiply(output.weight, output.bias, arena_.data(op.in), rows(), out);
    for (std::size_t i = 0; i < rows() * output.out.width; ++i)
      out[i] = algorithm::clamp(out[i], op.clamp);
  }
}

void ReferenceExecutable::run(const backend::Rotate& op) noexcept {
  const algorithm::RopeTable& table = ropes_[op.rope];
  const std::size_t pairs = table.inv_freq().size();
  const std::span<float> cos(cos_.data(), pairs), sin(sin_.data(), pairs);
  for (std::size_t r = 0; r < rows(); ++r) {
    table.angles(step_->positions[r], cos, sin);
    std::copy_n(arena_.row(op.in, r), op.in.width, arena_.row(op.out, r));
    for (std::size_t begin = 0; begin < op.in.width; begin += op.head_dim)
      algorithm::rotate(table.spec(), cos, sin, op.inverse,
                        {arena_.row(op.out, r) + begin, op.head_dim});
  }
}

void ReferenceExecutable::run(const backend::Store& op) noexcept {
  const state::SlotPlace& place = state_.layout().slots()[op.slot];
  for (const backend::Segment& segment : step_->segments)
    for (std::uint32_t i = 0; i < segment.rows; ++i) {
      const std::size_t r = segment.first_row + i;
      if (!algorithm::encode_row(state_.layout().options().format, place.slot.group,
                                 {arena_.row(op.in, r), op.in.width},
                                 state_.row(op.slot, *segment.sequence, segment.past + i)))
        fail(r, op.in);
    }
}

void ReferenceExecutable::run(const backend::Attend& op) noexcept {
  const algorithm::GqaSpec& spec = op.spec;
  const algorithm::RowFormat format = state_.layout().options().format;
  const state::SlotPlace& keys = state_.layout().slots()[op.key];
  const state::SlotPlace& values = state_.layout().slots()[op.value];
  const std::span<const float> sinks = vector(op.sinks);
  const std::vector<float>& slopes = slopes_[op.key];
  const std::uint32_t heads_per_kv = spec.query_heads / spec.kv_heads;

  for (const backend::Segment& segment : step_->segments)
    for (std::uint32_t i = 0; i < segment.rows; ++i)
      for (std::uint32_t h = 0; h < spec.query_heads; ++h) {
        const std::uint32_t position = segment.past + i, kv_head = h / heads_per_kv;
        // One KV head's part of the row at `j`, as the state holds it.
        const auto reader = [&](backend::SlotId slot, const state::SlotPlace& place,
                                std::span<float> head) {
          return [&, slot, head](std::uint32_t j) -> std::span<const float> {
            algorithm::decode_row(format, place.slot.group, place.slot.width,
                                  state_.row(slot, *segment.sequence, j), kv_head * head.size(),
                                  head);
            return head;
          };
        };
        const auto key = reader(op.key, keys, {key_.data(), spec.head_dim});
        const auto value = reader(op.value, values, {value_.data(), spec.value_dim});
        const std::size_t r = segment.first_row + i;
        algorithm::attend(spec, {arena_.row(op.query, r) + h * spec.head_dim, spec.head_dim},
                          position, algorithm::visible_range(position, spec.window), std::cref(key),
                          std::cref(value), spec.sinks ? &sinks[h] : nullptr,
                          slopes.empty() ? 0.f : slopes[h],
                          {arena_.row(op.out, r) + h * spec.value_dim, spec.value_dim});
      }
}

void ReferenceExecutable::run(const backend::Gate& op) noexcept {
  for (std::size_t i = 0; i < rows() * op.out.width; ++i)
    arena_.data(op.out)[i] = arena_.data(op.in)[i] * algorithm::sigmoid(arena_.data(op.gate)[i]);
}

void ReferenceExecutable::run(const backend::Mlp& op) noexcept {
  const std::size_t hidden = rows() * op.spec.hidden;
  const float* in = arena_.data(op.in);
  multiply(op.up, op.up_bias, in, rows(), up_.data());
  const bool gated = op.gate != backend::kNoWeight;
  if (gated) multiply(op.gate, op.gate_bias, in, rows(), gate_.data());
  const std::span<float> up(up_.data(), hidden), gate(gate_.data(), hidden);
  if (gated)
    algorithm::activate(op.spec.activation, gate, up, up);
  else
    algorithm::activate(op.spec.activation, up, {}, up);
  multiply(op.down, op.down_bias, up_.data(), rows(), arena_.data(op.out));
}

void ReferenceExecutable::run(const backend::Add& op) noexcept {
  for (std::size_t i = 0; i < rows() * op.out.width; ++i) {
    const float sum = arena_.data(op.a)[i] + arena_.data(op.b)[i] * op.b_scale;
    arena_.data(op.out)[i] = sum * op.out_scale;
  }
}

void ReferenceExecutable::run(const backend::Head& op) noexcept {
  const std::size_t wanted = step_->logit_rows.size(), vocabulary = program_.vocabulary;
  if (logits_.size() < wanted * vocabulary) logits_.resize(wanted * vocabulary);
  if (gathered_.size() < wanted * op.in.width) gathered_.resize(wanted * op.in.width);
  for (std::size_t i = 0; i < wanted; ++i)
    std::copy_n(arena_.row(op.in, step_->logit_rows[i]), op.in.width,
                gathered_.data() + i * op.in.width);
  multiply(op.weight, op.bias, gathered_.data(), wanted, logits_.data());
  for (std::size_t i = 0; i < wanted; ++i) {
    const std::span<float> row(logits_.data() + i * vocabulary, vocabulary);
    for (float& logit : row) logit = algorithm::softcap(logit * op.scale, op.softcap);
    if (!all_finite(row)) fail(step_->logit_rows[i], op.in);
  }
}

void ReferenceExecutable::multiply(backend::WeightId weight, backend::WeightId bias,
                                   const float* in, std::size_t in_rows, float* out) noexcept {
  const weights::Matrix& matrix = weights_[weight].matrix;
  const std::span<const float> biases = vector(bias);
  const std::span<float> decoded(decoded_.data(), matrix.cols);
  for (std::size_t o = 0; o < matrix.rows; ++o) {
    weights::traits(matrix.format).dequantize(matrix.row(o), decoded);
    algorithm::dot_rows(decoded, in, matrix.cols, in_rows, out + o, matrix.rows);
    if (biases.empty()) continue;
    for (std::size_t r = 0; r < in_rows; ++r) out[r * matrix.rows + o] += biases[o];
  }
}

std::span<const float> ReferenceExecutable::vector(backend::WeightId id) const noexcept {
  if (id == backend::kNoWeight) return {};
  return weights_[id].vector;
}

void ReferenceExecutable::observe(const backend::Operation& operation) noexcept {
  for (const Tensor tensor : backend::outputs(operation))
    for (backend::Observer* observer : observers_[tensor.id])
      observer->observe(tensor.id, program_.tensors[tensor.id], *step_,
                        {arena_.data(tensor), rows() * tensor.width});
}

void ReferenceExecutable::fail(std::size_t row, Tensor tensor) noexcept {
  backend::SegmentResult& result = results_[segment_of_[row]];
  if (result.status == backend::SegmentStatus::kOk)
    result = {backend::SegmentStatus::kNonFinite, tensor.id};
}

std::span<const float> ReferenceExecutable::logits(std::size_t i) const noexcept {
  return {logits_.data() + i * program_.vocabulary, program_.vocabulary};
}

std::vector<backend::Placement> ReferenceExecutable::placements() const {
  std::vector<backend::Placement> result;
  for (const backend::Operation& operation : program_.operations) {
    const std::vector<Tensor> written = backend::outputs(operation);
    result.push_back({std::string(backend::operation_name(operation)),
                      written.empty() ? "" : program_.tensors[written.front().id].name, "reference",
                      ""});
  }
  return result;
}

std::size_t ReferenceExecutable::scratch_bytes() const noexcept {
  return arena_.bytes() + (gate_.size() + up_.size() + logits_.size()) * sizeof(float);
}

}  // namespace lemma::reference
