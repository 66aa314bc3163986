// SPDX-License-Identifier: Apache-2.0
// How config.json describes rotation: one object rope_parameters (one per kind of layer in some
// families), or the older pair rope_theta and rope_scaling. What the keys mean: docs/contract.md,
// "RoPE". Llama 3's rule and LongRoPE's lists become tensors, as in GGUF.
#include <cmath>
#include <numbers>
#include <optional>

#include "base/raise.hpp"
#include "weights/safetensors/translation.hpp"

namespace lemma::weights::safetensors {
namespace {

using base::raise;

float yarn_magnitude(float factor, float scale) {
  return factor <= 1.f ? 1.f : 0.1f * scale * std::log(factor) + 1.f;
}

/// Llama 3: low frequencies are divided by the factor, high ones stay, between them a blend.
std::vector<float> llama3_factors(const Config& rope, std::uint32_t rotary, float theta) {
  const double factor = rope.f32("factor");
  const double low = rope.f32("low_freq_factor"), high = rope.f32("high_freq_factor");
  const double original = rope.u32("original_max_position_embeddings");
  if (!(factor > 0) || !(low > 0) || !(high > low))
    raise(ErrorKind::kBadFile,
          "config.json: rope type 'llama3': expected a positive factor and low_freq_factor < "
          "high_freq_factor, found {}, {} and {}",
          factor, low, high);
  std::vector<float> factors;
  for (std::uint32_t i = 0; i < rotary / 2; ++i) {
    const double wavelength = 2 * std::numbers::pi * std::pow(double{theta}, 2.0 * i / rotary);
    double divisor = 1;
    if (wavelength > original / low) {
      divisor = factor;
    } else if (wavelength >= original / high) {
      const double smooth = (original / wavelength - low) / (high - low);
      divisor = 1 / ((1 - smooth) / factor + smooth);
    }
    factors.push_back(static_cast<float>(divisor));
  }
  return factors;
}

void yarn(Translation& t, const Config& rope, const Translation::RopeOptions& options) {
  const std::uint32_t original = rope.u32("original_max_position_embeddings");
  const auto trained = static_cast<float>(t.config().u32("max_position_embeddings"));
  const float factor = rope.f32_or("factor", trained / static_cast<float>(original ? original : 1));
  const float scale = rope.f32_or("mscale", 0.f), all = rope.f32_or("mscale_all_dim", 0.f);
  t.set("rope.scaling.type", "yarn");
  t.set("rope.scaling.factor", factor);
  t.set("rope.scaling.original_context_length", original);
  if (rope.has("beta_fast")) t.set("rope.scaling.yarn_beta_fast", rope.f32("beta_fast"));
  if (rope.has("beta_slow")) t.set("rope.scaling.yarn_beta_slow", rope.f32("beta_slow"));
  if (!rope.boolean_or("truncate", true)) t.set("rope.scaling.yarn_truncate", false);
  if (!options.magnitude) return rope.ignore("attention_factor");
  if (options.latent) {
    if (rope.has("attention_factor"))
      raise(ErrorKind::kUnsupported,
            "config.json: key 'attention_factor': expected none with latent attention");
    if (all != 0.f) t.set("rope.scaling.yarn_log_multiplier", 0.1f * all);
    if (all != 0.f && scale != 0.f && scale != all && scale != 1.f)
      raise(ErrorKind::kUnsupported,
            "config.json: keys 'mscale' and 'mscale_all_dim': expected equal numbers, or 1 for the "
            "first, found {} and {}",
            scale, all);
    return;
  }
  // The magnitude of these files, over the one that the key multiplies.
  float magnitude = yarn_magnitude(factor, 1.f);
  if (scale != 0.f && all != 0.f)
    magnitude = yarn_magnitude(factor, scale) / yarn_magnitude(factor, all);
  magnitude = rope.f32_or("attention_factor", magnitude);
  if (magnitude != yarn_magnitude(factor, 1.f))
    t.set("rope.scaling.attn_factor", magnitude / yarn_magnitude(factor, 1.f));
}

void longrope(Translation& t, const Config& rope, std::uint32_t rotary) {
  const Config& config = t.config();
  const std::uint32_t original = rope.has("original_max_position_embeddings")
                                     ? rope.u32("original_max_position_embeddings")
                                     : config.u32("original_max_position_embeddings");
  t.set("rope.scaling.type", "longrope");
  t.set("rope.scaling.original_context_length", original);
  if (rope.has("attention_factor")) {
    t.set("rope.scaling.attn_factor", rope.f32("attention_factor"));
  } else if (rope.has("factor")) {  // else it follows from the two lengths
    const float factor = rope.f32("factor");
    const float gain = std::log(factor) / std::log(static_cast<float>(original));
    t.set("rope.scaling.attn_factor", factor > 1.f ? std::sqrt(1.f + gain) : 1.f);
  }
  for (const char* length : {"long", "short"}) {
    const std::string key = std::string(length) + "_factor";
    std::vector<float> factors = rope.f32s(key);
    if (factors.size() != rotary / 2)
      raise(ErrorKind::kBadFile, "config.json: key '{}': expected {} numbers, found {}", key,
            rotary / 2, factors.size());
    t.put(std::string("rope_factors_") + length + ".weight", constant(key, std::move(factors)));
  }
}

}  // namespace

bool Translation::has_rope_of(std::string_view layer_type) const {
  return config_.is_object("rope_parameters") &&
         config_.object("rope_parameters").is_object(layer_type);
}

Config Translation::rope_of(std::string_view layer_type) const {
  return config_.object("rope_parameters").object(layer_type);
}

void Translation::rope(const RopeOptions& options) {
  if (config_.is_object("rope_parameters")) return rope(options, config_.object("rope_parameters"));
  // Without scaling the flat keys of the config say all that there is.
  const bool scaled = config_.is_object("rope_scaling");
  rope(options, scaled ? config_.object("rope_scaling") : config_);
}

void Translation::rope(const RopeOptions& options, const Config& parameters) {
  const auto number = [&](std::string_view key, float fallback) {
    return parameters.has(key) ? parameters.f32(key) : config_.f32_or(key, fallback);
  };
  const float theta = options.fixed_theta
                          ? options.theta
                          : number("rope_theta", number("rotary_emb_base", options.theta));
  const float share = number("partial_rotary_factor", number("rotary_pct", 1.f));
  if (!(theta > 0.f) || !(share > 0.f) || share > 1.f)
    raise(
        ErrorKind::kBadFile,
        "config.json: expected a positive rope_theta and a partial_rotary_factor in (0, 1], found "
        "{} and {}",
        theta, share);
  rotary_dim_ = static_cast<std::uint32_t>(static_cast<float>(options.head_dim) * share);
  if (rotary_dim_ == 0 || rotary_dim_ % 2 != 0)
    raise(ErrorKind::kBadFile, "config.json: an even number of dims must turn, found {}",
          rotary_dim_);
  set(options.theta_key, theta);
  set("rope.dimension_count", rotary_dim_);
  const std::string_view key =
      parameters.has("rope_type") || !parameters.has("type") ? "rope_type" : "type";
  const bool flat = !config_.is_object("rope_parameters") && !config_.is_object("rope_scaling");
  const std::string type = flat ? "default" : parameters.string_or(key, "default");
  parameters.ignore("type");
  if (type == "dynamic") {
    // Up to the context that config.json states this is the plain rotation.
    set("rope.scaling.dynamic_factor", parameters.f32("factor"));
    parameters.ignore("original_max_position_embeddings");
  } else if (type == "linear") {
    set("rope.scaling.type", "linear");
    set("rope.scaling.factor", parameters.f32("factor"));
  } else if (type == "llama3") {
    put("rope_freqs.weight", constant("rope", llama3_factors(parameters, rotary_dim_, theta)));
  } else if (type == "yarn") {
    yarn(*this, parameters, options);
  } else if (type == "longrope" || type == "su") {
    longrope(*this, parameters, rotary_dim_);
  } else if (type != "default") {
    raise(ErrorKind::kUnsupported,
          "config.json: key '{}': expected default, linear, dynamic, llama3, yarn or longrope, "
          "found '{}'",
          key, type);
  }
  if (!flat) parameters.refuse_unread(family_.model_type);
}

}  // namespace lemma::weights::safetensors
