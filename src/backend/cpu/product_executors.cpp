// SPDX-License-Identifier: Apache-2.0
// The operations around matrix products: project, mlp, head. Threads take chunks of 64 outputs; a
// chunk covers all rows, so that a packed weight is read once however many rows there are.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>
#include <vector>

#include "backend/cpu/activation.hpp"
#include "backend/cpu/executor.hpp"
#include "backend/cpu/linear.hpp"
#include "base/check.hpp"

namespace lemma::cpu {
namespace {

void append_once(std::string& list, std::string_view item) {
  if (list.find(item) != std::string::npos) return;
  if (!list.empty()) list += ", ";
  list += item;
}

class ProjectExecutor final : public Executor {
 public:
  ProjectExecutor(const backend::Project& op, const Context& context) : op_(op) {
    for (const auto& output : op.outputs) {
      linears_.emplace_back(context, output.weight, output.bias, op.clamp);
      LEMMA_CHECK(linears_.back().outputs() == output.out.width);
      LEMMA_CHECK(linears_.back().cols() == op.in.width);
      chunks_ += linears_.back().chunks();
      work_ += linears_.back().work(1);
      wants_int8_ = wants_int8_ || linears_.back().wants_int8();
    }
  }

  void run(Context& context) noexcept override {
    ProductInput in{context.arena.data(op_.in), {}, context.runs()};
    if (wants_int8_) in.quantized = context.quantized(op_.in);
    context.each(chunks_, context.rows() * work_, [&](std::size_t chunk, int) {
      std::size_t i = 0;
      for (; chunk >= linears_[i].chunks(); ++i) chunk -= linears_[i].chunks();
      const backend::Tensor out = op_.outputs[i].out;
      linears_[i].run(context.kernels, in, chunk, context.arena.data(out) + chunk * Linear::kChunk,
                      out.width);
    });
  }

  backend::Tensor reads_quantized() const noexcept override {
    return wants_int8_ ? op_.in : backend::Tensor{};
  }
  std::string implementation() const override {
    std::string names;
    for (const Linear& linear : linears_) append_once(names, linear.weight().describe());
    return names;
  }
  std::string format() const override {
    std::string names;
    for (const Linear& linear : linears_) {
      append_once(names, weights::traits(linear.weight().matrix.format).name);
    }
    return names;
  }

 private:
  backend::Project op_;
  std::vector<Linear> linears_;
  std::size_t chunks_ = 0;
  std::size_t work_ = 0;  ///< multiply-adds of a row
  bool wants_int8_ = false;
};

class ProjectGroupsExecutor final : public Executor {
 public:
  ProjectGroupsExecutor(const backend::ProjectGroups& op, const Context& context)
      : op_(op), linear_(context, op.weight, backend::kNoWeight) {
    LEMMA_CHECK(op.in.width == op.spec.groups * op.spec.in && linear_.cols() == op.spec.in);
    LEMMA_CHECK(op.out.width == op.spec.groups * op.spec.out);
    LEMMA_CHECK(linear_.outputs() == (op.spec.shared ? op.spec.out : op.out.width));
    if (linear_.wants_int8()) quantized_ = QuantizedBuffer(context.max_rows, op.in.width);
  }

  void run(Context& context) noexcept override {
    const std::size_t groups = op_.spec.groups, in = op_.spec.in, out = op_.spec.out;
    const std::size_t rows = context.rows(), chunks = (out + Linear::kChunk - 1) / Linear::kChunk;
    if (linear_.wants_int8()) {  // by group, and then by row: a group's rows must be neighbours
      context.each(groups * rows, rows * op_.in.width, [&](std::size_t item, int) {
        context.kernels.quantize(context.arena.row(op_.in, item % rows) + item / rows * in, in,
                                 quantized_.rows(in, item));
      });
    }
    const std::size_t work = linear_.work(rows) * (op_.spec.shared ? groups : 1);
    context.each(groups * chunks, work, [&](std::size_t item, int) {
      const std::size_t group = item / chunks, first = item % chunks * Linear::kChunk;
      ProductInput input{context.arena.data(op_.in) + group * in, {}, context.runs(), op_.in.width};
      if (linear_.wants_int8()) input.quantized = quantized_.rows(in, group * rows);
      linear_.run(context.kernels, input, (op_.spec.shared ? 0 : group * out) + first,
                  std::min(Linear::kChunk, out - first),
                  context.arena.data(op_.out) + group * out + first, op_.out.width);
    });
  }

  std::string implementation() const override { return implementations({&linear_}); }
  std::string format() const override { return formats({&linear_}); }
  std::size_t scratch_bytes() const noexcept override { return quantized_.bytes(); }

 private:
  backend::ProjectGroups op_;
  Linear linear_;
  QuantizedBuffer quantized_;  ///< [groups, max_rows, in]
};

/// Memory of an MLP, shared by the layers. Shape: hidden width, and 1 if hidden rows are int8.
struct MlpScratch {
  MlpScratch(const Context& context, std::span<const std::size_t> shape) {
    const std::size_t rows = context.max_rows;
    threads.resize(static_cast<std::size_t>(context.pool.threads()));
    for (auto& scratch : threads) scratch.resize(2 * rows * Linear::kChunk);
    if (shape[1] != 0) {
      quantized = QuantizedBuffer(rows, shape[0]);
    } else {
      hidden = base::AlignedBuffer::uninitialized(rows * shape[0] * sizeof(float));
    }
  }
  std::size_t bytes() const noexcept {
    return threads.size() * threads.front().size() * sizeof(float) + quantized.bytes() +
           hidden.size();
  }

  std::vector<std::vector<float>> threads;  ///< [2, max_rows, 64] of each
  QuantizedBuffer quantized;                ///< [max_rows, F]: hidden rows in int8, or
  base::AlignedBuffer hidden;               ///< the same in f32
};

/// gate, up and activation are one pass: a chunk of hidden elements is finished, and rounded to
/// int8 if the down projection reads that, while it is in the cache.
class MlpExecutor final : public Executor {
 public:
  MlpExecutor(const backend::Mlp& op, const Context& context)
      : op_(op),
        up_(context, op.up, op.up_bias),
        down_(context, op.down, op.down_bias),
        gated_(op.gate != backend::kNoWeight) {
    if (gated_) gate_ = Linear(context, op.gate, op.gate_bias);
    LEMMA_CHECK(down_.cols() == up_.outputs() && up_.cols() == op.in.width);
    LEMMA_CHECK(!gated_ || gate_.outputs() == up_.outputs());
    LEMMA_CHECK(!op.hidden || op.hidden.width == up_.outputs());
    scratch_ = &context.shared<MlpScratch>({up_.outputs(), down_.wants_int8() ? 1u : 0u});
  }

  void run(Context& context) noexcept override {
    ProductInput in{context.arena.data(op_.in), {}, context.runs()};
    if (up_.wants_int8() || (gated_ && gate_.wants_int8())) {
      in.quantized = context.quantized(op_.in);
    }
    context.each(up_.chunks(), 2 * up_.work(context.rows()), [&](std::size_t chunk, int thread) {
      widen(context, in, chunk, scratch_->threads[static_cast<std::size_t>(thread)].data());
    });
    ProductInput hidden{
        reinterpret_cast<const float*>(scratch_->hidden.data()), {}, context.runs()};
    if (down_.wants_int8()) hidden.quantized = scratch_->quantized.rows(down_.cols());
    context.each(down_.chunks(), down_.work(context.rows()), [&](std::size_t chunk, int) {
      down_.run(context.kernels, hidden, chunk,
                context.arena.data(op_.out) + chunk * Linear::kChunk, op_.out.width);
    });
  }

  backend::Tensor reads_quantized() const noexcept override {
    return up_.wants_int8() || (gated_ && gate_.wants_int8()) ? op_.in : backend::Tensor{};
  }
  std::string implementation() const override { return implementations({&gate_, &up_, &down_}); }
  std::string format() const override { return formats({&gate_, &up_, &down_}); }

 private:
  /// One chunk of the hidden rows. `scratch` holds [2, rows, 64].
  void widen(Context& context, const ProductInput& in, std::size_t chunk, float* scratch) noexcept {
    const std::size_t rows = context.rows(), count = up_.chunk_outputs(chunk);
    float* const up = scratch;
    float* const gate = scratch + rows * Linear::kChunk;
    up_.run(context.kernels, in, chunk, up, Linear::kChunk);
    if (gated_) gate_.run(context.kernels, in, chunk, gate, Linear::kChunk);
    const std::size_t first = chunk * Linear::kChunk;
    for (std::size_t r = 0; r < rows; ++r) {
      float* const own_up = up + r * Linear::kChunk;
      const float* const g = gated_ ? gate + r * Linear::kChunk : own_up;
      activate(context.kernels, op_.spec.activation, g, gated_ ? own_up : nullptr, count, own_up);
      if (op_.hidden)
        std::memcpy(context.arena.row(op_.hidden, r) + first, own_up, count * sizeof(float));
      if (down_.wants_int8()) {
        context.kernels.quantize(own_up, count, scratch_->quantized.rows(up_.outputs(), r, first));
      } else {
        std::memcpy(reinterpret_cast<float*>(scratch_->hidden.data()) + r * up_.outputs() + first,
                    own_up, count * sizeof(float));
      }
    }
  }

  backend::Mlp op_;
  Linear gate_, up_, down_;
  bool gated_;
  MlpScratch* scratch_;
};

class LogitsExecutor final : public HeadExecutor {
 public:
  LogitsExecutor(const backend::Head& op, const Context& context)
      : op_(op), linear_(context, op.weight, op.bias), runs_(context.max_logit_rows) {
    LEMMA_CHECK(linear_.cols() == op.in.width);
    const std::size_t rows = context.max_logit_rows;
    gathered_ = base::AlignedBuffer::uninitialized(rows * op.in.width * sizeof(float));
    logits_ = base::AlignedBuffer::uninitialized(rows * linear_.outputs() * sizeof(float));
    if (linear_.wants_int8()) quantized_ = QuantizedBuffer(rows, op.in.width);
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
    context.each(linear_.chunks(), linear_.work(wanted),
                 [&](std::size_t chunk, int) { project(context, in, chunk); });
    context.each(wanted, wanted * linear_.outputs(), [&](std::size_t i, int) {
      // In f64 the squares of finite f32 numbers cannot overflow.
      const double squares =
          context.kernels.sum_of_squares(logits(i).data(), logits(i).size(), 0.0);
      if (!std::isfinite(squares)) context.mark(context.step().logit_rows[i]);
    });
    context.settle(op_.in);
  }

  std::span<const float> logits(std::size_t i) const noexcept override {
    return {reinterpret_cast<const float*>(logits_.data()) + i * linear_.outputs(),
            linear_.outputs()};
  }
  std::string implementation() const override { return linear_.weight().describe(); }
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
std::unique_ptr<Executor> plan(const backend::Mlp& op, const Context& context) {
  return std::make_unique<MlpExecutor>(op, context);
}
std::unique_ptr<HeadExecutor> plan(const backend::Head& op, const Context& context) {
  return std::make_unique<LogitsExecutor>(op, context);
}

}  // namespace lemma::cpu
