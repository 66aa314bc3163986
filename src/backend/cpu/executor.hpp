// SPDX-License-Identifier: Apache-2.0
// Executor: one operation of a program, planned. Made when a program is prepared, with everything
// that it will need; run once per step. One class an operation, in the files *_executor.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "backend/cpu/context.hpp"

namespace lemma::cpu {

class Executor {
 public:
  virtual ~Executor() = default;
  /// Computes the operation for all rows of the context's step.
  virtual void run(Context& context) noexcept = 0;
  /// What `lemma show` prints after the backend's name, such as "q8_0 x int8"; may be empty.
  virtual std::string implementation() const { return {}; }
  virtual std::string format() const { return {}; }  ///< of the weights: "Q8_0"
  virtual std::size_t scratch_bytes() const noexcept { return 0; }
  /// Whether the reference computes it; `lemma show` then prints no kernels of this backend.
  virtual bool borrowed() const noexcept { return false; }
  /// The tensor that it reads through Context::quantized(), if any: what makes that tensor then
  /// rounds it too.
  virtual backend::Tensor reads_quantized() const noexcept { return {}; }
};

/// What an operation says that attends to entered rows in whole numbers.
inline constexpr const char* kWholeImplementation = "13-bit whole numbers entered, f32 generated";
inline bool is_entered(const backend::Segment& segment) noexcept {
  return segment.token_class == state::TokenClass::kEntered;
}

/// An operation of which each row depends on the same row of its inputs alone. Several that follow
/// each other go through the rows together: a thread takes a few rows through all of them.
class RowExecutor : public Executor {
 public:
  void run(Context& context) noexcept final {
    context.each_rows([&](std::size_t begin, std::size_t end) { run_rows(context, begin, end); });
    context.settle({});
  }
  /// Computes rows [begin, end). What fails is marked with the tensor where it was seen.
  virtual void run_rows(Context& context, std::size_t begin, std::size_t end) noexcept = 0;

  /// Where a run of so many columns depends on the same columns of its one input alone, such as a
  /// head: their number. 0: it takes whole rows.
  virtual std::size_t column_unit() const noexcept { return 0; }
  /// Computes columns [first, first + count) of rows [begin, end), whole units.
  virtual void run_columns(Context&, std::size_t /*begin*/, std::size_t /*end*/,
                           std::size_t /*first*/, std::size_t /*count*/) noexcept {}
};

/// An operation that runs as phases of one region, to which the operations behind it can add one.
class PhasedExecutor : public Executor {
 public:
  using Phases = std::array<Phase, Context::kMaxPhases>;

  void run(Context& context) noexcept final {
    Phases phases;
    const std::size_t count = begin(context, phases);
    context.each({phases.data(), count}, [&](std::size_t phase, std::size_t item, int thread) {
      run_item(context, phase, item, thread);
    });
    finish(context);
  }
  /// Gets ready for the context's step; returns how many phases it has written, at most one less
  /// than there is room for.
  virtual std::size_t begin(Context& context, Phases& phases) noexcept = 0;
  virtual void run_item(Context& context, std::size_t phase, std::size_t item,
                        int thread) noexcept = 0;
  virtual void finish(Context&) noexcept {}

  /// Takes over row operations that follow: each works on columns of what this one makes, and is
  /// done by whoever makes the last of them. False, and nothing is taken, where it cannot.
  struct Follower {
    RowExecutor* executor = nullptr;
    backend::Tensor in, out;  ///< out is absent where it only stores
  };
  virtual bool follow(std::span<const Follower>) { return false; }
};

// A maker an operation: `context` outlives the executor and already holds all weights.
std::unique_ptr<Executor> plan(const backend::Embed& op, const Context& context);
std::unique_ptr<Executor> plan(const backend::Receive& op, const Context& context);
std::unique_ptr<Executor> plan(const backend::Norm& op, const Context& context);
std::unique_ptr<Executor> plan(const backend::Project& op, const Context& context);
std::unique_ptr<Executor> plan(const backend::Rotate& op, const Context& context);
std::unique_ptr<Executor> plan(const backend::Store& op, const Context& context);
std::unique_ptr<Executor> plan(const backend::Attend& op, const Context& context);
std::unique_ptr<Executor> plan(const backend::AttendLatent& op, const Context& context);
std::unique_ptr<Executor> plan(const backend::AttendCompressed& op, const Context& context);
std::unique_ptr<Executor> plan(const backend::Select& op, const Context& context);
std::unique_ptr<Executor> plan(const backend::Compress& op, const Context& context);
std::unique_ptr<Executor> plan(const backend::Recur& op, const Context& context);
std::unique_ptr<Executor> plan(const backend::StreamsEnter& op, const Context& context);
std::unique_ptr<Executor> plan(const backend::StreamsRead& op, const Context& context);
std::unique_ptr<Executor> plan(const backend::StreamsWrite& op, const Context& context);
std::unique_ptr<Executor> plan(const backend::StreamsLeave& op, const Context& context);
std::unique_ptr<Executor> plan(const backend::MixResidual& op, const Context& context);
std::unique_ptr<Executor> plan(const backend::Gate& op, const Context& context);
std::unique_ptr<Executor> plan(const backend::Mlp& op, const Context& context);
std::unique_ptr<Executor> plan(const backend::Activate& op, const Context& context);
std::unique_ptr<Executor> plan(const backend::ProjectGroups& op, const Context& context);
std::unique_ptr<Executor> plan(const backend::Route& op, const Context& context);
std::unique_ptr<Executor> plan(const backend::Experts& op, const Context& context);
std::unique_ptr<Executor> plan(const backend::Add& op, const Context& context);

/// Runs an operation as the reference does, over the context's tensors, state and weights: right,
/// on one thread, and slow.
std::unique_ptr<Executor> borrow(backend::Operation operation, const Context& context);
/// What has no executor of this backend is borrowed.
template <typename Operation>
std::unique_ptr<Executor> plan(const Operation& op, const Context& context) {
  return borrow(op, context);
}

/// The head keeps its logits; the executable hands them out.
class HeadExecutor : public Executor {
 public:
  /// Logits [V] of the i-th row that asked for them.
  virtual std::span<const float> logits(std::size_t i) const noexcept = 0;
};
std::unique_ptr<HeadExecutor> plan(const backend::Head& op, const Context& context);

}  // namespace lemma::cpu
