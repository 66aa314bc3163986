// SPDX-License-Identifier: Apache-2.0
// The operations that work on one row at a time: embed, receive, norm, rotate, store, gate,
// activate, add.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "algorithm/row_formats.hpp"
#include "backend/cpu/activation.hpp"
#include "backend/cpu/executor.hpp"
#include "base/check.hpp"

namespace lemma::cpu {
namespace {

/// Decodes columns [begin, begin + out.size()) of a row: whole blocks straight to their place, the
/// blocks that stick out at either end through a buffer.
void decode_columns(const weights::Matrix& matrix, std::uint64_t row, std::size_t begin,
                    std::span<float> out) noexcept {
  const weights::FormatTraits& format = weights::traits(matrix.format);
  constexpr std::size_t kLargestBlock = 256;
  LEMMA_CHECK(format.block_elements <= kLargestBlock && begin + out.size() <= matrix.cols);
  float block[kLargestBlock];
  const std::size_t size = format.block_elements;
  for (std::size_t done = 0; done < out.size();) {
    const std::size_t inside = (begin + done) % size, left = out.size() - done;
    const std::byte* const at = matrix.row(row) + (begin + done) / size * format.block_bytes;
    if (inside == 0 && left >= size) {
      const std::size_t whole = left / size * size;
      format.dequantize(at, out.subspan(done, whole));
      done += whole;
    } else {
      const std::size_t count = std::min(size - inside, left);
      format.dequantize(at, {block, size});
      std::copy_n(block + inside, count, out.begin() + static_cast<std::ptrdiff_t>(done));
      done += count;
    }
  }
}

class EmbedExecutor final : public RowExecutor {
 public:
  EmbedExecutor(const backend::Embed& op, const Context& context)
      : op_(op),
        token_type_(context.vector(op.token_type)),
        learned_(
            op.positions == backend::kNoWeight ? 0 : std::size_t{context.max_rows} * op.out.width) {
    LEMMA_CHECK(token_type_.empty() || token_type_.size() == op.out.width);
  }

  void run_rows(Context& context, std::size_t begin, std::size_t end) noexcept override {
    for (std::size_t r = begin; r < end; ++r) look_up(context, r);
  }

  std::string format() const override { return std::string(format_); }
  void set_format(std::string_view name) { format_ = name; }
  std::size_t scratch_bytes() const noexcept override { return learned_.size() * sizeof(float); }

 private:
  void look_up(Context& context, std::size_t r) noexcept {
    const std::span<float> out(context.arena.row(op_.out, r), op_.out.width);
    decode_columns(context.weight(op_.table).matrix,
                   static_cast<std::uint64_t>(context.step().tokens[r]), op_.begin, out);
    if (op_.scale != 1.f) {
      for (float& x : out) x *= op_.scale;
    }
    if (op_.positions != backend::kNoWeight) {
      const std::span<float> learned(learned_.data() + r * out.size(), out.size());
      decode_columns(context.weight(op_.positions).matrix, context.position_of(r), 0, learned);
      for (std::size_t c = 0; c < out.size(); ++c) out[c] += learned[c];
    }
    for (std::size_t c = 0; c < token_type_.size(); ++c) out[c] += token_type_[c];
  }

  backend::Embed op_;
  std::span<const float> token_type_;
  std::vector<float> learned_;  ///< [max_rows, D]
  std::string_view format_;
};

class NormExecutor final : public RowExecutor {
 public:
  NormExecutor(const backend::Norm& op, const Context& context)
      : op_(op),
        group_(op.group != 0 ? op.group : op.in.width),
        weight_(context.vector(op.weight)),
        bias_(context.vector(op.bias)) {
    LEMMA_CHECK(op.in.width % group_ == 0);
  }

  void run_rows(Context& context, std::size_t begin, std::size_t end) noexcept override {
    run_columns(context, begin, end, 0, op_.in.width);
  }
  std::size_t column_unit() const noexcept override { return group_; }
  void run_columns(Context& context, std::size_t begin, std::size_t end, std::size_t first,
                   std::size_t count) noexcept override {
    for (std::size_t r = begin; r < end; ++r) {
      if (!normalize(context.kernels, context.arena.row(op_.in, r), first, first + count,
                     context.arena.row(op_.out, r))) {
        context.mark(r, op_.in);
      }
    }
  }

 private:
  /// The groups in [begin, end) of a row. False if they hold anything that is not finite: then, and
  /// only then, is the f64 sum of squares of f32 elements not finite.
  bool normalize(const KernelTable& kernels, const float* x, std::size_t begin, std::size_t end,
                 float* out) const noexcept {
    bool finite = true;
    const double n = static_cast<double>(group_);
    for (std::size_t at = begin; at < end; at += group_) {
      const float* const in = x + at;
      const double centre =
          op_.spec.kind == algorithm::NormKind::kLayer ? kernels.sum(in, group_) / n : 0.0;
      const double squares = kernels.sum_of_squares(in, group_, centre);
      finite = finite && std::isfinite(squares);
      const float root = static_cast<float>(std::sqrt(squares / n + double{op_.spec.eps}));
      if (root == 0.f) {  // eps 0 and a constant group: its direction is nothing
        const auto nothing = [&](std::size_t i) { return bias_.empty() ? 0.f : own(bias_, at)[i]; };
        for (std::size_t i = 0; i < group_; ++i) out[at + i] = nothing(i);
        continue;
      }
      kernels.normalize(in, group_, static_cast<float>(centre), root, own(weight_, at),
                        own(bias_, at), out + at);
    }
    return finite;
  }
  /// The weight or bias of the group that begins at `at`, or null.
  const float* own(std::span<const float> values, std::size_t at) const noexcept {
    if (values.empty()) return nullptr;
    return op_.weight_per_group ? values.data() + at : values.data();
  }

  backend::Norm op_;
  std::size_t group_;
  std::span<const float> weight_, bias_;
};

class RotateExecutor final : public RowExecutor {
 public:
  RotateExecutor(const backend::Rotate& op, const Context& context) : op_(op) {
    const algorithm::RopeSpec& spec = context.program.ropes[op.rope];
    const bool split = spec.layout == algorithm::RopeLayout::kSplitHalf;
    job_.pairs = spec.rotary_dim / 2;
    job_.step = split ? 1 : 2;
    job_.distance = split ? job_.pairs : 1;
    job_.inverse = op.inverse;
    whole_ = spec.rotary_dim == op.head_dim;
    offset_ =
        spec.placement == algorithm::RopePlacement::kSuffix ? op.head_dim - spec.rotary_dim : 0;
    LEMMA_CHECK(op.in.width % op.head_dim == 0 && spec.rotary_dim <= op.head_dim);
  }

  void run_rows(Context& context, std::size_t begin, std::size_t end) noexcept override {
    run_columns(context, begin, end, 0, op_.in.width);
  }
  std::size_t column_unit() const noexcept override { return op_.head_dim; }
  void run_columns(Context& context, std::size_t begin, std::size_t end, std::size_t first,
                   std::size_t count) noexcept override {
    for (std::size_t r = begin; r < end; ++r) {
      const float* const in = context.arena.row(op_.in, r);
      float* const out = context.arena.row(op_.out, r);
      if (!whole_) std::memcpy(out + first, in + first, count * sizeof(float));
      RotateJob job = job_;
      job.cos = context.cos(op_.rope, r).data();
      job.sin = context.sin(op_.rope, r).data();
      for (std::size_t head = first + offset_; head < first + count; head += op_.head_dim) {
        job.x = in + head;
        job.out = out + head;
        context.kernels.rotate(job);
      }
    }
  }

 private:
  backend::Rotate op_;
  RotateJob job_;
  std::size_t offset_ = 0;  ///< of the rotary part in a head
  bool whole_ = false;      ///< a head is its rotary part: every element is written
};

class StoreExecutor final : public RowExecutor {
 public:
  StoreExecutor(const backend::Store& op, const Context& context)
      : op_(op), place_(context.state.layout().slots()[static_cast<std::size_t>(op.slot)]) {}

  void run_rows(Context& context, std::size_t begin, std::size_t end) noexcept override {
    run_columns(context, begin, end, 0, op_.in.width);
  }
  /// Formats without scales have their elements side by side.
  std::size_t column_unit() const noexcept override {
    using algorithm::RowFormat;
    const RowFormat format = place_.format;
    return format == RowFormat::kF32 || format == RowFormat::kF16 || format == RowFormat::kBF16 ? 1
                                                                                                : 0;
  }
  void run_columns(Context& context, std::size_t begin, std::size_t end, std::size_t first,
                   std::size_t count) noexcept override {
    const std::size_t at = first * (place_.format == algorithm::RowFormat::kF32 ? 4 : 2);
    for (std::size_t r = begin; r < end; ++r) {
      std::byte* const row =
          context.state.row(op_.slot, *context.segment_of(r).sequence, context.position_of(r));
      if (!algorithm::encode_row(place_.format, place_.slot.group,
                                 {context.arena.row(op_.in, r) + first, count}, row + at,
                                 place_.slot.tail)) {
        context.mark(r, op_.in);
      }
    }
  }

 private:
  backend::Store op_;
  state::SlotPlace place_;
};

class GateExecutor final : public RowExecutor {
 public:
  GateExecutor(const backend::Gate& op, const Context& context)
      : op_(op), per_element_(op.gate.width == op.in.width) {
    LEMMA_CHECK(op.gate.width > 0 && op.in.width % op.gate.width == 0);
    if (!per_element_) factors_.resize(std::size_t{context.max_rows} * op.gate.width, 1.f);
  }

  void run_rows(Context& context, std::size_t begin, std::size_t end) noexcept override {
    if (!per_element_) {
      for (std::size_t r = begin; r < end; ++r) scale_runs(context, r);
      return;
    }
    context.kernels.gate(context.arena.row(op_.in, begin), context.arena.row(op_.gate, begin),
                         (end - begin) * op_.out.width, context.arena.row(op_.out, begin));
  }
  std::size_t scratch_bytes() const noexcept override { return factors_.size() * sizeof(float); }

 private:
  /// Each gate counts for a run of the row.
  void scale_runs(Context& context, std::size_t r) noexcept {
    const std::size_t gates = op_.gate.width, run = op_.in.width / gates;
    float* const factors = factors_.data() + r * gates;
    std::fill_n(factors, gates, 1.f);
    context.kernels.gate(factors, context.arena.row(op_.gate, r), gates, factors);
    const float* const in = context.arena.row(op_.in, r);
    float* const out = context.arena.row(op_.out, r);
    for (std::size_t g = 0; g < gates; ++g) {
      for (std::size_t i = g * run; i < (g + 1) * run; ++i) out[i] = in[i] * factors[g];
    }
  }

  backend::Gate op_;
  bool per_element_;
  std::vector<float> factors_;  ///< [max_rows, gates]: sigmoids
};

class ActivateExecutor final : public RowExecutor {
 public:
  explicit ActivateExecutor(const backend::Activate& op) : op_(op) {
    LEMMA_CHECK(op.gate.width == op.out.width);
    LEMMA_CHECK(std::size_t{op.up_begin} + op.out.width <= op.up.width);
  }
  void run_rows(Context& context, std::size_t begin, std::size_t end) noexcept override {
    for (std::size_t r = begin; r < end; ++r) {
      activate(context.kernels, op_.spec, context.arena.row(op_.gate, r),
               context.arena.row(op_.up, r) + op_.up_begin, op_.out.width,
               context.arena.row(op_.out, r));
    }
  }

 private:
  backend::Activate op_;
};

class ReceiveExecutor final : public Executor {
 public:
  explicit ReceiveExecutor(const backend::Receive& op) : op_(op) {}
  void run(Context& context) noexcept override {
    const std::span<const float> rows = context.step().received;
    LEMMA_CHECK(rows.size() == context.rows() * op_.out.width);
    std::memcpy(context.arena.data(op_.out), rows.data(), rows.size_bytes());
  }

 private:
  backend::Receive op_;
};

class AddExecutor final : public RowExecutor {
 public:
  explicit AddExecutor(const backend::Add& op) : op_(op) {}
  void run_rows(Context& context, std::size_t begin, std::size_t end) noexcept override {
    context.kernels.add(context.arena.row(op_.a, begin), context.arena.row(op_.b, begin),
                        op_.b_scale, op_.out_scale, (end - begin) * op_.out.width,
                        context.arena.row(op_.out, begin));
  }

 private:
  backend::Add op_;
};

}  // namespace

std::unique_ptr<Executor> plan(const backend::Embed& op, const Context& context) {
  auto executor = std::make_unique<EmbedExecutor>(op, context);
  executor->set_format(weights::traits(context.weight(op.table).matrix.format).name);
  return executor;
}
std::unique_ptr<Executor> plan(const backend::Receive& op, const Context&) {
  return std::make_unique<ReceiveExecutor>(op);
}
std::unique_ptr<Executor> plan(const backend::Norm& op, const Context& context) {
  return std::make_unique<NormExecutor>(op, context);
}
std::unique_ptr<Executor> plan(const backend::Rotate& op, const Context& context) {
  return std::make_unique<RotateExecutor>(op, context);
}
std::unique_ptr<Executor> plan(const backend::Store& op, const Context& context) {
  return std::make_unique<StoreExecutor>(op, context);
}
std::unique_ptr<Executor> plan(const backend::Gate& op, const Context& context) {
  return std::make_unique<GateExecutor>(op, context);
}
std::unique_ptr<Executor> plan(const backend::Activate& op, const Context&) {
  return std::make_unique<ActivateExecutor>(op);
}
std::unique_ptr<Executor> plan(const backend::Add& op, const Context&) {
  return std::make_unique<AddExecutor>(op);
}

}  // namespace lemma::cpu
