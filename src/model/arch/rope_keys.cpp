// SPDX-License-Identifier: Apache-2.0
// RoPE as GGUF keys and tensors describe it. What the keys mean: docs/contract.md, "RoPE".
#include <string>
#include <utility>

#include "base/raise.hpp"
#include "model/arch/arch.hpp"

namespace lemma::model::arch {
namespace {

using algorithm::FactorScaling;
using algorithm::RopeSpec;
using base::raise;

constexpr const char* kLongFactors = "rope_factors_long.weight";
constexpr const char* kShortFactors = "rope_factors_short.weight";
constexpr const char* kFrequencyFactors = "rope_freqs.weight";

// The frequency divisors of a tensor [R/2], which stands in the file like a weight. A factor of the
// whole is folded in.
FactorScaling factors(const Reader& reader, const char* tensor, std::uint32_t rotary_dim,
                      float factor) {
  FactorScaling scaling{reader.values(tensor, rotary_dim / 2)};
  for (float& value : scaling.factors) value *= factor;
  return scaling;
}

// LongRoPE: the long list counts for a context beyond the original one, for every position of it.
void apply_longrope(const Reader& reader, float factor, RopeSpec& rope) {
  const auto original = static_cast<float>(reader.original_context());
  FactorScaling lengths[] = {factors(reader, kShortFactors, rope.rotary_dim, factor),
                             factors(reader, kLongFactors, rope.rotary_dim, factor)};
  rope.scaling = std::move(lengths[reader.context() > reader.original_context()]);
  if (!reader.metadata().has(reader.key("rope.scaling.attn_factor")))
    rope.attention_factor = algorithm::longrope_magnitude(
        static_cast<float>(reader.trained_context()) / original, original);
}

void apply_yarn(const Reader& reader, float factor, RopeSpec& rope) {
  const auto& metadata = reader.metadata();
  algorithm::YarnScaling yarn;
  yarn.factor = factor;
  yarn.original_context = static_cast<float>(reader.original_context());
  yarn.beta_fast = metadata.f32_or(reader.key("rope.scaling.yarn_beta_fast"), 32.f);
  yarn.beta_slow = metadata.f32_or(reader.key("rope.scaling.yarn_beta_slow"), 1.f);
  // A key of lemma's own, for checkpoints that say so; GGUF files cannot.
  yarn.truncate = metadata.boolean_or(reader.key("rope.scaling.yarn_truncate"), true);
  rope.scaling = yarn;
  // Magnitude m(1) / m(log_multiplier); without a multiplier m(1) alone.
  rope.attention_factor *= algorithm::yarn_magnitude(factor, 1.f);
  if (const float multiplier = reader.scale("rope.scaling.yarn_log_multiplier", 0.f);
      multiplier != 0.f)
    rope.attention_factor /= algorithm::yarn_magnitude(factor, multiplier);
}

void apply_scaling(const Reader& reader, RopeSpec& rope) {
  // A factor without a type is linear; scale_linear is the key's name before there were types.
  float factor = reader.scale("rope.scale_linear", 0.f);
  factor = reader.scale("rope.scaling.factor", factor);
  const std::string type_key = reader.key("rope.scaling.type");
  const std::string type = reader.metadata().string_or(type_key, factor != 0.f ? "linear" : "none");
  if (factor == 0.f || type == "none") factor = 1.f;
  rope.attention_factor = reader.scale("rope.scaling.attn_factor", 1.f);

  // A key of lemma's own: behind the trained context the base would grow with the text.
  if (const std::string key = reader.key("rope.scaling.dynamic_factor");
      reader.scale("rope.scaling.dynamic_factor", 1.f) != 1.f &&
      reader.context() > reader.trained_context())
    raise(ErrorKind::kUnsupported,
          "key '{}': expected a context of at most {}, for which it changes nothing, found {}", key,
          reader.trained_context(), reader.context());

  const bool longrope = reader.has_tensor(kLongFactors) || reader.has_tensor(kShortFactors);
  if (type != "none" && type != "linear" && type != "yarn" && !(type == "longrope" && longrope))
    raise(ErrorKind::kUnsupported,
          "key '{}': expected none, linear, yarn, or longrope with its tensors, found '{}'",
          type_key, type);
  const bool listed = longrope || reader.has_tensor(kFrequencyFactors);
  if (type == "yarn" && listed)
    raise(ErrorKind::kUnsupported,
          "key '{}' is 'yarn', and there is a tensor '{}'; expected one of both", type_key,
          longrope ? kLongFactors : kFrequencyFactors);

  if (longrope) {
    apply_longrope(reader, factor, rope);
  } else if (listed) {
    rope.scaling = factors(reader, kFrequencyFactors, rope.rotary_dim, factor);
  } else if (type == "yarn") {
    apply_yarn(reader, factor, rope);
  } else if (factor != 1.f) {
    rope.scaling = algorithm::LinearScaling{factor};
  }
}

}  // namespace

RopeSpec Reader::rope(algorithm::RopeLayout layout) const {
  RopeSpec rope;
  rope.rotary_dim = metadata().u32_or(key("rope.dimension_count"), head_dim_);
  rope.theta = metadata().f32_or(key("rope.freq_base"), 10000.f);
  rope.layout = layout;
  try {
    rope.validate(head_dim_);
    apply_scaling(*this, rope);
    rope.validate(head_dim_);
  } catch (const Error& error) {
    throw error.within("keys '" + architecture_ + ".rope.*'");
  }
  return rope;
}

RopeSpec unscaled(RopeSpec rope, float theta) {
  rope.scaling = {};
  rope.attention_factor = 1.f;
  rope.theta = theta;
  return rope;
}

}  // namespace lemma::model::arch
