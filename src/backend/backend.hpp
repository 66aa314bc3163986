// SPDX-License-Identifier: Apache-2.0
// Backend: the contract's operations as data, and who runs them. A decoder records a `Program`: a
// list of operations over tensor handles, with a name for every tensor (its *site*). A backend
// prepares the program once, where it may fuse neighbours, pack weights and choose layouts, and
// then runs it for each step. It may not change a mask, a position or a definition.
//
// A tensor has one row per row of the step and is written by exactly one operation. Handles carry
// no bytes; the host sees rows only through observers and as logits. Prepared programs and states
// belong to one step loop at a time; weights are shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "algorithm/attention/gqa.hpp"
#include "algorithm/ffn/dense_mlp.hpp"
#include "algorithm/norm.hpp"
#include "algorithm/rope.hpp"
#include "state/layout.hpp"
#include "state/sequence.hpp"
#include "weights/view.hpp"

namespace lemma::backend {

/// A handle to [rows of the step, width] floats.
struct Tensor {
  std::int32_t id = -1;
  std::uint32_t width = 0;
  explicit operator bool() const noexcept { return id >= 0; }
};

/// Weights that a backend holds; kNoWeight where an operation has none.
using WeightId = std::int32_t;
inline constexpr WeightId kNoWeight = -1;
/// Index into the program's slots.
using SlotId = std::int32_t;

/// What a weight is used for; a backend packs accordingly.
enum class WeightUse : std::uint8_t {
  kMatrix,  ///< multiplied with activations
  kTable,   ///< rows are looked up
  kVector,  ///< norm weights, biases, sinks: decoded to f32
};

// The operations. Shapes: T rows of the step, widths of the tensors.

/// out [T, D] = table[token] * scale + positions[kv index] (the latter two if given).
struct Embed {
  WeightId table = kNoWeight, positions = kNoWeight;
  float scale = 1.f;
  Tensor out;
};
/// Normalises each run of `group` elements on its own (0: the whole row). Weight [group] shared by
/// all runs, or [width] when `weight_per_group` gives each run its own.
struct Norm {
  algorithm::NormSpec spec;
  WeightId weight = kNoWeight, bias = kNoWeight;
  std::uint32_t group = 0;
  bool weight_per_group = false;
  Tensor in, out;
};
/// outs[i] = clamp(in W_i^T + b_i): one input, one or several weights.
struct Project {
  struct Output {
    WeightId weight = kNoWeight, bias = kNoWeight;
    Tensor out;
  };
  Tensor in;
  std::vector<Output> outputs;
  float clamp = 0.f;  ///< c: results are clipped to [-c, c]; 0: none
};
/// Turns each of the width / head_dim heads by the row's rope position.
struct Rotate {
  std::uint32_t rope = 0;  ///< index into the program's ropes
  std::uint32_t head_dim = 0;
  bool inverse = false;
  Tensor in, out;
};
/// Appends each row to its sequence's slot, rounded to the state's row format.
struct Store {
  SlotId slot = -1;
  Tensor in;
};
/// Causal attention of each row over its sequence's keys and values, the step's own rows included.
struct Attend {
  algorithm::GqaSpec spec;
  SlotId key = -1, value = -1;
  WeightId sinks = kNoWeight;
  Tensor query, out;
};
/// out = in * sigmoid(gate).
struct Gate {
  Tensor in, gate, out;
};
/// The dense feed-forward block; `gate` is absent in an ungated one.
struct Mlp {
  algorithm::MlpSpec spec;
  WeightId gate = kNoWeight, up = kNoWeight, down = kNoWeight;
  WeightId gate_bias = kNoWeight, up_bias = kNoWeight, down_bias = kNoWeight;
  Tensor in, out;
};
/// out = (a + b * b_scale) * out_scale; `c`, if given, is added with b_scale too, after b.
struct Add {
  Tensor a, b, c, out;
  float b_scale = 1.f, out_scale = 1.f;
};
/// logits [rows that asked, V] = softcap(in W^T + b) * scale ... in this order: product, bias,
/// scale, soft-cap.
struct Head {
  WeightId weight = kNoWeight, bias = kNoWeight;
  float scale = 1.f, softcap = 0.f;
  Tensor in;
};

using Operation = std::variant<Embed, Norm, Project, Rotate, Store, Attend, Gate, Mlp, Add, Head>;

/// The contract's word for an operation: "embed", "norm", "project", ...
std::string_view operation_name(const Operation& operation) noexcept;

/// A recorded forward pass.
struct Program {
  struct Site {
    std::string name;  ///< "layers.3.attention.query"; unique
    std::uint32_t width = 0;
  };
  std::vector<Operation> operations;
  std::vector<Site> tensors;  ///< by Tensor::id
  std::vector<algorithm::RopeSpec> ropes;
  std::vector<algorithm::Slot> slots;  ///< by SlotId
  std::uint32_t vocabulary = 0;        ///< V; 0 when the program ends in hidden states
  Tensor hidden;                       ///< the normed rows that enter the head

  /// A new tensor; `site` must be unique.
  Tensor tensor(std::string site, std::uint32_t width);
  /// The index of `rope` among the ropes, added if it is new.
  std::uint32_t rope(const algorithm::RopeSpec& spec);
};

/// Rows of one sequence in a step, in order of position.
struct Segment {
  std::uint32_t first_row = 0, rows = 0;
  std::uint32_t past = 0;  ///< committed length; row i has kv index past + i
  state::TokenClass token_class = state::TokenClass::kEntered;
  const state::Sequence* sequence = nullptr;  ///< page tables; rows are reserved in it
};

/// What a step computes. Spans must live until run() returns.
struct Step {
  std::span<const std::int32_t> tokens;                ///< [T], each below the vocabulary
  std::span<const algorithm::RopePosition> positions;  ///< [T]
  std::span<const Segment> segments;                   ///< cover [0, T) in order
  std::span<const std::uint32_t> logit_rows;           ///< ascending rows that want logits
};

enum class SegmentStatus : std::uint8_t { kOk, kNonFinite, kOutOfMemory, kDevice };
struct SegmentResult {
  SegmentStatus status = SegmentStatus::kOk;
  std::int32_t site = -1;  ///< kNonFinite: the tensor where it was seen first
};

/// Looks at, or replaces, the rows of sites while a step runs. Called on the thread that runs the
/// step, between operations.
class Observer {
 public:
  virtual ~Observer() = default;
  /// Asked once for each tensor when a program is prepared.
  virtual bool wants(const Program::Site& site) = 0;
  /// `rows` [T, width] of the tensor `tensor`, just written; changes to them take effect.
  virtual void observe(std::int32_t tensor, const Program::Site& site, const Step& step,
                       std::span<float> rows) = 0;
};

/// The bytes of all pages; made by a backend for a layout.
class StateStore {
 public:
  virtual ~StateStore() = default;
  /// Copies the first `positions` positions of a page of `group`, for a fork of a partial page.
  virtual void copy_page(std::uint32_t group, state::PageId from, state::PageId to,
                         std::uint32_t positions) = 0;
  virtual std::size_t allocated_bytes() const noexcept = 0;
};

/// Which implementation runs an operation: for `lemma show` and for tests.
struct Placement {
  std::string operation;       ///< operation_name
  std::string site;            ///< the first tensor that it writes
  std::string implementation;  ///< "reference", "cpu avx512 q8_0", ...
  std::string format;          ///< formats of its weights, if any
};

/// A program prepared for a backend and a state.
class Executable {
 public:
  virtual ~Executable() = default;
  /// Runs the program for `step`, of at most max_rows rows. Results per segment, in order; a
  /// segment that fails leaves the others untouched. Allocates nothing.
  virtual std::span<const SegmentResult> run(const Step& step) noexcept = 0;
  /// Logits [V] of step.logit_rows[i] of the last run; valid until the next.
  virtual std::span<const float> logits(std::size_t i) const noexcept = 0;
  virtual std::vector<Placement> placements() const = 0;
  virtual std::size_t scratch_bytes() const noexcept = 0;
};

struct PrepareOptions {
  std::uint32_t max_rows = 512;  ///< the largest step
  std::span<Observer* const> observers;
};

/// How arithmetic may differ from the contract's f32.
enum class Numerics : std::uint8_t {
  kFast,    ///< activations of quantized products may be rounded to int8 per group
  kStrict,  ///< weights are decoded, activations stay f32
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const noexcept = 0;  ///< "reference", "cpu"
  virtual std::string description() const = 0;         ///< one line: ISA, threads, and why

  /// Takes a weight, which must outlive the backend's programs. Throws kOutOfMemory.
  virtual WeightId add(weights::Matrix matrix, WeightUse use) = 0;
  virtual std::size_t weight_bytes() const noexcept = 0;  ///< held beyond the mapping

  /// `pages[g]` pages for each group of `layout`, which must outlive the store.
  virtual std::unique_ptr<StateStore> make_state(const state::Layout& layout,
                                                 std::span<const std::size_t> pages) = 0;
  /// `program`, `state` and the observers must outlive the executable.
  virtual std::unique_ptr<Executable> prepare(const Program& program, StateStore& state,
                                              const PrepareOptions& options) = 0;
};

}  // namespace lemma::backend
