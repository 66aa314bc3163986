// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/context.hpp"

#include <algorithm>
#include <cstring>
#include <thread>

#include "backend/cpu/kernels/project_whole.hpp"
#include "base/check.hpp"
#include "base/pause.hpp"

namespace lemma::cpu {
namespace {

/// Multiply-adds that one thread does in about the time that a barrier may cost: some 5 us at 10 to
/// 20 thousand in a microsecond. (On a busy machine a barrier costs far more.)
constexpr std::size_t kLittleWork = std::size_t{1} << 16;

constexpr std::size_t kNoItem = ~std::size_t{0};

/// Whether the weight's products read rows in int8, or bf16 beside it.
bool reads_int8(const KernelTable& kernels, const Weight& weight) noexcept {
  if (weight.product == Product::kInt8) return true;
  return kernels.bf16_rows && weight.product == Product::kFloat &&
         weight.kernel != WeightKernel::kF32 && weight.matrix.cols % kGroup == 0;
}

/// Calls body(weight, input) for the products of a program that share rounded rows.
template <typename Body>
void each_product(const backend::Program& program, const Body& body) {
  for (const backend::Operation& operation : program.operations) {
    if (const auto* project = std::get_if<backend::Project>(&operation)) {
      for (const auto& output : project->outputs) body(output.weight, project->in);
    } else if (const auto* mlp = std::get_if<backend::Mlp>(&operation)) {
      body(mlp->gate, mlp->in);
      body(mlp->up, mlp->in);
    } else if (const auto* experts = std::get_if<backend::Experts>(&operation)) {
      body(experts->gate, experts->in);
      body(experts->up, experts->in);
    }
  }
}

/// Whether the class of a token changes how any of the weights is multiplied.
bool token_classes_differ(const KernelTable& kernels, const std::deque<Weight>& weights) noexcept {
  return std::any_of(weights.begin(), weights.end(), [&](const Weight& weight) {
    const auto& by_class = kernels.project[static_cast<std::size_t>(weight.kernel)];
    const bool packed = weight.product == Product::kFloat || weight.product == Product::kInt8;
    return packed && by_class[0] != by_class[1];
  });
}

}  // namespace

QuantizedBuffer::QuantizedBuffer(const KernelTable& kernels, std::size_t max_rows,
                                 std::size_t max_cols, std::size_t whole_cols) {
  const std::size_t codes = (max_rows * max_cols + 63) / 64 * 64;
  const std::size_t groups = max_rows * (max_cols / kGroup);
  const std::size_t all = codes + groups * (2 * sizeof(float) + 3 * sizeof(std::int32_t));
  const std::size_t halves = (all + 63) / 64 * 64;
  const std::size_t bf16 = kernels.bf16_rows ? max_rows * max_cols * sizeof(std::uint16_t) : 0;
  const std::size_t lines = (halves + bf16 + 63) / 64 * 64;
  const std::size_t whole = whole_cols > 0 ? max_rows * whole_row_bytes(whole_cols) : 0;
  memory_ = base::AlignedBuffer::uninitialized(whole > 0  ? lines + whole
                                               : bf16 > 0 ? halves + bf16
                                                          : all);
  if (whole > 0) start_.whole = memory_.data() + lines;
  if (bf16 > 0) start_.bf16 = reinterpret_cast<std::uint16_t*>(memory_.data() + halves);
  start_.codes = reinterpret_cast<std::int8_t*>(memory_.data());
  start_.scales = reinterpret_cast<float*>(memory_.data() + codes);
  start_.scaled_sums = start_.scales + groups;
  start_.sums = reinterpret_cast<std::int32_t*>(start_.scaled_sums + groups);
}

QuantizedRows QuantizedBuffer::rows(std::size_t cols, std::size_t row,
                                    std::size_t col) const noexcept {
  const std::size_t group = row * (cols / kGroup) + col / kGroup;
  return {start_.codes + row * cols + col,
          start_.scales + group,
          start_.scaled_sums + group,
          start_.sums + group * 3,
          start_.bf16 == nullptr ? nullptr : start_.bf16 + row * cols + col,
          start_.whole == nullptr ? nullptr : start_.whole + row * whole_row_bytes(cols)};
}

std::size_t cut_rows(const backend::Step& step, std::uint32_t rows,
                     std::span<RowBlock> out) noexcept {
  std::size_t count = 0;
  for (std::size_t s = 0; s < step.segments.size(); ++s) {
    const std::uint32_t all = step.segments[s].rows;
    for (std::uint32_t first = 0; first < all; first += rows) {
      out[count++] = {static_cast<std::uint32_t>(s), first, std::min(rows, all - first)};
    }
  }
  return count;
}

Context::Context(const KernelTable& table, base::ThreadPool& threads,
                 const std::deque<Weight>& held, const backend::Program& recorded,
                 backend::HostState& pages, std::uint32_t rows, std::uint32_t logit_rows,
                 std::span<const std::size_t> until)
    : kernels(table),
      pool(threads),
      weights(held),
      program(recorded),
      state(pages),
      arena(recorded, rows, until),
      max_rows(rows),
      max_logit_rows(logit_rows),
      segment_of_(rows),
      failed_(rows, kNowhere),
      runs_(rows),
      blocks_(rows),
      classes_differ_(token_classes_differ(table, held)),
      shares_(kMaxPhases * static_cast<std::size_t>(threads.threads())) {
  results_.reserve(rows);
  for (const algorithm::RopeSpec& rope : recorded.ropes) {
    ropes_.emplace_back(rope);
    cos_.emplace_back(std::size_t{rows} * (rope.rotary_dim / 2));
    sin_.emplace_back(std::size_t{rows} * (rope.rotary_dim / 2));
  }
  note_forms();
}

/// Which forms the products read, and memory for the widest rows of each.
void Context::note_forms() {
  forms_.resize(program.tensors.size());
  std::size_t widest = 0, widest_whole = 0;
  each_product(program, [&](backend::WeightId id, backend::Tensor in) {
    if (id == backend::kNoWeight) return;
    const Weight& read = weight(id);
    Forms& forms = forms_[static_cast<std::size_t>(in.id)];
    if (reads_int8(kernels, read)) {
      forms.int8 = true;
      widest = std::max<std::size_t>(widest, read.matrix.cols);
    }
    if (read.entered == EnteredRows::kWhole) {
      forms.whole = true;
      widest_whole = std::max<std::size_t>(widest_whole, read.matrix.cols);
    }
  });
  for (Memo& memo : memos_) memo.buffer = QuantizedBuffer(kernels, max_rows, widest, widest_whole);
}

bool Context::reads_rounded(backend::WeightId id) const noexcept {
  return reads_int8(kernels, weight(id)) || weight(id).entered == EnteredRows::kWhole;
}

bool Context::rounds(backend::Tensor tensor) const noexcept {
  const Forms& forms = forms_[static_cast<std::size_t>(tensor.id)];
  return forms.int8 || (forms.whole && enters_);
}

void Context::round_rows(backend::Tensor tensor, std::size_t begin, std::size_t end,
                         const QuantizedBuffer& to) noexcept {
  const Forms& forms = forms_[static_cast<std::size_t>(tensor.id)];
  const std::size_t cols = tensor.width;
  // Groups of int8 do not see row ends, so consecutive rows are one long row.
  if (forms.int8)
    kernels.quantize(arena.row(tensor, begin), (end - begin) * cols, to.rows(cols, begin));
  if (!forms.whole || !enters_) return;
  for (std::size_t r = begin; r < end; ++r)
    kernels.round_whole(arena.row(tensor, r), cols, to.rows(cols, r).whole);
}

void Context::begin(const backend::Step& step) noexcept {
  LEMMA_CHECK(step.tokens.size() <= max_rows && step.segments.size() <= max_rows);
  LEMMA_CHECK(step.logit_rows.size() <= max_logit_rows);
  step_ = &step;
  results_.assign(step.segments.size(), {});
  std::fill_n(failed_.begin(), step.tokens.size(), kNowhere);
  for (Memo& memo : memos_) memo.tensor = -1;
  run_count_ = 0;
  enters_ = false;
  block_count_ = cut_rows(step, kRowBlock, blocks_);
  for (std::size_t s = 0; s < step.segments.size(); ++s) {
    const backend::Segment& segment = step.segments[s];
    std::fill_n(segment_of_.begin() + segment.first_row, segment.rows,
                static_cast<std::uint32_t>(s));
    enters_ |= segment.token_class == state::TokenClass::kEntered;
    const std::size_t token_class =
        classes_differ_ ? static_cast<std::size_t>(segment.token_class) : 0;
    if (run_count_ > 0 && runs_[run_count_ - 1].token_class == token_class) {
      runs_[run_count_ - 1].rows += segment.rows;
    } else if (segment.rows > 0) {
      runs_[run_count_++] = {segment.first_row, segment.rows, token_class};
    }
  }
  turn_angles();
}

std::size_t Context::class_of(std::size_t row) const noexcept {
  return classes_differ_ ? static_cast<std::size_t>(segment_of(row).token_class) : 0;
}

void Context::turn_angles() noexcept {
  if (ropes_.empty()) return;
  each_rows([&](std::size_t begin, std::size_t end) {
    for (std::size_t rope = 0; rope < ropes_.size(); ++rope) {
      const std::size_t pairs = ropes_[rope].inv_freq().size();
      for (std::size_t r = begin; r < end; ++r) {
        ropes_[rope].angles(step_->positions[r], {cos_[rope].data() + r * pairs, pairs},
                            {sin_[rope].data() + r * pairs, pairs});
      }
    }
  });
}

std::span<const float> Context::cos(std::uint32_t rope, std::size_t row) const noexcept {
  const std::size_t pairs = ropes_[rope].inv_freq().size();
  return {cos_[rope].data() + row * pairs, pairs};
}

std::span<const float> Context::sin(std::uint32_t rope, std::size_t row) const noexcept {
  const std::size_t pairs = ropes_[rope].inv_freq().size();
  return {sin_[rope].data() + row * pairs, pairs};
}

const QuantizedBuffer* Context::find_quantized(backend::Tensor tensor) const noexcept {
  for (const Memo& memo : memos_) {
    if (memo.tensor == tensor.id) return &memo.buffer;
  }
  return nullptr;
}

QuantizedRows Context::quantized(backend::Tensor tensor) noexcept {
  if (const QuantizedBuffer* found = find_quantized(tensor)) return found->rows(tensor.width);
  const QuantizedBuffer& buffer = begin_quantized(tensor);
  each_rows([&](std::size_t begin, std::size_t end) { round_rows(tensor, begin, end, buffer); });
  return buffer.rows(tensor.width);
}

const QuantizedBuffer& Context::begin_quantized(backend::Tensor tensor) noexcept {
  Memo& memo = memos_[next_memo_];
  next_memo_ = (next_memo_ + 1) % memos_.size();
  memo.tensor = tensor.id;
  return memo.buffer;
}

void Context::quantize(const float* x, std::size_t count, std::size_t cols,
                       const QuantizedBuffer& to) noexcept {
  const auto some = [&](std::size_t begin, std::size_t end) {
    // Groups do not see row ends, so consecutive rows are one long row.
    kernels.quantize(x + begin * cols, (end - begin) * cols, to.rows(cols, begin));
  };
  if (count < kFewRows) return some(0, count);
  pool.parallel_for(count, kRowGrain, some);
}

void Context::each(std::size_t n, std::size_t work,
                   base::FunctionRef<void(std::size_t, int)> body) noexcept {
  if (n == 0) return;
  std::atomic<std::size_t> next{0};
  const auto take = [&](int thread) {
    for (std::size_t i = next.fetch_add(1, std::memory_order_relaxed); i < n;
         i = next.fetch_add(1, std::memory_order_relaxed)) {
      body(i, thread);
    }
  };
  if (n == 1 || work <= kLittleWork) return take(0);
  pool.run(take);
}

Context::Share& Context::share(std::size_t phase, std::size_t thread) noexcept {
  return shares_[phase * static_cast<std::size_t>(pool.threads()) + thread];
}

namespace {
constexpr std::uint64_t pack(std::uint64_t begin, std::uint64_t end) noexcept {
  return begin << 32 | end;
}
constexpr std::size_t begin_of(std::uint64_t range) noexcept {
  return range >> 32;
}
constexpr std::size_t end_of(std::uint64_t range) noexcept {
  return range & 0xffffffffu;
}
}  // namespace

/// The next item of a thread's share, or of the upper half of another's, which becomes its own;
/// kNoItem if nobody has one to give. No range ever comes back, so a compared value is the value.
std::size_t Context::take(std::size_t phase, std::size_t thread) noexcept {
  std::atomic<std::uint64_t>& own = share(phase, thread).range;
  std::uint64_t range = own.load(std::memory_order_relaxed);
  while (begin_of(range) < end_of(range)) {
    const std::uint64_t rest = pack(begin_of(range) + 1, end_of(range));
    if (own.compare_exchange_weak(range, rest, std::memory_order_relaxed)) return begin_of(range);
  }
  const auto threads = static_cast<std::size_t>(pool.threads());
  for (std::size_t i = 1; i < threads; ++i) {
    std::atomic<std::uint64_t>& other = share(phase, (thread + i) % threads).range;
    range = other.load(std::memory_order_relaxed);
    while (begin_of(range) < end_of(range)) {
      const std::size_t end = end_of(range), half = (end - begin_of(range) + 1) / 2;
      const std::uint64_t rest = pack(begin_of(range), end - half);
      if (!other.compare_exchange_weak(range, rest, std::memory_order_relaxed)) continue;
      own.store(pack(end - half + 1, end), std::memory_order_relaxed);
      return end - half;
    }
  }
  return kNoItem;
}

/// Waits for the items of the last phase before `phase` that has any. Spins, since single items are
/// under way; then lets others run, since the thread that has one may have lost its processor.
void Context::await_before(std::span<const Phase> phases, std::size_t phase) const noexcept {
  constexpr int kSpins = 4000;
  while (phase > 0 && phases[phase - 1].items == 0) --phase;
  if (phase == 0) return;
  const std::size_t items = phases[phase - 1].items;
  const std::atomic<std::size_t>& done = progress_[phase - 1].done;
  for (int spin = 0; done.load(std::memory_order_acquire) != items; ++spin) {
    if (spin < kSpins) {
      base::pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void Context::each(std::span<const Phase> phases,
                   base::FunctionRef<void(std::size_t, std::size_t, int)> body) noexcept {
  LEMMA_CHECK(phases.size() <= kMaxPhases);
  const auto threads = static_cast<std::size_t>(pool.threads());
  std::size_t work = 0, items = 0;
  for (const Phase& phase : phases) {
    work += phase.work;
    items = std::max(items, phase.items);
  }
  if (items <= 1 || work <= kLittleWork || threads == 1) {
    for (std::size_t p = 0; p < phases.size(); ++p) {
      for (std::size_t i = 0; i < phases[p].items; ++i) body(p, i, 0);
    }
    return;
  }
  for (std::size_t p = 0; p < phases.size(); ++p) {
    progress_[p].done.store(0, std::memory_order_relaxed);
    for (std::size_t t = 0; t < threads; ++t) {
      share(p, t).range.store(
          pack(phases[p].items * t / threads, phases[p].items * (t + 1) / threads),
          std::memory_order_relaxed);
    }
  }
  pool.run([&](int thread) {
    for (std::size_t p = 0; p < phases.size(); ++p) {
      std::size_t done = 0;
      for (std::size_t item = take(p, static_cast<std::size_t>(thread)); item != kNoItem;
           item = take(p, static_cast<std::size_t>(thread))) {
        if (done == 0) await_before(phases, p);
        body(p, item, thread);
        ++done;
      }
      if (done > 0) progress_[p].done.fetch_add(done, std::memory_order_release);
    }
  });
}

void Context::each_rows(base::FunctionRef<void(std::size_t, std::size_t)> body) noexcept {
  if (rows() < kFewRows) return body(0, rows());
  pool.parallel_for(rows(), kRowGrain, body);
}

void Context::decode_row(backend::SlotId slot, const state::Sequence& sequence,
                         std::uint32_t position, std::size_t begin, std::size_t n,
                         float* out) noexcept {
  decode_elements(state.layout().slots()[static_cast<std::size_t>(slot)],
                  state.row(slot, sequence, position), begin, n, out);
}

void Context::decode_rows(backend::SlotId slot, const state::Sequence& sequence,
                          std::uint32_t first, std::size_t count, std::size_t begin, std::size_t n,
                          float* out, std::size_t stride) noexcept {
  const state::SlotPlace& place = state.layout().slots()[static_cast<std::size_t>(slot)];
  const std::size_t page_rows = state.layout().options().page_size / place.slot.ratio;
  for (std::size_t done = 0; done < count;) {  // rows of a page lie side by side
    const std::size_t index = first + done;
    const std::size_t some = std::min(page_rows - index % page_rows, count - done);
    const std::byte* const rows =
        state.row(slot, sequence, static_cast<std::uint32_t>(index * place.slot.ratio));
    for (std::size_t i = 0; i < some; ++i) {
      decode_elements(place, rows + i * place.row_bytes, begin, n, out + (done + i) * stride);
    }
    done += some;
  }
}

void Context::decode_elements(const state::SlotPlace& place, const std::byte* row,
                              std::size_t begin, std::size_t n, float* out) const noexcept {
  const std::size_t group = place.slot.group;
  switch (place.format) {
    case algorithm::RowFormat::kF32:
      std::memcpy(out, row + begin * sizeof(float), n * sizeof(float));
      return;
    case algorithm::RowFormat::kF16:
      return kernels.decode_f16(row + begin * 2, n, out);
    case algorithm::RowFormat::kBF16:
      return kernels.decode_bf16(row + begin * 2, n, out);
    case algorithm::RowFormat::kQ8:
      return kernels.decode_q8(row + begin, row + place.slot.width + begin / group * 2, group, n,
                               out);
    case algorithm::RowFormat::kFp8:
    case algorithm::RowFormat::kFp4:
      return algorithm::decode_row(place.format, group, place.slot.width, row, begin, {out, n},
                                   place.slot.tail);
  }
}

void Context::settle(backend::Tensor tensor) noexcept {
  for (std::size_t r = 0; r < rows(); ++r) {
    if (failed_[r] == kNowhere) continue;
    const std::int32_t site = failed_[r] == kSomewhere ? tensor.id : failed_[r];
    failed_[r] = kNowhere;
    backend::SegmentResult& result = results_[segment_of_[r]];
    if (result.status == backend::SegmentStatus::kOk) {
      result = {backend::SegmentStatus::kNonFinite, site};
    }
  }
}

std::span<const float> Context::vector(backend::WeightId id) const noexcept {
  if (id == backend::kNoWeight) return {};
  return weight(id).vector;
}

std::size_t Context::scratch_bytes() const noexcept {
  std::size_t bytes = arena.bytes();
  for (const Memo& memo : memos_) bytes += memo.buffer.bytes();
  for (const auto& table : cos_) bytes += 2 * table.size() * sizeof(float);
  for (const auto& [key, entry] : shared_) bytes += entry.bytes;
  return bytes;
}

}  // namespace lemma::cpu
