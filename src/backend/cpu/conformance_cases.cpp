// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>
#include <memory>

#include "backend/cpu/conformance.hpp"

namespace lemma::backend::conformance {
namespace {

using algorithm::Tolerance;
using weights::Format;
namespace tolerance = algorithm::tolerance;

bool is_float(Format format) {
  return format == Format::kF32 || format == Format::kF16 || format == Format::kBF16;
}

}  // namespace

float CaseBuilder::normal() {
  float sum = 0.f;
  for (int i = 0; i < 3; ++i) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    sum += static_cast<float>(state_ >> 40) * 0x1p-23f - 1.f;
  }
  return sum;
}

WeightId CaseBuilder::weight(Format format, std::uint64_t rows, std::uint64_t cols, WeightUse use,
                             float scale) {
  std::vector<float> values(rows * cols);
  for (float& x : values) x = normal() * scale;
  auto bytes = std::make_shared<std::vector<std::byte>>(rows * weights::row_bytes(format, cols));
  weights::traits(format).quantize(values, bytes->data());
  CaseWeight weight;
  weight.matrix = {format, rows, cols, bytes->data(), bytes, "w"};
  weight.use = use;
  case_.weights.push_back(std::move(weight));
  return static_cast<WeightId>(case_.weights.size() - 1);
}

WeightId CaseBuilder::vector(std::uint64_t n, float scale, float offset) {
  const WeightId id = weight(Format::kF32, 1, n, WeightUse::kVector, scale);
  auto* const values =
      reinterpret_cast<float*>(const_cast<std::byte*>(case_.weights.back().matrix.bytes));
  for (std::uint64_t i = 0; i < n; ++i) values[i] += offset;
  return id;
}

WeightId CaseBuilder::table(std::uint64_t cols,
                            const std::function<float(std::uint64_t, std::uint64_t)>& element) {
  const WeightId id = weight(Format::kF32, kVocabulary, cols, WeightUse::kTable);
  auto* const values =
      reinterpret_cast<float*>(const_cast<std::byte*>(case_.weights.back().matrix.bytes));
  for (std::uint64_t i = 0; i < kVocabulary * cols; ++i) values[i] = element(i / cols, i % cols);
  return id;
}

Tensor CaseBuilder::tensor(std::uint32_t width) {
  return case_.program.tensor("t" + std::to_string(case_.program.tensors.size()), width);
}

Tensor CaseBuilder::embed(std::uint32_t width, float scale) {
  const Tensor out = tensor(width);
  Embed op;
  op.table = weight(Format::kF32, kVocabulary, width, WeightUse::kTable, scale);
  op.out = out;
  add(op);
  return out;
}

Tensor CaseBuilder::project(Tensor in, std::uint32_t width, Format format) {
  const Tensor out = tensor(width);
  const float scale = 1.f / std::sqrt(static_cast<float>(in.width));
  add(Project{in, {{weight(format, width, in.width, WeightUse::kMatrix, scale), kNoWeight, out}}});
  return out;
}

Case CaseBuilder::finish(Tensor site, Tolerance tolerance) {
  case_.site = case_.program.tensors[static_cast<std::size_t>(site.id)].name;
  case_.tolerance = case_.bf16 = case_.whole = tolerance;
  return std::move(case_);
}

// Rounding to bf16 moves a number by at most 2^-8 of itself, with a standard deviation of 0.72 *
// 2^-8 / sqrt 3 = 1.6e-3. Weights and activations both do: 2.3e-3 of the output's size.
// tolerance::kInt8Project is made of 1.3e-2, with the same margins.
constexpr double kBf16OfInt8 = 0.18;
// tolerance::kWholeProject to kInt8Project, which are made alike.
constexpr double kWholeOfInt8 = 0.09;

/// Sets the tolerances of a case whose 16-bit weights meet rounded rows.
void round_entered(Case& done, Tolerance exact, Tolerance int8) {
  done.bf16 = exact + kBf16OfInt8 * int8;
  done.whole = exact + kWholeOfInt8 * int8;
}

Case CaseBuilder::finish(Tensor site, Format format, Tolerance exact, Tolerance int8) {
  Case done = finish(site, is_float(format) ? exact : int8);
  if (format != Format::kF32 && is_float(format)) round_entered(done, exact, int8);
  return done;
}

Tolerance bound(const Case& c, EnteredRows entered) {
  switch (entered) {
    case EnteredRows::kBf16:
      return c.bf16;
    case EnteredRows::kWhole:
      return c.whole;
    case EnteredRows::kAsGenerated:
      break;
  }
  return c.tolerance;
}

Case CaseBuilder::finish_with_logits(Tolerance tolerance) {
  case_.site = "logits";
  case_.program.vocabulary = kVocabulary;
  case_.tolerance = case_.bf16 = case_.whole = tolerance;
  return std::move(case_);
}

Case embed_case(bool positions) {
  CaseBuilder b(positions ? "embed with learned positions" : "embed", 1);
  const Tensor out = b.tensor(96);
  const WeightId table = b.weight(Format::kQ8_0, CaseBuilder::kVocabulary, 96, WeightUse::kTable);
  const WeightId learned =
      positions ? b.weight(Format::kF16, 256, 96, WeightUse::kTable) : kNoWeight;
  Embed op{.table = table, .positions = learned};
  op.scale = 1.5f;
  op.out = out;
  b.add(op);
  return b.finish(out, {});  // copies and one rounding each: equal
}

Case norm_case(algorithm::NormKind kind, std::uint32_t group, bool per_group) {
  CaseBuilder b(std::string(kind == algorithm::NormKind::kRms ? "rms" : "layer") + " norm, group " +
                    std::to_string(group) + (per_group ? ", weight per group" : ""),
                2);
  const Tensor in = b.embed(160, 30.f), out = b.tensor(160);
  const std::uint32_t n = group != 0 && !per_group ? group : 160;
  b.add(Norm{{kind, 1e-5f},
             b.vector(n, 0.3f, 1.f),
             kind == algorithm::NormKind::kLayer ? b.vector(n) : kNoWeight,
             group,
             per_group,
             in,
             out});
  return b.finish(out, tolerance::kNorm);
}

Case project_case(Format format, std::uint32_t cols, bool bias, float clamp) {
  CaseBuilder b("project " + std::string(weights::traits(format).name) + " x" +
                    std::to_string(cols) + (bias ? " bias" : "") + (clamp != 0.f ? " clamp" : ""),
                3);
  const Tensor in = b.embed(cols), first = b.tensor(48), out = b.tensor(301);
  const float scale = 1.f / std::sqrt(static_cast<float>(cols));
  Project op{in, {}, clamp};
  op.outputs.push_back(
      {b.weight(Format::kF32, 48, cols, WeightUse::kMatrix, scale), kNoWeight, first});
  op.outputs.push_back({b.weight(format, 301, cols, WeightUse::kMatrix, scale),
                        bias ? b.vector(301) : kNoWeight, out});
  b.add(op);
  return b.finish(out, format, tolerance::project(cols), tolerance::kInt8Project);
}

Case rotate_case(const algorithm::RopeSpec& rope, std::uint32_t head_dim, bool inverse) {
  CaseBuilder b("rotate", 4);
  const Tensor in = b.embed(head_dim * 3), out = b.tensor(head_dim * 3);
  b.add(Rotate{b.program().rope(rope), head_dim, inverse, in, out});
  return b.finish(out, tolerance::kRotate);
}

Case attend_case(const algorithm::GqaSpec& spec, const std::string& name) {
  CaseBuilder b("attend " + name, 5);
  const Tensor x = b.embed(64);
  const Tensor q = b.project(x, spec.query_heads * spec.head_dim, Format::kF32);
  const Tensor k = b.project(x, spec.kv_heads * spec.head_dim, Format::kF32);
  const Tensor v = b.project(x, spec.kv_heads * spec.value_dim, Format::kF32);
  const Tensor out = b.tensor(spec.query_heads * spec.value_dim);
  b.program().slots = spec.slots();
  b.add(Store{0, k});
  b.add(Store{1, v});
  b.add(Attend{spec, 0, 1, spec.sinks ? b.vector(spec.query_heads) : kNoWeight, q, {}, out});
  // The projections before it differ by their own tolerance, which attention passes on.
  return beside_f16(b.finish(out, tolerance::kAttend + 3.0 * tolerance::project(64)));
}

Case gate_case() {
  CaseBuilder b("gate", 6);
  const Tensor in = b.embed(70), gate = b.embed(70, 5.f), out = b.tensor(70);
  b.add(Gate{in, gate, out});
  return b.finish(out, tolerance::kElementwise);
}

Case mlp_case(algorithm::Activation activation, bool gated, Format format) {
  CaseBuilder b("mlp " + std::to_string(int(activation)) + (gated ? " gated " : " plain ") +
                    std::string(weights::traits(format).name),
                7);
  const std::uint32_t width = 256, hidden = 512;
  Mlp op;
  op.spec.activation.kind = activation;
  if (activation == algorithm::Activation::kSwigluOai) op.spec.activation.limit = 7.f;
  op.spec.gated = gated;
  op.spec.width = width;
  op.spec.hidden = hidden;
  if (gated) op.gate = b.weight(format, hidden, width, WeightUse::kMatrix, 0.1f);
  op.up = b.weight(format, hidden, width, WeightUse::kMatrix, 0.1f);
  op.down = b.weight(format, width, hidden, WeightUse::kMatrix, 0.05f);
  op.up_bias = b.vector(hidden);
  op.down_bias = b.vector(width);
  if (gated) op.gate_bias = b.vector(hidden);
  op.in = b.embed(width);
  op.out = b.tensor(width);
  b.add(op);
  return b.finish(op.out, format, tolerance::mlp(width, hidden), tolerance::kInt8Mlp);
}

Case add_case() {
  CaseBuilder b("add", 8);
  const Tensor x = b.embed(70), y = b.embed(70), out = b.tensor(70);
  b.add(Add{x, y, out, 0.7f, 1.3f});
  return b.finish(out, {});  // the same roundings in the same order
}

Case head_case(Format format, float softcap) {
  CaseBuilder b("head " + std::string(weights::traits(format).name), 9);
  const Tensor in = b.embed(256);
  b.add(Head{b.weight(format, CaseBuilder::kVocabulary, 256, WeightUse::kMatrix, 0.2f),
             b.vector(CaseBuilder::kVocabulary), 0.5f, softcap, in});
  Case done =
      b.finish_with_logits(is_float(format) ? tolerance::head(256) : tolerance::kInt8Project);
  if (is_float(format) && format != Format::kF32) {
    round_entered(done, tolerance::head(256), tolerance::kInt8Project);
  }
  return done;
}

Case decoder_case(Format format) {
  CaseBuilder b("decoder " + std::string(weights::traits(format).name), 10);
  const std::uint32_t width = 512, heads = 8, kv_heads = 2, dim = 64, hidden = 1024, layers = 2;
  algorithm::GqaSpec attention{.query_heads = heads,
                               .kv_heads = kv_heads,
                               .head_dim = dim,
                               .value_dim = dim,
                               .scale = 0.125f};
  algorithm::RopeSpec rope;
  rope.rotary_dim = dim;
  Tensor x = b.embed(width);
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    const auto normed = [&](Tensor in) {
      const Tensor out = b.tensor(in.width);
      b.add(Norm{{}, b.vector(in.width, 0.1f, 1.f), kNoWeight, 0, false, in, out});
      return out;
    };
    const auto rotated = [&](Tensor in) {
      const Tensor out = b.tensor(in.width);
      b.add(Rotate{b.program().rope(rope), dim, false, in, out});
      return out;
    };
    const auto sum = [&](Tensor a, Tensor c) {
      const Tensor out = b.tensor(width);
      b.add(Add{a, c, out});
      return out;
    };
    const Tensor h = normed(x), q = b.tensor(heads * dim), k = b.tensor(kv_heads * dim),
                 v = b.tensor(kv_heads * dim);
    const auto matrix = [&](std::uint32_t rows, std::uint32_t cols) {
      return b.weight(format, rows, cols, WeightUse::kMatrix, 1.f / std::sqrt(float(cols)));
    };
    b.add(Project{h,
                  {{matrix(heads * dim, width), kNoWeight, q},
                   {matrix(kv_heads * dim, width), kNoWeight, k},
                   {matrix(kv_heads * dim, width), kNoWeight, v}}});
    const Tensor turned_q = rotated(q), turned_k = rotated(k), attended = b.tensor(heads * dim);
    for (const algorithm::Slot& slot : attention.slots()) b.program().slots.push_back(slot);
    const auto key = static_cast<SlotId>(2 * layer), value = static_cast<SlotId>(2 * layer + 1);
    b.add(Store{key, turned_k});
    b.add(Store{value, v});
    b.add(Attend{attention, key, value, kNoWeight, turned_q, {}, attended});
    x = sum(x, b.project(attended, width, format));
    Mlp mlp;
    mlp.spec.width = width;
    mlp.spec.hidden = hidden;
    mlp.gate = matrix(hidden, width);
    mlp.up = matrix(hidden, width);
    mlp.down = matrix(width, hidden);
    mlp.in = normed(x);
    mlp.out = b.tensor(width);
    b.add(mlp);
    x = sum(x, mlp.out);
  }
  const Tensor last = b.tensor(width);
  b.add(Norm{{}, b.vector(width, 0.1f, 1.f), kNoWeight, 0, false, x, last});
  b.program().hidden = last;
  b.add(Head{b.weight(format, CaseBuilder::kVocabulary, width, WeightUse::kMatrix, 0.05f),
             kNoWeight, 1.f, 0.f, last});
  // Per layer five int8 products (q and k count once, in the scores) join the stream as independent
  // errors, and the head adds one; the norms keep their relative size.
  const Tolerance int8{0.0,
                       std::sqrt(5.0 * layers + 1.0) * tolerance::kInt8Project.absolute_of_max};
  Case done = b.finish_with_logits(is_float(format) ? tolerance::logits(layers) : int8);
  if (is_float(format) && format != Format::kF32) {
    round_entered(done, tolerance::logits(layers), int8);
  }
  return done;
}

}  // namespace lemma::backend::conformance
