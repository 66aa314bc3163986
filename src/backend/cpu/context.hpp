// SPDX-License-Identifier: Apache-2.0
// Context: what the executors of one program share while a step runs: kernels and threads, the
// tensors' memory, the state, the step's rope angles, and the int8 form of rows, which is made once
// per tensor and step however many products read it. Everything is allocated when it is made;
// nothing is while a step runs. Belongs to one step loop.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <typeindex>
#include <typeinfo>
#include <utility>
#include <vector>

#include "algorithm/rope.hpp"
#include "backend/backend.hpp"
#include "backend/cpu/kernels/kernels.hpp"
#include "backend/cpu/weight.hpp"
#include "backend/host_state.hpp"
#include "backend/tensor_arena.hpp"
#include "base/function_ref.hpp"
#include "base/thread_pool.hpp"

namespace lemma::cpu {

/// Consecutive rows of one token class.
struct ClassRun {
  std::size_t first = 0, rows = 0;
  std::size_t token_class = 0;
};

/// Rows that enter a product; the int8 form is there only if a weight asks for it.
struct ProductInput {
  const float* x = nullptr;  ///< [rows, cols]
  QuantizedRows quantized;   ///< [rows, cols]
  std::span<const ClassRun> runs;
  std::size_t x_stride = 0;  ///< floats from one row of `x` to the next; 0: cols
};

/// Rows of one segment that attend together.
struct RowBlock {
  std::uint32_t segment = 0;
  std::uint32_t first = 0, rows = 0;  ///< within the segment
};

/// Cuts each segment of a step into blocks of at most `rows` rows; returns how many. `out` has room
/// for one a row.
std::size_t cut_rows(const backend::Step& step, std::uint32_t rows,
                     std::span<RowBlock> out) noexcept;

/// A part of a parallel region: items that any thread may compute, in any order.
struct Phase {
  std::size_t items = 0;
  std::size_t work = 0;  ///< multiply-adds of all items together
};

/// Counts at several places how many parts of the work there are done: whoever does the last goes
/// on with it, and finds what the others wrote. The place is then as before the first.
class Meetings {
 public:
  Meetings() = default;
  explicit Meetings(std::size_t places) : done_(places) {}
  bool last(std::size_t place, std::size_t done, std::size_t all) noexcept {
    const auto more = static_cast<std::uint32_t>(done);
    if (done_[place].fetch_add(more, std::memory_order_acq_rel) + more != all) return false;
    done_[place].store(0, std::memory_order_relaxed);
    return true;
  }
  std::size_t size() const noexcept { return done_.size(); }

 private:
  std::vector<std::atomic<std::uint32_t>> done_;
};

/// Memory for the int8 form of [max_rows, cols], for their bf16 form where `kernels` read it, and
/// for the whole numbers of [max_rows, whole_cols].
class QuantizedBuffer {
 public:
  QuantizedBuffer() = default;
  QuantizedBuffer(const KernelTable& kernels, std::size_t max_rows, std::size_t max_cols,
                  std::size_t whole_cols = 0);
  /// The part for rows of `cols` elements, beginning at column `col` of row `row`; that of whole
  /// numbers at the row.
  QuantizedRows rows(std::size_t cols, std::size_t row = 0, std::size_t col = 0) const noexcept;
  bool empty() const noexcept { return memory_.empty(); }
  std::size_t bytes() const noexcept { return memory_.size(); }

 private:
  base::AlignedBuffer memory_;
  QuantizedRows start_;
};

class Context {
 public:
  static constexpr std::size_t kRowBlock = 8;   ///< rows that share decoded keys and values
  static constexpr std::size_t kFewRows = 4;    ///< fewer are not worth a barrier for cheap work
  static constexpr std::size_t kRowGrain = 4;   ///< rows that a thread takes at a time
  static constexpr std::size_t kMaxPhases = 5;  ///< of a region

  /// `until`: see backend::TensorArena.
  Context(const KernelTable& table, base::ThreadPool& threads, const std::deque<Weight>& held,
          const backend::Program& recorded, backend::HostState& pages, std::uint32_t rows,
          std::uint32_t logit_rows, std::span<const std::size_t> until = {});

  const KernelTable& kernels;
  base::ThreadPool& pool;
  const std::deque<Weight>& weights;
  const backend::Program& program;
  backend::HostState& state;
  backend::TensorArena arena;
  const std::uint32_t max_rows;        ///< of a step
  const std::uint32_t max_logit_rows;  ///< of a step that want logits

  // The running step.
  void begin(const backend::Step& step) noexcept;
  const backend::Step& step() const noexcept { return *step_; }
  std::size_t rows() const noexcept { return step_->tokens.size(); }
  /// The step's rows, cut where the token class changes the kernels.
  std::span<const ClassRun> runs() const noexcept { return {runs_.data(), run_count_}; }
  std::span<const RowBlock> row_blocks() const noexcept { return {blocks_.data(), block_count_}; }
  std::size_t class_of(std::size_t row) const noexcept;

  const backend::Segment& segment_of(std::size_t row) const noexcept {
    return step_->segments[segment_of_[row]];
  }
  /// The row's kv index.
  std::uint32_t position_of(std::size_t row) const noexcept {
    const backend::Segment& segment = segment_of(row);
    return segment.past + static_cast<std::uint32_t>(row) - segment.first_row;
  }
  std::span<const float> cos(std::uint32_t rope, std::size_t row) const noexcept;
  std::span<const float> sin(std::uint32_t rope, std::size_t row) const noexcept;

  /// Whether the weight's products read rows that were rounded before.
  bool reads_rounded(backend::WeightId id) const noexcept;
  /// Whether any row of the running step was entered.
  bool enters() const noexcept { return enters_; }
  /// Whether rows of `tensor` are rounded in the running step: to whole numbers only entered ones.
  bool rounds(backend::Tensor tensor) const noexcept;
  /// Rounds rows [begin, end) of `tensor` to the forms that its products read.
  void round_rows(backend::Tensor tensor, std::size_t begin, std::size_t end,
                  const QuantizedBuffer& to) noexcept;
  /// The rows of `tensor` in int8 form, made at the first call of a step.
  QuantizedRows quantized(backend::Tensor tensor) noexcept;
  /// The buffer that holds them already, or null.
  const QuantizedBuffer* find_quantized(backend::Tensor tensor) const noexcept;
  /// Promises that the rows of `tensor` are about to be rounded to the returned buffer.
  const QuantizedBuffer& begin_quantized(backend::Tensor tensor) noexcept;
  /// Rounds rows [rows, cols] at `x`.
  void quantize(const float* x, std::size_t rows, std::size_t cols,
                const QuantizedBuffer& to) noexcept;

  /// Calls body(item, thread) for each item of [0, n), each thread taking the next as it is free.
  /// `work` is the number of multiply-adds of all items together: a little stays on this thread.
  void each(std::size_t n, std::size_t work,
            base::FunctionRef<void(std::size_t, int)> body) noexcept;
  /// Calls body(phase, item, thread) for the items of all phases in one region; the items of a
  /// phase begin when all of the phase before are done. A thread takes consecutive items, so that
  /// it reads weights in the order in which they lie, and when it has none left half of another
  /// one's.
  void each(std::span<const Phase> phases,
            base::FunctionRef<void(std::size_t, std::size_t, int)> body) noexcept;
  /// Calls body(begin, end) over the step's rows; a few rows stay on the calling thread.
  void each_rows(base::FunctionRef<void(std::size_t, std::size_t)> body) noexcept;

  /// Decodes elements [begin, begin + n) of a row of the state to `out`. In grouped formats both
  /// are multiples of the slot's group.
  void decode_row(backend::SlotId slot, const state::Sequence& sequence, std::uint32_t position,
                  std::size_t begin, std::size_t n, float* out) noexcept;
  /// The same for rows [first, first + count) of the slot, one for each `ratio` positions, to
  /// places `stride` floats apart.
  void decode_rows(backend::SlotId slot, const state::Sequence& sequence, std::uint32_t first,
                   std::size_t count, std::size_t begin, std::size_t n, float* out,
                   std::size_t stride) noexcept;

  /// Notes that `row` failed; may be called by any thread.
  void mark(std::size_t row) noexcept {
    std::atomic_ref(failed_[row]).store(kSomewhere, std::memory_order_relaxed);
  }
  /// Notes that it failed at `tensor`. Of several marks the one of the earliest tensor stays.
  void mark(std::size_t row, backend::Tensor tensor) noexcept {
    const std::atomic_ref failed(failed_[row]);
    std::int32_t found = failed.load(std::memory_order_relaxed);
    while ((found == kNowhere || found > tensor.id) &&
           !failed.compare_exchange_weak(found, tensor.id, std::memory_order_relaxed)) {
    }
  }
  /// Turns marks into results: the segments of marked rows failed where the mark says, or else at
  /// `tensor`.
  void settle(backend::Tensor tensor) noexcept;
  std::span<const backend::SegmentResult> results() const noexcept { return results_; }

  /// Memory that executors share when they ask for the same kind in the same shape, since one runs
  /// after the other. T has a constructor T(context, shape) and bytes().
  template <typename T>
  T& shared(std::vector<std::size_t> shape) const {
    Shared& entry = shared_[{std::type_index(typeid(T)), shape}];
    if (!entry.memory) {
      auto made = std::make_shared<T>(*this, shape);
      entry = {made, made->bytes()};
    }
    return *static_cast<T*>(entry.memory.get());
  }

  std::span<const float> vector(backend::WeightId id) const noexcept;
  const Weight& weight(backend::WeightId id) const noexcept {
    return weights[static_cast<std::size_t>(id)];
  }
  std::size_t scratch_bytes() const noexcept;

 private:
  struct Memo {
    QuantizedBuffer buffer;
    std::int32_t tensor = -1;
  };

  struct Shared {
    std::shared_ptr<void> memory;
    std::size_t bytes = 0;
  };

  /// A thread's consecutive items of a phase, [begin, end) in the upper and lower half.
  struct alignas(64) Share {
    std::atomic<std::uint64_t> range{0};
  };
  /// Items of a phase that are done.
  struct alignas(64) Progress {
    std::atomic<std::size_t> done{0};
  };

  void note_forms();
  void turn_angles() noexcept;
  Share& share(std::size_t phase, std::size_t thread) noexcept;
  std::size_t take(std::size_t phase, std::size_t thread) noexcept;
  void await_before(std::span<const Phase> phases, std::size_t phase) const noexcept;
  void decode_elements(const state::SlotPlace& place, const std::byte* row, std::size_t begin,
                       std::size_t n, float* out) const noexcept;

  const backend::Step* step_ = nullptr;
  std::vector<backend::SegmentResult> results_;
  std::vector<std::uint32_t> segment_of_;  ///< by row
  std::vector<std::int32_t> failed_;       ///< by row: a tensor's id, or one of these
  static constexpr std::int32_t kNowhere = -1, kSomewhere = -2;
  std::vector<ClassRun> runs_;
  std::vector<RowBlock> blocks_;
  std::size_t run_count_ = 0, block_count_ = 0;
  bool classes_differ_ = false, enters_ = false;
  /// What products round a tensor's rows to, by id: to int8 (and bf16), to whole numbers.
  struct Forms {
    bool int8 = false, whole = false;
  };
  std::vector<Forms> forms_;
  std::vector<algorithm::RopeTable> ropes_;
  std::vector<std::vector<float>> cos_, sin_;  ///< by rope: [max_rows, R/2]
  std::array<Memo, 2> memos_;  ///< two: parallel branches read the same rows around other products
  std::size_t next_memo_ = 0;
  std::vector<Share> shares_;  ///< [kMaxPhases, threads] of the running region
  std::array<Progress, kMaxPhases> progress_;
  mutable std::map<std::pair<std::type_index, std::vector<std::size_t>>, Shared> shared_;
};

}  // namespace lemma::cpu
