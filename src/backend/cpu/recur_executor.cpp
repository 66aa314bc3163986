// SPDX-License-Identifier: Apache-2.0
// Recurrent mixers. First what a row needs of itself and of the few before it, which lie in the
// tensors or in the committed history: convolution, norms of queries and keys, decays, for all rows
// side by side. Then each head of each sequence by itself: its rows one after the other through its
// matrix, a few at a time, and their outputs normed and gated while they are at hand.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "algorithm/attention/gated_delta_net.hpp"
#include "algorithm/attention/kda.hpp"
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

float lower_bound(const GatedDeltaNetSpec&) noexcept {
  return 0.f;
}
float lower_bound(const KdaSpec& spec) noexcept {
  return spec.lower_bound;
}

std::size_t key_head(const GatedDeltaNetSpec& spec, std::size_t head) noexcept {
  return spec.key_head(static_cast<std::uint32_t>(head));
}
std::size_t key_head(const KdaSpec&, std::size_t head) noexcept {
  return head;
}

/// Rows that go through a head's matrix in one call: enough to begin and end it rarely, few enough
/// for what they share to stay in the cache.
constexpr std::size_t kRowsAtOnce = 16;

template <typename Spec>
class RecurExecutor final : public Executor {
 public:
  RecurExecutor(const backend::Recur& op, const Spec& spec, const Context& context)
      : op_(op),
        spec_(spec),
        shape_(shape_of(spec)),
        dt_bias_(context.vector(op.dt_bias)),
        norm_(context.vector(op.norm)) {
    const std::span<const float> rate = context.vector(op.rate);
    LEMMA_CHECK(op.decay.width == shape_.heads * shape_.decays && op.beta.width == shape_.heads);
    LEMMA_CHECK(op.gate.width == shape_.values() && op.out.width == shape_.values());
    LEMMA_CHECK(rate.size() == shape_.heads && dt_bias_.size() == op.decay.width);
    LEMMA_CHECK(norm_.size() == shape_.value_dim && (op.history >= 0 || shape_.kernel == 1));
    for (const float r : rate) rate_.insert(rate_.end(), shape_.decays, std::fabs(r));
    ones_.assign(shape_.heads, 1.f);
    turn_taps(context);
    mixed_ = base::AlignedBuffer::uninitialized(context.max_rows * row_size() * sizeof(float));
    taken_.resize(static_cast<std::size_t>(context.pool.threads()));
    for (auto& rows : taken_) rows.resize(shape_.kernel);
    scratch_.resize(taken_.size());
    for (auto& scratch : scratch_) scratch.resize(kRowsAtOnce * (2 * shape_.key_dim + 1));
  }

  void run(Context& context) noexcept override {
    const std::size_t rows = context.rows();
    context.each(rows, rows * shape_.channels() * (shape_.kernel + 8),
                 [&](std::size_t r, int thread) {
                   mix_row(context, r, taken_[static_cast<std::size_t>(thread)].data());
                 });
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

  /// A row of `mixed_`: [channels][decays of all heads][betas].
  std::size_t row_size() const noexcept {
    return shape_.channels() + shape_.heads * (shape_.decays + 1);
  }
  float* mixed(std::size_t row) noexcept {
    return reinterpret_cast<float*>(mixed_.data()) + row * row_size();
  }

  /// All of a row that does not need its heads' matrices. `taken` has room for C pointers.
  void mix_row(Context& context, std::size_t row, const float** taken) noexcept {
    const KernelTable& kernels = context.kernels;
    float* const out = mixed(row);
    float* const decays = out + shape_.channels();
    convolve(context, row, taken, out);
    const double root = std::sqrt(static_cast<double>(shape_.key_dim));
    for (std::size_t h = 0; h < 2 * shape_.key_heads; ++h) {
      scale_to_length(kernels, out + h * shape_.key_dim, h < shape_.key_heads ? root : 1.0);
    }
    kernels.decay(context.arena.row(op_.decay, row), dt_bias_.data(), rate_.data(),
                  lower_bound(spec_), op_.decay.width, decays);
    kernels.gate(ones_.data(), context.arena.row(op_.beta, row), shape_.heads,
                 decays + op_.decay.width);
  }

  void convolve(Context& context, std::size_t row, const float** taken, float* out) noexcept {
    const backend::Segment& segment = context.segment_of(row);
    const std::size_t inside = row - segment.first_row, past = shape_.kernel - 1;
    std::span<const float> history;  // a new sequence's is empty: zeros
    if (inside < past) history = context.state.block(op_.history, *segment.sequence);
    ConvolveJob job;
    job.rows = taken;
    job.taps = shape_.kernel;
    job.weight_stride = shape_.channels();
    std::size_t begin = 0;
    for (const backend::Tensor part : op_.channels) {
      for (std::size_t tap = 0; tap < shape_.kernel; ++tap) {
        const std::size_t back = past - tap;
        if (back <= inside) {
          taken[tap] = context.arena.row(part, row - back);
        } else if (history.empty()) {
          taken[tap] = nullptr;
        } else {
          taken[tap] = history.data() + (past + inside - back) * shape_.channels() + begin;
        }
      }
      job.weights = taps_.data() + begin;
      job.channels = part.width;
      job.out = out + begin;
      context.kernels.convolve(job);
      begin += part.width;
    }
  }

  /// Gives a query or key length one, or leaves it as long as it is, and divides it by `root`.
  void scale_to_length(const KernelTable& kernels, float* head, double root) const noexcept {
    const std::size_t n = shape_.key_dim;
    if (shape_.normalize_keys) {
      root *= std::sqrt(kernels.sum_of_squares(head, n, 0.0) + double{shape_.l2_eps});
    }
    const float length = static_cast<float>(root);
    if (length != 0.f && length != 1.f) {
      kernels.normalize(head, n, 0.f, length, nullptr, nullptr, head);
    }
  }

  /// A head's rows of one sequence.
  void recur(Context& context, const backend::Segment& segment, std::size_t head,
             float* scratch) noexcept {
    const std::size_t size = shape_.key_dim * shape_.value_dim;
    const std::size_t own_key = key_head(spec_, head) * shape_.key_dim;
    DeltaJob job;
    job.matrix = context.state.next_block(op_.matrix, *segment.sequence).data() + head * size;
    job.key_dim = shape_.key_dim;
    job.value_dim = shape_.value_dim;
    job.decay_step = shape_.decays > 1 ? 1 : 0;
    job.stride = job.decay_stride = job.beta_stride = row_size();
    job.out_stride = shape_.values();
    job.scratch = scratch;
    const std::size_t end = segment.first_row + segment.rows;
    for (std::size_t row = segment.first_row; row < end; row += job.rows) {
      job.rows = std::min(kRowsAtOnce, end - row);
      const float* const taken = mixed(row);
      job.query = taken + own_key;
      job.key = taken + shape_.keys() + own_key;
      job.value = taken + 2 * shape_.keys() + head * shape_.value_dim;
      job.decay = taken + shape_.channels() + head * shape_.decays;
      job.beta = taken + shape_.channels() + op_.decay.width + head;
      job.out = context.arena.row(op_.out, row) + head * shape_.value_dim;
      context.kernels.delta_rows(job);
      for (std::size_t r = 0; r < job.rows; ++r) finish(context, row + r, head);
    }
  }

  /// Norms a head's output and gates it.
  void finish(Context& context, std::size_t row, std::size_t head) const noexcept {
    const std::size_t n = shape_.value_dim;
    const float* const gate = context.arena.row(op_.gate, row) + head * n;
    float* const out = context.arena.row(op_.out, row) + head * n;
    const double squares = context.kernels.sum_of_squares(out, n, 0.0);
    const float root =
        static_cast<float>(std::sqrt(squares / static_cast<double>(n) + double{shape_.norm_eps}));
    if (root == 0.f) {  // eps 0 and an output of zeros
      std::fill_n(out, n, 0.f);
      return;
    }
    context.kernels.normalize(out, n, 0.f, root, norm_.data(), nullptr, out);
    if constexpr (std::is_same_v<Spec, KdaSpec>) {
      context.kernels.gate(out, gate, n, out);
    } else {
      context.kernels.silu(gate, out, n, out);
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
  std::span<const float> dt_bias_, norm_;
  std::vector<float> rate_;                       ///< one for each decay, without its sign
  std::vector<float> ones_;                       ///< [H]
  std::vector<float> taps_;                       ///< [C, channels]
  base::AlignedBuffer mixed_;                     ///< [max_rows, row_size()]
  std::vector<std::vector<const float*>> taken_;  ///< by thread: [C]
  std::vector<std::vector<float>> scratch_;       ///< by thread: DeltaJob's
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
