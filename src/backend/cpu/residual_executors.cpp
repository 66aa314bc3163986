// SPDX-License-Identifier: Apache-2.0
// The residual styles beside the plain sum: hyper-connections and the attention residual. All work
// row by row; only the products with learned mixes share their weights among rows.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "algorithm/ffn/dense_mlp.hpp"
#include "algorithm/residual/hyper_connection.hpp"
#include "backend/cpu/executor.hpp"
#include "backend/cpu/linear.hpp"
#include "base/check.hpp"

namespace lemma::cpu {
namespace {

/// out [n] = sum over i of weights[i] * rows[i], rows [count, n].
void sum_rows(const KernelTable& kernels, const float* rows, std::size_t count,
              const float* weights, std::size_t n, float* out) noexcept {
  std::memset(out, 0, n * sizeof(float));
  for (std::size_t i = 0; i < count; ++i) kernels.merge(out, 1.f, rows + i * n, weights[i], n);
}

/// The root of the mean square of x, and whether x is finite.
struct Rms {
  float root;
  bool finite;
};
Rms rms(const KernelTable& kernels, const float* x, std::size_t n, float eps) noexcept {
  const double squares = kernels.sum_of_squares(x, n, 0.0);
  return {static_cast<float>(std::sqrt(squares / static_cast<double>(n) + double{eps})),
          std::isfinite(squares)};
}

/// The products of all streams, normed together, with a learned matrix.
class StreamMix {
 public:
  StreamMix() = default;
  StreamMix(const Context& context, const algorithm::HyperConnectionSpec& spec,
            backend::WeightId fn)
      : spec_(spec), linear_(context, fn, backend::kNoWeight) {
    LEMMA_CHECK(linear_.cols() == spec.state_size());
    flat_ = base::AlignedBuffer::uninitialized(std::size_t{context.max_rows} * spec.state_size() *
                                               sizeof(float));
    if (linear_.wants_int8())
      quantized_ = QuantizedBuffer(context.kernels, context.max_rows, spec.state_size());
  }

  const Linear& linear() const noexcept { return linear_; }
  std::size_t bytes() const noexcept { return flat_.size() + quantized_.bytes(); }

  /// out [T, outputs of fn] from streams [T, H * D]. Marks rows that are not finite.
  void run(Context& context, backend::Tensor in, float* out) noexcept {
    const std::size_t n = spec_.state_size(), rows = context.rows();
    float* const flat = reinterpret_cast<float*>(flat_.data());
    context.each_rows([&](std::size_t begin, std::size_t end) {
      for (std::size_t r = begin; r < end; ++r) {
        const float* const x = context.arena.row(in, r);
        const Rms of = rms(context.kernels, x, n, spec_.norm_eps);
        if (!of.finite) context.mark(r);
        if (of.root == 0.f) {
          std::memset(flat + r * n, 0, n * sizeof(float));
        } else {
          context.kernels.normalize(x, n, 0.f, of.root, nullptr, nullptr, flat + r * n);
        }
      }
    });
    ProductInput input{flat, {}, context.runs()};
    if (linear_.wants_int8()) {
      context.quantize(flat, rows, n, quantized_);
      input.quantized = quantized_.rows(n);
    }
    context.each(linear_.chunks(), linear_.work(rows), [&](std::size_t chunk, int) {
      linear_.run(context.kernels, input, chunk, out + chunk * Linear::kChunk, linear_.outputs());
    });
  }

 private:
  algorithm::HyperConnectionSpec spec_;
  Linear linear_;
  base::AlignedBuffer flat_;   ///< [max_rows, H * D]
  QuantizedBuffer quantized_;  ///< the same, if the matrix reads int8
};

class StreamsEnterExecutor final : public RowExecutor {
 public:
  explicit StreamsEnterExecutor(const backend::StreamsEnter& op) : op_(op) {}
  void run_rows(Context& context, std::size_t begin, std::size_t end) noexcept override {
    for (std::size_t r = begin; r < end; ++r) {
      algorithm::hyper_enter(op_.spec, {context.arena.row(op_.in, r), op_.in.width},
                             {context.arena.row(op_.out, r), op_.out.width});
    }
  }

 private:
  backend::StreamsEnter op_;
};

class StreamsReadExecutor final : public Executor {
 public:
  StreamsReadExecutor(const backend::StreamsRead& op, const Context& context)
      : op_(op),
        mix_(context, op.spec, op.fn),
        base_(context.vector(op.base)),
        scale_(context.vector(op.scale)) {
    LEMMA_CHECK(mix_.linear().outputs() == op.coefficients.width);
  }

  void run(Context& context) noexcept override {
    mix_.run(context, op_.in, context.arena.data(op_.coefficients));
    const std::size_t streams = op_.spec.streams, width = op_.spec.width;
    context.each_rows([&](std::size_t begin, std::size_t end) {
      for (std::size_t r = begin; r < end; ++r) {
        float* const coefficients = context.arena.row(op_.coefficients, r);
        algorithm::hyper_split(op_.spec, base_, scale_, {coefficients, op_.coefficients.width});
        sum_rows(context.kernels, context.arena.row(op_.in, r), streams, coefficients, width,
                 context.arena.row(op_.out, r));
      }
    });
    context.settle(op_.in);
  }

  std::string implementation() const override { return implementations({&mix_.linear()}); }
  std::string format() const override { return formats({&mix_.linear()}); }
  std::size_t scratch_bytes() const noexcept override { return mix_.bytes(); }

 private:
  backend::StreamsRead op_;
  StreamMix mix_;
  std::span<const float> base_, scale_;
};

class StreamsWriteExecutor final : public RowExecutor {
 public:
  explicit StreamsWriteExecutor(const backend::StreamsWrite& op) : op_(op) {}
  void run_rows(Context& context, std::size_t begin, std::size_t end) noexcept override {
    for (std::size_t r = begin; r < end; ++r) write(context, r);
  }

 private:
  /// Stream k: post[k] branch, and then M[j][k] of each stream j.
  void write(Context& context, std::size_t r) const noexcept {
    const std::size_t streams = op_.spec.streams, width = op_.spec.width;
    const algorithm::HyperCoefficients of(
        op_.spec, {context.arena.row(op_.coefficients, r), op_.coefficients.width});
    for (std::size_t k = 0; k < streams; ++k) {
      float* const out = context.arena.row(op_.out, r) + k * width;
      std::memset(out, 0, width * sizeof(float));
      context.kernels.merge(out, 1.f, context.arena.row(op_.branch, r), of.post[k], width);
      for (std::size_t j = 0; j < streams; ++j) {
        context.kernels.merge(out, 1.f, context.arena.row(op_.in, r) + j * width,
                              of.matrix[j * streams + k], width);
      }
    }
  }

  backend::StreamsWrite op_;
};

class StreamsLeaveExecutor final : public Executor {
 public:
  StreamsLeaveExecutor(const backend::StreamsLeave& op, const Context& context)
      : op_(op),
        base_(context.vector(op.base)),
        scale_(context.vector(op.scale)),
        weights_(std::size_t{context.max_rows} * op.spec.streams) {
    if (op.fn != backend::kNoWeight) mix_ = StreamMix(context, op.spec, op.fn);
  }

  void run(Context& context) noexcept override {
    const std::size_t streams = op_.spec.streams, width = op_.spec.width;
    if (mix_.linear()) mix_.run(context, op_.in, weights_.data());
    context.each_rows([&](std::size_t begin, std::size_t end) {
      for (std::size_t r = begin; r < end; ++r) {
        float* const weights = weights_.data() + r * streams;
        for (std::size_t i = 0; i < streams; ++i) {
          weights[i] = mix_.linear()
                           ? algorithm::sigmoid(weights[i] * scale_[0] + base_[i]) + op_.spec.eps
                           : 1.f;
        }
        float* const out = context.arena.row(op_.out, r);
        sum_rows(context.kernels, context.arena.row(op_.in, r), streams, weights, width, out);
        if (mix_.linear()) continue;
        for (std::size_t d = 0; d < width; ++d) out[d] /= static_cast<float>(streams);
      }
    });
    context.settle(op_.in);
  }

  std::string implementation() const override { return implementations({&mix_.linear()}); }
  std::string format() const override { return formats({&mix_.linear()}); }
  std::size_t scratch_bytes() const noexcept override {
    return mix_.bytes() + weights_.size() * sizeof(float);
  }

 private:
  backend::StreamsLeave op_;
  StreamMix mix_;  ///< absent where the streams' mean leaves
  std::span<const float> base_, scale_;
  std::vector<float> weights_;  ///< [max_rows, H]
};

class MixResidualExecutor final : public RowExecutor {
 public:
  MixResidualExecutor(const backend::MixResidual& op, const Context& context)
      : op_(op), candidates_(op.blocks.size() + 1) {
    const std::span<const float> norm = context.vector(op.norm);
    const std::span<const float> projection = context.vector(op.projection);
    LEMMA_CHECK(norm.size() == op.out.width && projection.size() == op.out.width);
    // The norm's weight meets the projection in every score, and nowhere else.
    for (std::size_t i = 0; i < norm.size(); ++i) scorer_.push_back(norm[i] * projection[i]);
    weights_.resize(std::size_t{context.max_rows} * candidates_);
  }

  void run_rows(Context& context, std::size_t begin, std::size_t end) noexcept override {
    for (std::size_t r = begin; r < end; ++r) mix(context, r);
  }
  std::size_t scratch_bytes() const noexcept override {
    return (weights_.size() + scorer_.size()) * sizeof(float);
  }

 private:
  const float* candidate(const Context& context, std::size_t r, std::size_t i) const noexcept {
    return context.arena.row(i < op_.blocks.size() ? op_.blocks[i] : op_.current, r);
  }

  void mix(Context& context, std::size_t r) noexcept {
    const std::size_t width = op_.out.width;
    float* const weights = weights_.data() + r * candidates_;
    for (std::size_t i = 0; i < candidates_; ++i) {
      const float* const x = candidate(context, r, i);
      const Rms of = rms(context.kernels, x, width, op_.spec.eps);
      if (!of.finite) context.mark(r, op_.current);
      weights[i] = of.root != 0.f ? context.kernels.dot(scorer_.data(), x, width) / of.root : 0.f;
    }
    const float largest = *std::max_element(weights, weights + candidates_);
    float mass = 0.f;
    for (std::size_t i = 0; i < candidates_; ++i) {
      weights[i] = std::exp(weights[i] - largest);
      mass += weights[i];
    }
    float* const out = context.arena.row(op_.out, r);
    std::memset(out, 0, width * sizeof(float));
    for (std::size_t i = 0; i < candidates_; ++i) {
      context.kernels.merge(out, 1.f, candidate(context, r, i), weights[i] / mass, width);
    }
  }

  backend::MixResidual op_;
  std::size_t candidates_;
  std::vector<float> scorer_;   ///< [D]
  std::vector<float> weights_;  ///< [max_rows, candidates]
};

}  // namespace

std::unique_ptr<Executor> plan(const backend::StreamsEnter& op, const Context&) {
  return std::make_unique<StreamsEnterExecutor>(op);
}
std::unique_ptr<Executor> plan(const backend::StreamsRead& op, const Context& context) {
  return std::make_unique<StreamsReadExecutor>(op, context);
}
std::unique_ptr<Executor> plan(const backend::StreamsWrite& op, const Context&) {
  return std::make_unique<StreamsWriteExecutor>(op);
}
std::unique_ptr<Executor> plan(const backend::StreamsLeave& op, const Context& context) {
  return std::make_unique<StreamsLeaveExecutor>(op, context);
}
std::unique_ptr<Executor> plan(const backend::MixResidual& op, const Context& context) {
  return std::make_unique<MixResidualExecutor>(op, context);
}

}  // namespace lemma::cpu
