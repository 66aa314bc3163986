// SPDX-License-Identifier: Apache-2.0
// Operations: every operation of backend.hpp through the contract's function in src/algorithm, one
// row at a time, in f32 on the calling thread. The reference backend runs whole programs so; a
// backend whose tensors, state and weights are in host memory borrows what it has no code of its
// own for. Read this before any fast code: one run() an operation.
//
// Owns scratch only, which grows to the largest step and sequence seen. Weights are decoded each
// time they are used. Belongs to one step loop.
//
//   Operations operations({program, weights, state, arena}, program.operations, max_rows);
//   operations.run(operation, step, [&](std::size_t row, Tensor tensor) { ... });
#pragma once

#include <cmath>
#include <optional>
#include <vector>

#include "backend/backend.hpp"
#include "backend/host_state.hpp"
#include "backend/reference/weight_source.hpp"
#include "backend/tensor_arena.hpp"
#include "base/function_ref.hpp"

namespace lemma::reference {

/// What operations work on; all of it outlives them.
struct Memory {
  const backend::Program& program;
  const WeightSource& weights;
  backend::HostState& state;
  const backend::TensorArena& arena;
};

class Operations {
 public:
  /// Told of each row that came to something that is not finite, and where it was seen.
  using Failed = base::FunctionRef<void(std::size_t row, backend::Tensor tensor)>;

  /// Makes ready for `operations`, some or all of the program's, and steps of at most `max_rows`
  /// rows, of which `logit_rows` want logits.
  Operations(const Memory& memory, std::span<const backend::Operation> operations,
             std::uint32_t max_rows, std::uint32_t logit_rows);

  /// Runs one of them for all rows of `step`. A row that fails leaves the others untouched.
  void run(const backend::Operation& operation, const backend::Step& step, Failed failed) noexcept;

  /// Logits [V] of the i-th row that asked for them, of the last Head.
  std::span<const float> logits(std::size_t i) const noexcept;
  std::size_t scratch_bytes() const noexcept;

 private:
  // operations_rows.cpp
  void run(const backend::Embed& op) noexcept;
  void run(const backend::Receive& op) noexcept;
  void run(const backend::Norm& op) noexcept;
  void run(const backend::Project& op) noexcept;
  void run(const backend::ProjectGroups& op) noexcept;
  void run(const backend::Rotate& op) noexcept;
  void run(const backend::Gate& op) noexcept;
  void run(const backend::Activate& op) noexcept;
  void run(const backend::Add& op) noexcept;
  void run(const backend::Head& op) noexcept;
  // operations_attention.cpp
  void run(const backend::Attend& op) noexcept;
  void run(const backend::AttendLatent& op) noexcept;
  void run(const backend::AttendCompressed& op) noexcept;
  // operations_state.cpp
  void run(const backend::Store& op) noexcept;
  void run(const backend::Select& op) noexcept;
  void run(const backend::Compress& op) noexcept;
  void run(const backend::Recur& op) noexcept;
  // operations_ffn.cpp
  void run(const backend::Mlp& op) noexcept;
  void run(const backend::Route& op) noexcept;
  void run(const backend::Experts& op) noexcept;
  // operations_residual.cpp
  void run(const backend::StreamsEnter& op) noexcept;
  void run(const backend::StreamsRead& op) noexcept;
  void run(const backend::StreamsWrite& op) noexcept;
  void run(const backend::StreamsLeave& op) noexcept;
  void run(const backend::MixResidual& op) noexcept;

  // The running step.
  std::size_t rows() const noexcept { return step_->tokens.size(); }
  /// Calls body(row, segment, kv index) for each row of the step.
  template <typename Body>
  void each_row(const Body& body) const noexcept {
    for (const backend::Segment& segment : step_->segments)
      for (std::uint32_t i = 0; i < segment.rows; ++i)
        body(std::size_t{segment.first_row} + i, segment, segment.past + i);
  }
  std::span<float> row(backend::Tensor tensor, std::size_t r) noexcept {
    return {memory_.arena.row(tensor, r), tensor.width};
  }
  void fail(std::size_t row, backend::Tensor tensor) noexcept { (*failed_)(row, tensor); }

  // Weights.
  std::span<const float> vector(backend::WeightId id) const noexcept {
    return id == backend::kNoWeight ? std::span<const float>() : memory_.weights.vector(id);
  }
  /// out [n, count] = in [n, cols] W^T + bias, W being `count` rows of the weight from `first` on;
  /// rows of `out` are count apart.
  void multiply(backend::WeightId weight, std::uint64_t first, std::size_t count,
                std::span<const float> bias, const float* in, std::size_t n, float* out) noexcept;
  void multiply(backend::WeightId weight, backend::WeightId bias, const float* in, std::size_t n,
                float* out) noexcept;
  /// `count` rows of a weight from `first` on, as f32 in `buffer`.
  std::span<const float> decode(backend::WeightId weight, std::uint64_t first, std::size_t count,
                                std::vector<float>& buffer) noexcept;

  // State.
  const state::SlotPlace& place(backend::SlotId slot) const noexcept {
    return memory_.state.layout().slots()[static_cast<std::size_t>(slot)];
  }
  /// Reads elements [begin, begin + into.size()) of row i of a slot, which holds a row for every
  /// `ratio` tokens, into `into`; for algorithm::RowReader.
  auto reader(backend::SlotId slot, const backend::Segment& segment, std::size_t begin,
              std::span<float> into) noexcept;
  /// Writes the row of a slot that stands at `position`; false if the format cannot hold it.
  bool encode(backend::SlotId slot, const backend::Segment& segment, std::uint32_t position,
              std::span<const float> values) noexcept;
  /// The fixed block of a slot that the step works on.
  std::span<float> block(backend::SlotId slot, const backend::Segment& segment) noexcept;

  /// List `index` of a row of selections that holds `lists` of them, each index below `bound`.
  std::span<const std::uint32_t> list(backend::Tensor selection, std::size_t r, std::size_t index,
                                      std::size_t lists, std::uint32_t bound) noexcept;
  template <typename Spec>
  bool select(const backend::Select& op, const Spec& spec, std::size_t r,
              const backend::Segment& segment, std::uint32_t position) noexcept;
  /// The row's `values` as distinct whole numbers below `bound`; false if they are none.
  static bool read_ids(std::span<const float> values, std::uint32_t bound,
                       std::span<std::uint32_t> ids) noexcept;
  /// `shown` gets what the expert's `down` reads; it is empty where nobody wants to see it.
  void run_expert(const backend::Experts& op, std::uint32_t expert, std::span<const float> x,
                  std::span<float> y, std::span<float> shown) noexcept;

  Memory memory_;
  const backend::Step* step_ = nullptr;
  const Failed* failed_ = nullptr;

  std::vector<algorithm::RopeTable> ropes_;                       ///< the program's
  std::vector<std::optional<algorithm::RopeTable>> entry_ropes_;  ///< by rows slot of a Compress
  std::vector<std::vector<float>> slopes_;        ///< ALiBi's by query head, by key slot
  std::vector<std::vector<float>> convolutions_;  ///< three in one, by matrix slot of a Recur

  // Scratch.
  std::vector<float> decoded_;          ///< one weight row
  std::vector<float> matrix_, values_;  ///< decoded weights
  std::vector<float> gate_, up_;        ///< [rows, F]
  std::vector<float> key_, value_;      ///< a row as the state holds it
  std::vector<float> cos_, sin_;
  std::vector<float> gathered_;  ///< rows that are apart in tensors
  std::vector<float> scratch_;   ///< of the contract's functions
  std::vector<float> scores_;    ///< of what may be chosen
  std::vector<std::uint32_t> indices_, chosen_;
  std::vector<float> logits_;  ///< [rows that asked, V]
};

/// The first `n` elements of a buffer that grows to the largest wish.
template <typename T>
std::span<T> grown(std::vector<T>& buffer, std::size_t n) {
  if (buffer.size() < n) buffer.resize(n);
  return {buffer.data(), n};
}

inline bool all_finite(std::span<const float> values) noexcept {
  for (const float value : values)
    if (!std::isfinite(value)) return false;
  return true;
}

inline auto Operations::reader(backend::SlotId slot, const backend::Segment& segment,
                               std::size_t begin, std::span<float> into) noexcept {
  const state::SlotPlace& at = place(slot);
  return [this, slot, &at, &segment, begin, into](std::uint32_t i) -> std::span<const float> {
    algorithm::decode_row(at.format, at.slot.group, at.slot.width,
                          memory_.state.row(slot, *segment.sequence, i * at.slot.ratio), begin,
                          into, at.slot.tail);
    return into;
  };
}

}  // namespace lemma::reference
