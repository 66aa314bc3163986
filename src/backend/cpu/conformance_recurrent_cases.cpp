// SPDX-License-Identifier: Apache-2.0
// Conformance cases of recurrent mixers and of the residual styles.
#include "backend/cpu/conformance_parts.hpp"

namespace lemma::backend::conformance {
namespace {

using weights::Format;
namespace tolerance = algorithm::tolerance;

// Recurrent mixers.

/// Three channels tensors or one, and as many convolutions, or one behind three tensors.
Case delta_net_case(algorithm::KeyHeads mapping, bool three, std::uint32_t kernel,
                    std::uint32_t value_dim, bool one_convolution = false) {
  CaseBuilder b("gated delta net, kernel " + std::to_string(kernel) + ", values of " +
                    std::to_string(value_dim) + (three ? ", three convolutions" : ""),
                61);
  algorithm::GatedDeltaNetSpec spec;
  spec.key_heads = 2;
  spec.value_heads = 4;
  spec.key_dim = 20;
  spec.value_dim = value_dim;
  spec.kernel = kernel;
  spec.mapping = mapping;
  Recur op;
  op.spec = spec;
  const SlotId first = slots(b, spec.slots());
  op.matrix = first;
  if (kernel > 1) op.history = first + 1;
  const std::uint32_t keys = 2 * 20, values = 4 * value_dim;
  for (const std::uint32_t width :
       three ? std::vector{keys, keys, values} : std::vector{spec.channels()}) {
    op.channels.push_back(b.embed(width));
    if (one_convolution) continue;
    op.convolutions.push_back(b.vector(std::uint64_t{width} * kernel));
  }
  if (one_convolution) {
    op.convolutions.push_back(b.vector(std::uint64_t{spec.channels()} * kernel));
  }
  op.rate = b.vector(4);
  op.dt_bias = b.vector(4);
  op.norm = b.vector(value_dim, 0.2f, 1.f);
  op.decay = b.embed(4);
  op.beta = b.embed(4);
  op.gate = b.embed(values);
  op.out = b.tensor(values);
  b.add(op);
  return b.finish(op.out, tolerance::recurrent(64, 1.0) + tolerance::kNorm);
}

Case kda_case(float bound, bool normalize, bool three) {
  CaseBuilder b("kda, bound " + std::to_string(bound), 62);
  algorithm::KdaSpec spec;
  spec.heads = 3;
  spec.dim = 24;
  spec.kernel = 4;
  spec.lower_bound = bound;
  spec.normalize_keys = normalize;
  Recur op;
  op.spec = spec;
  op.matrix = slots(b, spec.slots());
  op.history = op.matrix + 1;
  for (const std::uint32_t width : three ? std::vector{72u, 72u, 72u} : std::vector{3 * 72u}) {
    // Keys that are not normalised must be short, or the state grows without end.
    op.channels.push_back(b.embed(width, normalize ? 1.f : 0.3f));
    op.convolutions.push_back(b.vector(std::uint64_t{width} * 4, 0.5f));
  }
  op.rate = b.vector(3);
  op.dt_bias = b.vector(72);
  op.norm = b.vector(24, 0.2f, 1.f);
  op.decay = b.embed(72);
  op.beta = b.embed(3);
  op.gate = b.embed(72);
  op.out = b.tensor(72);
  b.add(op);
  return b.finish(op.out, tolerance::recurrent(64, 1.0) + tolerance::kNorm);
}

// Residual styles.

Case streams_case(Format format, bool learned_exit) {
  CaseBuilder b("streams " + name_of(format) + (learned_exit ? ", learned exit" : ", mean"), 71);
  constexpr std::uint32_t kStreams = 3, kWidth = 64;
  algorithm::HyperConnectionSpec spec;
  spec.streams = kStreams;
  spec.width = kWidth;
  spec.iterations = 5;
  const std::uint32_t mixes = (2 + kStreams) * kStreams;
  StreamsEnter enter{spec, b.embed(kWidth), b.tensor(kStreams * kWidth)};
  b.add(enter);
  Tensor streams = enter.out;
  // Twice, for only after the first are the streams not equal.
  for (int site = 0; site < 2; ++site) {
    StreamsRead read;
    read.spec = spec;
    read.fn = matrix(b, format, mixes, kStreams * kWidth);
    read.base = b.vector(mixes);
    read.scale = b.vector(3, 0.3f, 1.f);
    read.in = streams;
    read.out = b.tensor(kWidth);
    read.coefficients = b.tensor(mixes);
    b.add(read);
    const Tensor branch = b.tensor(kWidth);
    b.add(Add{read.out, b.embed(kWidth), branch, 0.5f, 0.9f});
    StreamsWrite write{spec, streams, read.coefficients, branch, b.tensor(kStreams * kWidth)};
    b.add(write);
    streams = write.out;
  }
  StreamsLeave leave;
  leave.spec = spec;
  if (learned_exit) {
    leave.fn = matrix(b, format, kStreams, kStreams * kWidth);
    leave.base = b.vector(kStreams);
    leave.scale = b.vector(1, 0.3f, 1.f);
  }
  leave.in = streams;
  leave.out = b.tensor(kWidth);
  b.add(leave);
  return b.finish(leave.out, format, 3.0 * tolerance::hyper_connection(kStreams * kWidth),
                  3.0 * tolerance::kInt8Project);
}

Case mix_residual_case(std::uint32_t blocks) {
  CaseBuilder b("mix of " + std::to_string(blocks) + " blocks", 72);
  MixResidual op;
  op.spec.block_size = 2;
  op.spec.width = 100;
  op.norm = b.vector(100, 0.2f, 1.f);
  op.projection = b.vector(100, 0.3f);
  for (std::uint32_t i = 0; i < blocks; ++i) op.blocks.push_back(b.embed(100));
  op.current = b.embed(100);
  op.out = b.tensor(100);
  b.add(op);
  return b.finish(op.out, tolerance::kNorm + tolerance::project(100) + tolerance::kElementwise);
}

}  // namespace

std::vector<Case> recurrent_family_cases() {
  return {delta_net_case(algorithm::KeyHeads::kGrouped, false, 4, 16),
          delta_net_case(algorithm::KeyHeads::kTiled, true, 3, 21),
          delta_net_case(algorithm::KeyHeads::kGrouped, false, 1, 16),
          delta_net_case(algorithm::KeyHeads::kTiled, true, 4, 32, true),
          kda_case(0.f, true, false),
          kda_case(-5.f, true, true),
          kda_case(-5.f, false, true)};
}

std::vector<Case> residual_family_cases() {
  return {streams_case(Format::kF32, true), streams_case(Format::kF16, false), mix_residual_case(0),
          mix_residual_case(3)};
}

}  // namespace lemma::backend::conformance
