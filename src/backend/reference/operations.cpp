// SPDX-License-Identifier: Apache-2.0
#include "backend/reference/operations.hpp"

#include <algorithm>

#include "algorithm/linear.hpp"
#include "algorithm/row_formats.hpp"
#include "base/check.hpp"

namespace lemma::reference {

Operations::Operations(const Memory& memory, std::span<const backend::Operation> operations,
                       std::uint32_t max_rows, std::uint32_t logit_rows)
    : memory_(memory) {
  const std::size_t slots = memory.program.slots.size();
  slopes_.resize(slots);
  entry_ropes_.resize(slots);
  convolutions_.resize(slots);
  std::size_t hidden = 0;
  for (const backend::Operation& operation : operations) {
    if (std::holds_alternative<backend::Rotate>(operation) && ropes_.empty())
      for (const algorithm::RopeSpec& rope : memory.program.ropes) ropes_.emplace_back(rope);
    if (const auto* mlp = std::get_if<backend::Mlp>(&operation))
      hidden = std::max<std::size_t>(hidden, mlp->spec.hidden);
    if (const auto* head = std::get_if<backend::Head>(&operation)) {
      gathered_.resize(std::size_t{logit_rows} * head->in.width);
      logits_.resize(std::size_t{logit_rows} * memory.program.vocabulary);
    }
    if (const auto* attend = std::get_if<backend::Attend>(&operation)) {
      const algorithm::GqaSpec& spec = attend->spec;
      if (spec.alibi_max_bias > 0.f)
        slopes_[static_cast<std::size_t>(attend->key)] =
            algorithm::alibi_slopes(spec.query_heads, spec.alibi_max_bias);
    }
    if (const auto* compress = std::get_if<backend::Compress>(&operation); compress)
      if (compress->entry)
        entry_ropes_[static_cast<std::size_t>(compress->rows)].emplace(compress->entry->rope);
    if (const auto* recur = std::get_if<backend::Recur>(&operation)) {
      std::vector<float>& joined = convolutions_[static_cast<std::size_t>(recur->matrix)];
      for (const backend::WeightId id : recur->convolutions) {
        const std::span<const float> part = vector(id);
        joined.insert(joined.end(), part.begin(), part.end());
      }
    }
  }
  gate_.resize(hidden * max_rows);
  up_.resize(hidden * max_rows);
}

void Operations::run(const backend::Operation& operation, const backend::Step& step,
                     Failed failed) noexcept {
  step_ = &step;
  failed_ = &failed;
  std::visit([this](const auto& op) { run(op); }, operation);
  step_ = nullptr;
  failed_ = nullptr;
}

void Operations::multiply(backend::WeightId weight, std::uint64_t first, std::size_t count,
                          std::span<const float> bias, const float* in, std::size_t n,
                          float* out) noexcept {
  const std::size_t cols = memory_.weights.matrix(weight).cols;
  for (std::size_t o = 0; o < count; ++o) {
    algorithm::dot_rows(decode(weight, first + o, 1, decoded_), in, cols, n, out + o, count);
    if (bias.empty()) continue;
    for (std::size_t r = 0; r < n; ++r) out[r * count + o] += bias[o];
  }
}

void Operations::multiply(backend::WeightId weight, backend::WeightId bias, const float* in,
                          std::size_t n, float* out) noexcept {
  multiply(weight, 0, memory_.weights.matrix(weight).rows, vector(bias), in, n, out);
}

std::span<const float> Operations::decode(backend::WeightId weight, std::uint64_t first,
                                          std::size_t count, std::vector<float>& buffer) noexcept {
  const weights::Matrix& matrix = memory_.weights.matrix(weight);
  LEMMA_CHECK(first + count <= matrix.rows);
  const std::span<float> out = grown(buffer, count * matrix.cols);
  const weights::FormatTraits& format = weights::traits(matrix.format);
  for (std::size_t i = 0; i < count; ++i)
    format.dequantize(matrix.row(first + i), out.subspan(i * matrix.cols, matrix.cols));
  return out;
}

bool Operations::encode(backend::SlotId slot, const backend::Segment& segment,
                        std::uint32_t position, std::span<const float> values) noexcept {
  const state::SlotPlace& at = place(slot);
  return algorithm::encode_row(at.format, at.slot.group, values,
                               memory_.state.row(slot, *segment.sequence, position), at.slot.tail);
}

std::span<float> Operations::block(backend::SlotId slot, const backend::Segment& segment) noexcept {
  return memory_.state.next_block(slot, *segment.sequence);
}

std::span<const float> Operations::logits(std::size_t i) const noexcept {
  const std::size_t vocabulary = memory_.program.vocabulary;
  return {logits_.data() + i * vocabulary, vocabulary};
}

std::size_t Operations::scratch_bytes() const noexcept {
  std::size_t floats = 0;
  for (const std::vector<float>* buffer :
       {&decoded_, &matrix_, &values_, &gate_, &up_, &key_, &value_, &cos_, &sin_, &gathered_,
        &scratch_, &scores_, &logits_})
    floats += buffer->size();
  for (const std::vector<float>& joined : convolutions_) floats += joined.size();
  return floats * sizeof(float) + (indices_.size() + chosen_.size()) * sizeof(std::uint32_t);
}

}  // namespace lemma::reference
