// SPDX-License-Identifier: Apache-2.0
// The operations around matrix products: project and head. Threads take chunks of 64 outputs; a
// chunk covers all rows, so that a packed weight is read once however many rows there are. Where
// nobody has rounded the rows that a product reads, that is the first phase of its region.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string_view>
#include <vector>

#include "backend/cpu/executor.hpp"
#include "backend/cpu/linear.hpp"
#include "backend/cpu/rounding.hpp"
#include "base/check.hpp"

namespace lemma::cpu {
namespace {

void append_once(std::string& list, std::string_view item) {
  if (list.find(item) != std::string::npos) return;
  if (!list.empty()) list += ", ";
  list += item;
}

class ProjectExecutor final : public PhasedExecutor {
 public:
  ProjectExecutor(const backend::Project& op, const Context& context)
      : parts_(op.outputs.size()), rounding_(op.in, reads_rounded(op, context)) {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const auto& output = op.outputs[i];
      const Linear& linear = parts_[i].linear =
          Linear(context, output.weight, output.bias, op.clamp);
      LEMMA_CHECK(linear.outputs() == output.out.width && linear.cols() == op.in.width);
      parts_[i].out = output.out;
      work_ += linear.work(1);
    }
  }

  std::size_t begin(Context& context, Phases& phases) noexcept override {
    in_ = rounding_.begin(context);
    std::size_t count = 0;
    if (rounding_.pending()) phases[count++] = rounding_.phase(context);
    std::size_t items = 0;
    for (const Part& part : parts_) items += part.linear.chunks();
    phases[count++] = {items, context.rows() * work_};
    return count;
  }

  void run_item(Context& context, std::size_t phase, std::size_t item, int) noexcept override {
    if (phase == 0 && rounding_.pending()) return rounding_.run_item(context, item);
    // The last output first: what follows the small ones is then not left to the end.
    std::size_t i = parts_.size() - 1;
    for (; item >= parts_[i].linear.chunks(); --i) item -= parts_[i].linear.chunks();
    const Part& part = parts_[i];
    const std::size_t first = item * Linear::kChunk, count = part.linear.chunk_outputs(item);
    part.linear.run(context.kernels, in_, item, context.arena.data(part.out) + first,
                    part.out.width);
    if (!part.followers.empty()) finish_columns(context, part, first, count);
  }

  bool follow(std::span<const Follower> followers) override {
    std::vector<Part> parts = parts_;
    std::vector<backend::Tensor> made;  // by part: what its last follower made
    for (const Part& part : parts) made.push_back(part.out);
    for (const Follower& follower : followers) {
      const auto at = std::find_if(made.begin(), made.end(), [&](backend::Tensor tensor) {
        return tensor.id == follower.in.id;
      });
      const std::size_t unit = follower.executor->column_unit();
      if (at == made.end() || unit == 0) return false;
      Part& part = parts[static_cast<std::size_t>(at - made.begin())];
      part.followers.push_back(follower.executor);
      part.group = std::lcm(part.group, unit);
      if (follower.out) *at = follower.out;
    }
    parts_ = std::move(parts);
    std::size_t groups = 0;
    for (Part& part : parts_) {
      part.first_group = groups;
      groups += (part.linear.outputs() + part.group - 1) / part.group;
    }
    made_ = Meetings(groups);
    return true;
  }

  backend::Tensor reads_quantized() const noexcept override { return rounding_.reads_quantized(); }
  std::string implementation() const override {
    std::string names;
    for (const Part& part : parts_) append_once(names, part.linear.describe());
    return names;
  }
  std::string format() const override {
    std::string names;
    for (const Part& part : parts_) {
      append_once(names, weights::traits(part.linear.weight().matrix.format).name);
    }
    return names;
  }

 private:
  /// One weight, and what whoever makes the last of a few neighbouring chunks does with them.
  struct Part {
    Linear linear;
    backend::Tensor out;
    std::vector<RowExecutor*> followers;
    std::size_t group = Linear::kChunk;  ///< neighbouring outputs that hold whole heads
    std::size_t first_group = 0;         ///< among those of all parts
  };

  static bool reads_rounded(const backend::Project& op, const Context& context) {
    return std::any_of(op.outputs.begin(), op.outputs.end(),
                       [&](const auto& output) { return context.reads_rounded(output.weight); });
  }

  /// To be called when outputs [made, made + count) are there: of one group, since items are parts
  /// of one.
  void finish_columns(Context& context, const Part& part, std::size_t made,
                      std::size_t count) noexcept {
    const std::size_t group = made / part.group, first = group * part.group;
    const std::size_t all = std::min(part.group, part.out.width - first);
    if (!made_.last(part.first_group + group, count, all)) return;
    constexpr std::size_t kRows = 8;  // of 64 columns: they stay in the first cache
    const std::size_t rows = context.rows();
    for (std::size_t begin = 0; begin < rows; begin += kRows) {
      const std::size_t end = std::min(begin + kRows, rows);
      for (RowExecutor* const follower : part.followers) {
        follower->run_columns(context, begin, end, first, all);
      }
    }
  }

  std::vector<Part> parts_;
  Rounding rounding_;
  ProductInput in_;       ///< of the running step
  Meetings made_;         ///< outputs, by group
  std::size_t work_ = 0;  ///< multiply-adds of a row
};

class ProjectGroupsExecutor final : public PhasedExecutor {
 public:
  ProjectGroupsExecutor(const backend::ProjectGroups& op, const Context& context)
      : op_(op),
        linear_(context, op.weight, backend::kNoWeight),
        chunks_((op.spec.out + Linear::kChunk - 1) / Linear::kChunk) {
    LEMMA_CHECK(op.in.width == op.spec.groups * op.spec.in && linear_.cols() == op.spec.in);
    LEMMA_CHECK(op.out.width == op.spec.groups * op.spec.out);
    LEMMA_CHECK(linear_.outputs() == (op.spec.shared ? op.spec.out : op.out.width));
    if (linear_.wants_int8())
      quantized_ = QuantizedBuffer(context.kernels, context.max_rows, op.in.width);
  }

  std::size_t begin(Context& context, Phases& phases) noexcept override {
    const std::size_t groups = op_.spec.groups, rows = context.rows();
    std::size_t count = 0;
    if (linear_.wants_int8()) phases[count++] = {groups * rows, rows * op_.in.width};
    phases[count++] = {groups * chunks_, linear_.work(rows) * (op_.spec.shared ? groups : 1)};
    return count;
  }

  void run_item(Context& context, std::size_t phase, std::size_t item, int) noexcept override {
    const std::size_t in = op_.spec.in, out = op_.spec.out, rows = context.rows();
    if (linear_.wants_int8() && phase == 0) {  // by group, and then by row: a group's rows must be
      context.kernels.quantize(context.arena.row(op_.in, item % rows) + item / rows * in, in,
                               quantized_.rows(in, item));  // neighbours
      return;
    }
    const std::size_t group = item / chunks_, first = item % chunks_ * Linear::kChunk;
    ProductInput input{context.arena.data(op_.in) + group * in, {}, context.runs(), op_.in.width};
    if (linear_.wants_int8()) input.quantized = quantized_.rows(in, group * rows);
    linear_.run(context.kernels, input, (op_.spec.shared ? 0 : group * out) + first,
                std::min(Linear::kChunk, out - first),
                context.arena.data(op_.out) + group * out + first, op_.out.width);
  }

  std::string implementation() const override { return implementations({&linear_}); }
  std::string format() const override { return formats({&linear_}); }
  std::size_t scratch_bytes() const noexcept override { return quantized_.bytes(); }

 private:
  backend::ProjectGroups op_;
  Linear linear_;
  std::size_t chunks_;         ///< of a group
  QuantizedBuffer quantized_;  ///< [groups, max_rows, in]
};

class LogitsExecutor final : public HeadExecutor {
 public:
  LogitsExecutor(const backend::Head& op, const Context& context)
      : op_(op), linear_(context, op.weight, op.bias), runs_(context.max_logit_rows) {
    LEMMA_CHECK(linear_.cols() == op.in.width);
    const std::size_t rows = context.max_logit_rows;
    gathered_ = base::AlignedBuffer::uninitialized(rows * op.in.width * sizeof(float));
    logits_ = base::AlignedBuffer::uninitialized(rows * linear_.outputs() * sizeof(float));
    if (linear_.wants_int8()) quantized_ = QuantizedBuffer(context.kernels, rows, op.in.width);
  }

  void run(Context& context) noexcept override {
    const std::size_t wanted = context.step().logit_rows.size(), width = op_.in.width;
    if (wanted == 0) return;
    float* const rows = reinterpret_cast<float*>(gathered_.data());
    std::size_t runs = 0;
    for (std::size_t i = 0; i < wanted; ++i) {
      const std::uint32_t row = context.step().logit_rows[i];
      std::memcpy(rows + i * width, context.arena.row(op_.in, row), width * sizeof(float));
      const std::size_t token_class = context.class_of(row);
      if (runs == 0 || runs_[runs - 1].token_class != token_class) {
        runs_[runs++] = {i, 0, token_class};
      }
      ++runs_[runs - 1].rows;
    }
    ProductInput in{rows, {}, {runs_.data(), runs}};
    if (linear_.wants_int8()) {
      context.quantize(rows, wanted, width, quantized_);
      in.quantized = quantized_.rows(width);
    }
    const Phase chunks{linear_.chunks(), linear_.work(wanted)};
    context.each({&chunks, 1},
                 [&](std::size_t, std::size_t chunk, int) { project(context, in, chunk); });
    context.settle(op_.in);
  }

  std::span<const float> logits(std::size_t i) const noexcept override {
    return {reinterpret_cast<const float*>(logits_.data()) + i * linear_.outputs(),
            linear_.outputs()};
  }
  std::string implementation() const override { return linear_.describe(); }
  std::string format() const override {
    return std::string(weights::traits(linear_.weight().matrix.format).name);
  }
  std::size_t scratch_bytes() const noexcept override {
    return gathered_.size() + logits_.size() + quantized_.bytes();
  }

 private:
  void project(Context& context, const ProductInput& in, std::size_t chunk) noexcept {
    const std::size_t vocabulary = linear_.outputs(), count = linear_.chunk_outputs(chunk);
    float* const out = reinterpret_cast<float*>(logits_.data()) + chunk * Linear::kChunk;
    linear_.run(context.kernels, in, chunk, out, vocabulary);
    for (std::size_t i = 0; i < context.step().logit_rows.size(); ++i) {
      float* const row = out + i * vocabulary;
      if (op_.scale != 1.f) {
        for (std::size_t o = 0; o < count; ++o) row[o] *= op_.scale;
      }
      if (op_.softcap != 0.f) context.kernels.softcap(row, count, op_.softcap);
      // In f64 the squares of finite f32 numbers cannot overflow.
      if (!std::isfinite(context.kernels.sum_of_squares(row, count, 0.0)))
        context.mark(context.step().logit_rows[i]);
    }
  }

  backend::Head op_;
  Linear linear_;
  std::vector<ClassRun> runs_;
  base::AlignedBuffer gathered_;  ///< [rows that want logits, D]
  base::AlignedBuffer logits_;    ///< [rows that want logits, V]
  QuantizedBuffer quantized_;
};

}  // namespace

std::unique_ptr<Executor> plan(const backend::Project& op, const Context& context) {
  return std::make_unique<ProjectExecutor>(op, context);
}
std::unique_ptr<Executor> plan(const backend::ProjectGroups& op, const Context& context) {
  return std::make_unique<ProjectGroupsExecutor>(op, context);
}
std::unique_ptr<HeadExecutor> plan(const backend::Head& op, const Context& context) {
  return std::make_unique<LogitsExecutor>(op, context);
}

}  // namespace lemma::cpu
