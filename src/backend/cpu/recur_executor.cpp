// SPDX-License-Identifier: Apache-2.0
// Recurrent mixers, step by step. First the convolution and the norms of queries and keys, for all
// rows side by side: what a row needs of the rows before it lies in the tensors or in the committed
// history. Then each head of each sequence by itself: its rows one after the other through its
// matrix, and every head's output normed and gated while it is at hand.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "algorithm/attention/gated_delta_net.hpp"
#include "algorithm/attention/kda.hpp"
#include "algorithm/ffn/dense_mlp.hpp"
#include "backend/cpu/executor.hpp"
#include "base/check.hpp"

namespace lemma::cpu {
namespace {

using algorithm::GatedDeltaNetSpec;
using algorithm::KdaSpec;

/// What both mixers have in common.
struct Shape {
  std::size_t heads = 0, key_heads = 0, key_dim = 0, value_dim = 0, kernel = 0;
  std::size_t decays = 0;  ///< per head and token
  bool normalize_keys = true;
  float l2_eps = 0.f, norm_eps = 0.f;

  std::size_t keys() const noexcept { return key_heads * key_dim; }
  std::size_t values() const noexcept { return heads * value_dim; }
  std::size_t channels() const noexcept { return 2 * keys() + values(); }
};

Shape shape_of(const GatedDeltaNetSpec& spec) noexcept {
  return {spec.value_heads, spec.key_heads, spec.key_dim, spec.value_dim, spec.kernel, 1, true,
          spec.l2_eps,      spec.norm_eps};
}
Shape shape_of(const KdaSpec& spec) noexcept {
  return {spec.heads, spec.heads,          spec.dim,    spec.dim,     spec.kernel,
          spec.dim,   spec.normalize_keys, spec.l2_eps, spec.norm_eps};
}

float log_decay(const GatedDeltaNetSpec&, float rate, float raw, float bias) noexcept {
  return algorithm::log_decay(rate, raw + bias);
}
float log_decay(const KdaSpec& spec, float rate, float raw, float bias) noexcept {
  return algorithm::kda_log_decay(spec, rate, raw, bias);
}

std::size_t key_head(const GatedDeltaNetSpec& spec, std::size_t head) noexcept {
  return spec.key_head(static_cast<std::uint32_t>(head));
}
std::size_t key_head(const KdaSpec&, std::size_t head) noexcept {
  return head;
}

template <typename Spec>
class RecurExecutor final : public Executor {
 public:
  RecurExecutor(const backend::Recur& op, const Spec& spec, const Context& context)
      : op_(op),
        spec_(spec),
        shape_(shape_of(spec)),
        rate_(context.vector(op.rate)),
        dt_bias_(context.vector(op.dt_bias)),
        norm_(context.vector(op.norm)) {
    LEMMA_CHECK(op.decay.width == shape_.heads * shape_.decays && op.beta.width == shape_.heads);
    LEMMA_CHECK(op.gate.width == shape_.values() && op.out.width == shape_.values());
    LEMMA_CHECK(rate_.size() == shape_.heads && dt_bias_.size() == op.decay.width);
    LEMMA_CHECK(norm_.size() == shape_.value_dim && (op.history >= 0 || shape_.kernel == 1));
    turn_taps(context);
    const std::size_t rows = context.max_rows;
    mixed_ = base::AlignedBuffer::uninitialized(rows * shape_.channels() * sizeof(float));
    scratch_.resize(static_cast<std::size_t>(context.pool.threads()));
    for (auto& scratch : scratch_) scratch.resize(shape_.decays + shape_.value_dim);
  }

  void run(Context& context) noexcept override {
    const std::size_t rows = context.rows();
    context.each(rows, rows * shape_.channels() * (shape_.kernel + 8),
                 [&](std::size_t r, int) { mix_row(context, r); });
    const std::span<const backend::Segment> segments = context.step().segments;
    context.each(segments.size() * shape_.heads, rows * shape_.values() * shape_.key_dim * 4,
                 [&](std::size_t item, int thread) {
                   recur(context, segments[item / shape_.heads], item % shape_.heads,
                         scratch_[static_cast<std::size_t>(thread)].data());
                 });
    for (const backend::Segment& segment : segments) advance_history(context, segment);
    context.settle(op_.out);
  }

  std::size_t scratch_bytes() const noexcept override {
    return mixed_.size() +
           (taps_.size() + scratch_.size() * scratch_.front().size()) * sizeof(float);
  }

 private:
  /// The convolutions' weights [channels, C], which follow each other, as rows of one tap each:
  /// [C, channels].
  void turn_taps(const Context& context) {
    std::size_t width = 0;
    for (const backend::Tensor part : op_.channels) width += part.width;
    LEMMA_CHECK(width == shape_.channels());
    taps_.resize(shape_.kernel * width);
    std::size_t channel = 0;
    for (const backend::WeightId id : op_.convolutions) {
      const std::span<const float> weight = context.vector(id);
      LEMMA_CHECK(weight.size() % shape_.kernel == 0);
      for (std::size_t at = 0; at < weight.size(); at += shape_.kernel, ++channel) {
        LEMMA_CHECK(channel < width);
        for (std::size_t tap = 0; tap < shape_.kernel; ++tap) {
          taps_[tap * width + channel] = weight[at + tap];
        }
      }
    }
    LEMMA_CHECK(channel == width);
  }

  float* mixed(std::size_t row) noexcept {
    return reinterpret_cast<float*>(mixed_.data()) + row * shape_.channels();
  }

  /// One row through the convolution, SiLU, and the norms and scale of its queries and keys.
  void mix_row(Context& context, std::size_t row) noexcept {
    const backend::Segment& segment = context.segment_of(row);
    const std::size_t inside = row - segment.first_row, past = shape_.kernel - 1;
    float* const out = mixed(row);
    std::memset(out, 0, shape_.channels() * sizeof(float));
    for (std::size_t tap = 0; tap < shape_.kernel; ++tap) {
      const float* const weight = taps_.data() + tap * shape_.channels();
      const std::size_t back = past - tap;
      if (back <= inside) {
        std::size_t begin = 0;
        for (const backend::Tensor part : op_.channels) {
          add_product(weight + begin, context.arena.row(part, row - back), part.width, out + begin);
          begin += part.width;
        }
      } else {
        const std::span<const float> history = context.state.block(op_.history, *segment.sequence);
        // A new sequence has a history of zeros, which add nothing.
        if (history.empty()) continue;
        add_product(weight, history.data() + (past + inside - back) * shape_.channels(),
                    shape_.channels(), out);
      }
    }
    context.kernels.silu(out, nullptr, shape_.channels(), out);
    const float scale = 1.f / std::sqrt(static_cast<float>(shape_.key_dim));
    for (std::size_t h = 0; h < 2 * shape_.key_heads; ++h) {
      float* const head = out + h * shape_.key_dim;
      if (shape_.normalize_keys) divide_by_length(context.kernels, head);
      if (h >= shape_.key_heads) continue;
      for (std::size_t i = 0; i < shape_.key_dim; ++i) head[i] *= scale;
    }
  }

  static void add_product(const float* weight, const float* x, std::size_t n, float* out) noexcept {
    for (std::size_t i = 0; i < n; ++i) out[i] += weight[i] * x[i];
  }

  void divide_by_length(const KernelTable& kernels, float* head) const noexcept {
    const std::size_t n = shape_.key_dim;
    const double squares = kernels.sum_of_squares(head, n, 0.0) + double{shape_.l2_eps};
    const float length = static_cast<float>(std::sqrt(squares));
    if (length != 0.f) kernels.normalize(head, n, 0.f, length, nullptr, nullptr, head);
  }

  /// A head's rows of one sequence. `scratch` holds [decays, d_v].
  void recur(Context& context, const backend::Segment& segment, std::size_t head,
             float* scratch) noexcept {
    const std::size_t key_dim = shape_.key_dim, value_dim = shape_.value_dim;
    const std::size_t size = key_dim * value_dim;
    DeltaJob job;
    job.matrix = context.state.next_block(op_.matrix, *segment.sequence).data() + head * size;
    job.key_dim = key_dim;
    job.value_dim = value_dim;
    job.decay = scratch;
    job.decay_step = shape_.decays > 1 ? 1 : 0;
    const std::size_t own_key = key_head(spec_, head) * key_dim;
    for (std::size_t row = segment.first_row; row < segment.first_row + segment.rows; ++row) {
      const float* const raw = context.arena.row(op_.decay, row) + head * shape_.decays;
      const float* const bias = dt_bias_.data() + head * shape_.decays;
      for (std::size_t c = 0; c < shape_.decays; ++c) {
        scratch[c] = std::exp(log_decay(spec_, rate_[head], raw[c], bias[c]));
      }
      const float* const row_mixed = mixed(row);
      job.query = row_mixed + own_key;
      job.key = row_mixed + shape_.keys() + own_key;
      job.value = row_mixed + 2 * shape_.keys() + head * value_dim;
      job.beta = algorithm::sigmoid(context.arena.row(op_.beta, row)[head]);
      job.out = scratch + shape_.decays;
      context.kernels.delta_step(job);
      finish(context, row, head, job.out);
    }
  }

  /// Norms a head's output and gates it.
  void finish(Context& context, std::size_t row, std::size_t head, float* read) const noexcept {
    const std::size_t n = shape_.value_dim;
    const float* const gate = context.arena.row(op_.gate, row) + head * n;
    float* const out = context.arena.row(op_.out, row) + head * n;
    const double squares = context.kernels.sum_of_squares(read, n, 0.0);
    const float root =
        static_cast<float>(std::sqrt(squares / static_cast<double>(n) + double{shape_.norm_eps}));
    if (root == 0.f) {  // eps 0 and an output of zeros
      std::fill_n(out, n, 0.f);
      return;
    }
    context.kernels.normalize(read, n, 0.f, root, norm_.data(), nullptr, read);
    if constexpr (std::is_same_v<Spec, KdaSpec>) {
      context.kernels.gate(read, gate, n, out);
    } else {
      context.kernels.silu(gate, read, n, out);
    }
    if (!std::isfinite(context.kernels.sum_of_squares(out, n, 0.0))) context.mark(row);
  }

  /// The next history: the last rows of the old one and of the step, as they were projected.
  void advance_history(Context& context, const backend::Segment& segment) noexcept {
    const std::size_t past = shape_.kernel - 1, channels = shape_.channels();
    if (past == 0 || segment.rows == 0) return;
    float* const next = context.state.next_block(op_.history, *segment.sequence).data();
    const std::size_t fresh = std::min<std::size_t>(past, segment.rows);
    std::memmove(next, next + fresh * channels, (past - fresh) * channels * sizeof(float));
    for (std::size_t i = 0; i < fresh; ++i) {
      float* to = next + (past - fresh + i) * channels;
      const std::size_t row = segment.first_row + segment.rows - fresh + i;
      for (const backend::Tensor part : op_.channels) {
        to = std::copy_n(context.arena.row(part, row), part.width, to);
      }
    }
  }

  backend::Recur op_;
  Spec spec_;
  Shape shape_;
  std::span<const float> rate_, dt_bias_, norm_;
  std::vector<float> taps_;                  ///< [C, channels]
  base::AlignedBuffer mixed_;                ///< [max_rows, channels], behind the convolution
  std::vector<std::vector<float>> scratch_;  ///< by thread
};

}  // namespace

std::unique_ptr<Executor> plan(const backend::Recur& op, const Context& context) {
  return std::visit(
      [&](const auto& spec) -> std::unique_ptr<Executor> {
        using Spec = std::remove_cvref_t<decltype(spec)>;
        return std::make_unique<RecurExecutor<Spec>>(op, spec, context);
      },
      op.spec);
}

}  // namespace lemma::cpu
