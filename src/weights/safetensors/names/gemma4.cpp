// SPDX-License-Identifier: Apache-2.0
// Gemma 4. Layers with a window and global ones have heads of different sizes (per_layer_config, or
// global_head_dim and num_global_key_value_heads). Global layers turn the first share of their
// pairs by frequencies of the whole head; the others, which do not turn, get a divisor beyond every
// position, as in GGUF files.
#include <algorithm>

#include "base/raise.hpp"
#include "weights/safetensors/names/families.hpp"

namespace lemma::weights::safetensors {
namespace {

constexpr TensorRule kGemma4[] = {
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm"},
    {"embed_tokens_per_layer", "per_layer_token_embd"},
    {"per_layer_model_projection", "per_layer_model_proj"},
    {"per_layer_projection_norm", "per_layer_proj_norm"},
    {"layers.#.input_layernorm", "blk.#.attn_norm"},
    {"layers.#.self_attn.q_proj", "blk.#.attn_q"},
    {"layers.#.self_attn.k_proj", "blk.#.attn_k"},
    {"layers.#.self_attn.v_proj", "blk.#.attn_v"},
    {"layers.#.self_attn.o_proj", "blk.#.attn_output"},
    {"layers.#.self_attn.q_norm", "blk.#.attn_q_norm"},
    {"layers.#.self_attn.k_norm", "blk.#.attn_k_norm"},
    {"layers.#.post_attention_layernorm", "blk.#.post_attention_norm"},
    {"layers.#.pre_feedforward_layernorm", "blk.#.ffn_norm"},
    {"layers.#.mlp.gate_proj", "blk.#.ffn_gate"},
    {"layers.#.mlp.up_proj", "blk.#.ffn_up"},
    {"layers.#.mlp.down_proj", "blk.#.ffn_down"},
    {"layers.#.post_feedforward_layernorm", "blk.#.post_ffw_norm"},
    {"layers.#.post_feedforward_layernorm_1", "blk.#.post_ffw_norm_1"},
    {"layers.#.pre_feedforward_layernorm_2", "blk.#.pre_ffw_norm_2"},
    {"layers.#.post_feedforward_layernorm_2", "blk.#.post_ffw_norm_2"},
    {"layers.#.router.proj", "blk.#.ffn_gate_inp"},
    {"layers.#.router.scale", "blk.#.ffn_gate_inp.scale", Change::kNone, true},
    {"layers.#.router.per_expert_scale", "blk.#.ffn_down_exps.scale", Change::kNone, true},
    {"layers.#.experts.gate_up_proj", "blk.#.ffn_gate_up_exps.weight", Change::kNone, true},
    {"layers.#.experts.down_proj", "blk.#.ffn_down_exps.weight", Change::kNone, true},
    {"layers.#.per_layer_input_gate", "blk.#.inp_gate"},
    {"layers.#.per_layer_projection", "blk.#.proj"},
    {"layers.#.post_per_layer_input_norm", "blk.#.post_norm"},
    {"layers.#.layer_scalar", "blk.#.layer_output_scale.weight", Change::kNone, true},
};

constexpr KeyRule kKeys[] = {
    {"final_logit_softcapping", "final_logit_softcapping", kReal},
    {"hidden_size_per_layer_input", "embedding_length_per_layer_input"},
    {"num_kv_shared_layers", "attention.shared_kv_layers"},
    {"num_experts", "expert_count"},
    {"top_k_experts", "expert_used_count"},
    {"moe_intermediate_size", "expert_feed_forward_length"},
};

constexpr std::uint32_t kGlobalHeadDim = 512;
constexpr std::uint32_t kMaxHeadDim = 1u << 16;
/// A divisor that leaves a pair where it is.
constexpr float kNeverTurns = 1e30f;

struct Heads {
  std::uint32_t global_dim = 0;
  std::vector<std::uint32_t> kv_heads;  ///< by layer
};

Heads heads_of(Translation& t, const std::vector<bool>& global) {
  const Config& config = t.config();
  const std::uint32_t global_kv = config.boolean_or("attention_k_eq_v", false)
                                      ? config.u32_or("num_global_key_value_heads", t.kv_heads())
                                      : t.kv_heads();
  Heads heads{.global_dim = config.u32_or("global_head_dim", kGlobalHeadDim), .kv_heads = {}};
  const bool listed = config.is_object("per_layer_config");
  for (std::uint32_t i = 0; i < t.layers(); ++i) {
    std::uint32_t kv = global[i] ? global_kv : t.kv_heads(), dim = global[i] ? 0 : t.head_dim();
    const std::string layer = std::to_string(i);
    if (listed && config.object("per_layer_config").is_object(layer)) {
      const Config own = config.object("per_layer_config").object(layer);
      kv = own.u32_or("num_key_value_heads", kv);
      dim = own.u32_or("head_dim", dim);
      own.refuse_unread(t.model_type());
    }
    if (global[i] && dim != 0) heads.global_dim = dim;
    if (!global[i] && dim != t.head_dim())
      base::raise(
          ErrorKind::kUnsupported,
          "config.json: key 'per_layer_config.{}': expected heads of {} dims in a layer with "
          "a window, found {}",
          layer, t.head_dim(), dim);
    heads.kv_heads.push_back(kv);
  }
  if (heads.global_dim < 2 || heads.global_dim > kMaxHeadDim || heads.global_dim % 2 != 0)
    base::raise(ErrorKind::kBadFile, "config.json: expected global heads of an even size, found {}",
                heads.global_dim);
  return heads;
}

void rotations(Translation& t, std::uint32_t global_dim) {
  const Config global = t.rope_of("full_attention"), local = t.rope_of("sliding_attention");
  if (global.string("rope_type") != "proportional" ||
      local.string_or("rope_type", "default") != "default")
    base::raise(ErrorKind::kUnsupported,
                "config.json: key 'rope_parameters': expected rope_type proportional in global "
                "layers and default in the others");
  if (global.f32_or("factor", 1.f) != 1.f)
    base::raise(ErrorKind::kUnsupported,
                "config.json: key 'rope_parameters.full_attention.factor': expected 1 or none");
  const float share = global.f32_or("partial_rotary_factor", 1.f);
  if (!(share > 0.f) || share > 1.f)
    base::raise(ErrorKind::kBadFile,
                "config.json: expected a partial_rotary_factor in (0, 1], found {}", share);
  const auto turning = static_cast<std::size_t>(share * static_cast<float>(global_dim) / 2.f);
  std::vector<float> factors(global_dim / 2, kNeverTurns);
  std::fill_n(factors.begin(), turning, 1.f);
  t.put("rope_freqs.weight", constant("partial_rotary_factor", std::move(factors)));
  t.set("rope.freq_base", global.f32_or("rope_theta", 1e6f));
  t.set("rope.freq_base_swa", local.f32_or("rope_theta", 10000.f));
  t.set("rope.dimension_count", global_dim);
  t.set("rope.dimension_count_swa", t.head_dim());
  global.refuse_unread(t.model_type());
  local.refuse_unread(t.model_type());
}

void keys(Translation& t) {
  const Config& config = t.config();
  t.require("hidden_activation", "gelu_pytorch_tanh");
  t.require("use_bidirectional_attention", "vision");  // images see each other, text does not
  if (!t.has_rope_of("full_attention") || !t.has_rope_of("sliding_attention"))
    base::raise(ErrorKind::kUnsupported,
                "config.json: key 'rope_parameters': expected full_attention and "
                "sliding_attention");
  window_by_layer(t);
  const std::vector<bool> global = t.layers_called("full_attention");
  if (global.empty()) base::raise(ErrorKind::kBadFile, "config.json: key 'layer_types' is missing");
  const Heads heads = heads_of(t, global);
  t.set("attention.key_length", heads.global_dim);
  t.set("attention.value_length", heads.global_dim);
  t.set("attention.key_length_swa", t.head_dim());
  t.set("attention.value_length_swa", t.head_dim());
  t.set("attention.head_count_kv", heads.kv_heads);
  rotations(t, heads.global_dim);
  // Layers that read another's keys may have a feed-forward block of twice the width.
  if (config.boolean_or("use_double_wide_mlp", false)) {
    const std::uint32_t width = config.u32("intermediate_size");
    const std::uint32_t shared = std::min(config.u32_or("num_kv_shared_layers", 0), t.layers());
    if (width > kMaxHeadDim * 16)
      base::raise(ErrorKind::kBadFile, "config.json: key 'intermediate_size' is {}", width);
    std::vector<std::uint32_t> widths(t.layers(), width);
    for (std::uint32_t i = t.layers() - shared; i < t.layers(); ++i) widths[i] = 2 * width;
    t.set("feed_forward_length", widths);
  }
  describe(t, {"attention_bias", "enable_moe_block", "vocab_size_per_layer_input",
               "num_global_key_value_heads", "global_head_dim"});
}

constexpr Family kFamilies[] = {
    {"gemma4", "gemma4", "model.", kKeys, kGemma4, keys},
    {"gemma4_text", "gemma4", "model.", kKeys, kGemma4, keys},
};

}  // namespace

std::span<const Family> gemma4_families() noexcept {
  return kFamilies;
}

}  // namespace lemma::weights::safetensors
