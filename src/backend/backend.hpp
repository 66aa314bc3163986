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
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "algorithm/attention/compressed_sparse.hpp"
#include "algorithm/attention/dsa.hpp"
#include "algorithm/attention/gated_delta_net.hpp"
#include "algorithm/attention/gqa.hpp"
#include "algorithm/attention/kda.hpp"
#include "algorithm/attention/msa.hpp"
#include "algorithm/ffn/dense_mlp.hpp"
#include "algorithm/ffn/routing.hpp"
#include "algorithm/norm.hpp"
#include "algorithm/residual/attn_res.hpp"
#include "algorithm/residual/hyper_connection.hpp"
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

/// out [T, D] = columns [begin, begin + D) of table[token] * scale + positions[kv index] +
/// token_type (the latter two if given).
struct Embed {
  WeightId table = kNoWeight, positions = kNoWeight;
  WeightId token_type = kNoWeight;  ///< a vector [D], the same for every token
  std::uint32_t begin = 0;
  float scale = 1.f;
  Tensor out;
};
/// out [T, W] = the rows that come with the step: what a draft block reads of its model.
struct Receive {
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
/// A block-diagonal product: group g of `out` is W_g times group g of `in`, or W times it.
struct ProjectGroups {
  algorithm::GroupedLinearSpec spec;
  WeightId weight = kNoWeight;  ///< [groups * out, in], or [out, in] where shared
  Tensor in, out;
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
/// Causal attention of each row over its sequence's keys and values, the step's own rows included;
/// over the keys of `selection` alone, one list per KV head, where it is given.
struct Attend {
  algorithm::GqaSpec spec;
  SlotId key = -1, value = -1;
  WeightId sinks = kNoWeight;
  Tensor query, selection, out;
};
/// Latent attention of each row, over the tokens of `selection` where it is given.
struct AttendLatent {
  algorithm::MlaSpec spec;
  SlotId latent = -1, rope = -1;  ///< rope is absent where spec.rope_dim is 0
  WeightId key_up = kNoWeight;    ///< [H * dn, c], or [H * c, dn] where transposed
  WeightId value_up = kNoWeight;  ///< [H * dv, c]
  bool key_up_transposed = false;
  Tensor query, selection, out;
};
/// Compressed sparse attention of each row over its window and its entries: all visible ones, or
/// those of `selection`. The output still carries the rotation of its values.
struct AttendCompressed {
  algorithm::CompressedSparseSpec spec;
  SlotId rows = -1, entries = -1;
  WeightId sinks = kNoWeight;
  Tensor query, selection, out;
};
/// What each row attends to, chosen by its index query among index keys: tokens or pools (DSA),
/// blocks per KV head (MSA), entries. A list is its length and then its indices, ascending, as
/// whole numbers: `out` [T, lists * (1 + limit)], where MSA has one list of keys per KV head.
struct Select {
  std::variant<algorithm::DsaSpec, algorithm::MsaSpec, algorithm::CompressedSparseSpec> rule;
  SlotId keys = -1;
  Tensor query, weights, out;  ///< weights [T, index heads]; absent for MSA
};
/// Takes each row's value and gate into the frontier; a window that closes becomes a row of `rows`,
/// normed and turned as `entry` says, or as it was pooled.
struct Compress {
  algorithm::CompressorSpec spec;
  std::optional<algorithm::CompressedSparseSpec> entry;
  SlotId rows = -1, frontier = -1;
  WeightId bias = kNoWeight;  ///< [ratio, channels]
  WeightId norm = kNoWeight;  ///< [width], where `entry` is given
  Tensor value, gate;
};
/// A recurrent mixer, from its projections to its gated heads: short convolution, delta rule, norm.
/// `channels` and `convolutions` are one tensor and weight, or three (q, k, v) that follow each
/// other.
struct Recur {
  std::variant<algorithm::GatedDeltaNetSpec, algorithm::KdaSpec> spec;
  SlotId matrix = -1, history = -1;  ///< history is absent for a kernel of one
  std::vector<WeightId> convolutions;
  WeightId rate = kNoWeight, dt_bias = kNoWeight, norm = kNoWeight;
  std::vector<Tensor> channels;
  Tensor decay, beta, gate, out;  ///< decay: alpha [T, H] of Gated DeltaNet, forget of KDA
};
/// out = in * sigmoid(gate); a gate narrower than the row has one number for each of as many equal
/// runs of it (heads), a gate of width 1 one for the whole row.
struct Gate {
  Tensor in, gate, out;
};
/// out[i] = activation(gate[i], up[up_begin + i]).
struct Activate {
  algorithm::ActivationSpec spec;
  std::uint32_t up_begin = 0;
  Tensor gate, up, out;
};
/// The dense feed-forward block; `gate` is absent in an ungated one. `hidden` [T, F], what `down`
/// reads, is written where somebody wants to see it.
struct Mlp {
  algorithm::MlpSpec spec;
  WeightId gate = kNoWeight, up = kNoWeight, down = kNoWeight;
  WeightId gate_bias = kNoWeight, up_bias = kNoWeight, down_bias = kNoWeight;
  Tensor in, out, hidden;
};
/// Chooses experts from a router's logits [T, E]: ids [T, k], whole numbers in rank order, and
/// weights [T, k].
struct Route {
  algorithm::RoutingSpec spec;
  WeightId correction = kNoWeight, expert_scale = kNoWeight;  ///< vectors [E]
  WeightId hash_table = kNoWeight;                            ///< a table [V, k]
  Tensor logits, ids, weights;
};
/// The chosen experts of each row, summed by weight in ascending id. Weights are stacks:
/// gate and up [E * F, D], down [E * D, F], biases [E, F] and [E, D]. `hidden` [T, k * F], in rank
/// order, is written where somebody wants to see it.
struct Experts {
  algorithm::MlpSpec spec;  ///< of one expert
  std::uint32_t experts = 0;
  bool weigh_inputs = false;
  WeightId gate = kNoWeight, up = kNoWeight, down = kNoWeight;
  WeightId gate_bias = kNoWeight, up_bias = kNoWeight, down_bias = kNoWeight;
  Tensor in, ids, weights, out, hidden;
};
/// out = (a + b * b_scale) * out_scale.
struct Add {
  Tensor a, b, out;
  float b_scale = 1.f, out_scale = 1.f;
};
/// Hyper-connections. Enter: every stream is the embedding. Read: the sublayer's input and the
/// coefficients of this row. Write: the streams behind the sublayer. Leave: one row again, by
/// learned weights or, without, the mean.
struct StreamsEnter {
  algorithm::HyperConnectionSpec spec;
  Tensor in, out;
};
struct StreamsRead {
  algorithm::HyperConnectionSpec spec;
  WeightId fn = kNoWeight, base = kNoWeight, scale = kNoWeight;
  Tensor in, out, coefficients;
};
struct StreamsWrite {
  algorithm::HyperConnectionSpec spec;
  Tensor in, coefficients, branch, out;
};
struct StreamsLeave {
  algorithm::HyperConnectionSpec spec;
  WeightId fn = kNoWeight, base = kNoWeight, scale = kNoWeight;
  Tensor in, out;
};
/// Attention residual: out = the mix of `blocks`, oldest first, and `current`.
struct MixResidual {
  algorithm::AttnResSpec spec;
  WeightId norm = kNoWeight, projection = kNoWeight;
  std::vector<Tensor> blocks;
  Tensor current, out;
};
/// logits [rows that asked, V] = softcap((in W^T + b) * scale).
struct Head {
  WeightId weight = kNoWeight, bias = kNoWeight;
  float scale = 1.f, softcap = 0.f;
  Tensor in;
};

using Operation = std::variant<Embed, Norm, Project, ProjectGroups, Rotate, Store, Attend,
                               AttendLatent, AttendCompressed, Select, Compress, Recur, Gate,
                               Activate, Mlp, Route, Experts, Add, StreamsEnter, StreamsRead,
                               StreamsWrite, StreamsLeave, MixResidual, Head, Receive>;

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
  Tensor handed_on;                    ///< what a draft block behind it reads, if there is one
  bool whole_prompts = false;          ///< rows look ahead: a sequence must come in one step

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
  std::span<const float> received = {};                ///< [T, W] where the program has a Receive
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
  std::uint32_t max_rows = 512;      ///< the largest step
  std::uint32_t max_logit_rows = 0;  ///< rows of a step that want logits at most; 0: all of them
  std::span<Observer* const> observers;
};

/// How arithmetic may differ from the contract's f32.
enum class Numerics : std::uint8_t {
  kFast,    ///< activations may be rounded to int8 per group, entered ones to bf16
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
