// SPDX-License-Identifier: Apache-2.0
// Gemma 1 to 3: norms are stored around zero. Gemma 3 has a rotation for layers with a window and
// one for the others; the wrapper for images has the text model's keys in text_config.
#include <cmath>

#include "weights/safetensors/names/families.hpp"

namespace lemma::weights::safetensors {
namespace {

constexpr TensorRule kGemma[] = {
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm", Change::kAddOne},
    {"layers.#.input_layernorm", "blk.#.attn_norm", Change::kAddOne},
    {"layers.#.self_attn.q_proj", "blk.#.attn_q"},
    {"layers.#.self_attn.k_proj", "blk.#.attn_k"},
    {"layers.#.self_attn.v_proj", "blk.#.attn_v"},
    {"layers.#.self_attn.o_proj", "blk.#.attn_output"},
    {"layers.#.mlp.gate_proj", "blk.#.ffn_gate"},
    {"layers.#.mlp.up_proj", "blk.#.ffn_up"},
    {"layers.#.mlp.down_proj", "blk.#.ffn_down"},
    {"layers.#.post_attention_layernorm", "blk.#.ffn_norm", Change::kAddOne},
};

constexpr TensorRule kSandwich[] = {
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm", Change::kAddOne},
    {"layers.#.input_layernorm", "blk.#.attn_norm", Change::kAddOne},
    {"layers.#.self_attn.q_proj", "blk.#.attn_q"},
    {"layers.#.self_attn.k_proj", "blk.#.attn_k"},
    {"layers.#.self_attn.v_proj", "blk.#.attn_v"},
    {"layers.#.self_attn.o_proj", "blk.#.attn_output"},
    {"layers.#.self_attn.q_norm", "blk.#.attn_q_norm", Change::kAddOne},
    {"layers.#.self_attn.k_norm", "blk.#.attn_k_norm", Change::kAddOne},
    {"layers.#.post_attention_layernorm", "blk.#.post_attention_norm", Change::kAddOne},
    {"layers.#.pre_feedforward_layernorm", "blk.#.ffn_norm", Change::kAddOne},
    {"layers.#.mlp.gate_proj", "blk.#.ffn_gate"},
    {"layers.#.mlp.up_proj", "blk.#.ffn_up"},
    {"layers.#.mlp.down_proj", "blk.#.ffn_down"},
    {"layers.#.post_feedforward_layernorm", "blk.#.post_ffw_norm", Change::kAddOne},
};

constexpr KeyRule kCaps[] = {{"attn_logit_softcapping", "attn_logit_softcapping", kReal},
                             {"final_logit_softcapping", "final_logit_softcapping", kReal}};

void gelu(Translation& t) {
  t.require("hidden_activation", "gelu_pytorch_tanh", "gelu_new");
  // The older of the two keys was written by mistake; the models have always had the tanh form.
  t.require("hidden_act", "gelu_pytorch_tanh", "gelu");
  for (const char* described : {"attention_bias", "cache_implementation"})
    t.config().ignore(described);
}

void gemma_keys(Translation& t) {
  gelu(t);
  usual_rope(t);
}

void query_scale(Translation& t) {
  const float scalar = t.config().f32_or("query_pre_attn_scalar", static_cast<float>(t.head_dim()));
  t.set("attention.scale", scalar > 0.f ? 1.f / std::sqrt(scalar) : 0.f);
}

void gemma2_keys(Translation& t) {
  gemma_keys(t);
  query_scale(t);
  window_by_layer(t);
}

void gemma3_keys(Translation& t) {
  gelu(t);
  query_scale(t);
  window_by_layer(t);
  t.require_flag("use_bidirectional_attention", false);
  const Translation::RopeOptions options{.head_dim = t.head_dim(), .theta = 1e6f};
  if (t.has_rope_of("full_attention")) {
    t.rope(options, t.rope_of("full_attention"));
    const Config local = t.rope_of("sliding_attention");
    if (local.string_or("rope_type", "default") == "default") local.ignore("rope_type");
    t.set("rope.freq_base_swa", local.f32_or("rope_theta", 10000.f));
    local.refuse_unread(t.model_type());
  } else {
    t.rope(options);
    t.set("rope.freq_base_swa", t.config().f32_or("rope_local_base_freq", 10000.f));
  }
  const std::uint32_t period =
      t.config().u32_or("sliding_window_pattern", t.config().u32_or("_sliding_window_pattern", 6));
  if (!t.is_set("attention.sliding_window_pattern") && t.is_set("attention.sliding_window"))
    t.set("attention.sliding_window_pattern", period);
}

// The wrapper of the larger models states little of its text model.
constexpr std::string_view kGemma3Defaults = R"({
  "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "rms_norm_eps": 1e-6,
  "max_position_embeddings": 131072, "query_pre_attn_scalar": 256, "sliding_window": 4096})";

constexpr Family kFamilies[] = {
    {"gemma", "gemma", "model.", {}, kGemma, gemma_keys},
    {"gemma2", "gemma2", "model.", kCaps, kSandwich, gemma2_keys},
    {"gemma3", "gemma3", "model.", kCaps, kSandwich, gemma3_keys, nullptr, false, kGemma3Defaults},
    {"gemma3_text", "gemma3", "model.", kCaps, kSandwich, gemma3_keys, nullptr, false,
     kGemma3Defaults},
};

}  // namespace

std::span<const Family> gemma_families() noexcept {
  return kFamilies;
}

}  // namespace lemma::weights::safetensors
