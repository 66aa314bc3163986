// SPDX-License-Identifier: Apache-2.0
// OLMo 1 to 3 and OLMoE, StableLM and StarCoder 2. OLMo 1's rows are put in order as Llama's are;
// its layer norms have no weights and an eps that config.json does not state.
#include "base/raise.hpp"
#include "weights/safetensors/names/families.hpp"

namespace lemma::weights::safetensors {
namespace {

constexpr TensorRule kOlmo[] = {
    {"embed_tokens", "token_embd"},
    {"layers.#.self_attn.q_proj", "blk.#.attn_q", Change::kQueryRows},
    {"layers.#.self_attn.k_proj", "blk.#.attn_k", Change::kKeyRows},
    {"layers.#.self_attn.v_proj", "blk.#.attn_v"},
    {"layers.#.self_attn.o_proj", "blk.#.attn_output"},
    {"layers.#.mlp.gate_proj", "blk.#.ffn_gate"},
    {"layers.#.mlp.up_proj", "blk.#.ffn_up"},
    {"layers.#.mlp.down_proj", "blk.#.ffn_down"},
};

constexpr TensorRule kOlmo2[] = {
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm"},
    {"layers.#.self_attn.q_proj", "blk.#.attn_q"},
    {"layers.#.self_attn.k_proj", "blk.#.attn_k"},
    {"layers.#.self_attn.v_proj", "blk.#.attn_v"},
    {"layers.#.self_attn.o_proj", "blk.#.attn_output"},
    {"layers.#.self_attn.q_norm", "blk.#.attn_q_norm"},
    {"layers.#.self_attn.k_norm", "blk.#.attn_k_norm"},
    {"layers.#.post_attention_layernorm", "blk.#.post_attention_norm"},
    {"layers.#.mlp.gate_proj", "blk.#.ffn_gate"},
    {"layers.#.mlp.up_proj", "blk.#.ffn_up"},
    {"layers.#.mlp.down_proj", "blk.#.ffn_down"},
    {"layers.#.post_feedforward_layernorm", "blk.#.post_ffw_norm"},
};

constexpr TensorRule kPlain[] = {
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm"},
    {"layers.#.input_layernorm", "blk.#.attn_norm"},
    {"layers.#.self_attn.q_proj", "blk.#.attn_q"},
    {"layers.#.self_attn.k_proj", "blk.#.attn_k"},
    {"layers.#.self_attn.v_proj", "blk.#.attn_v"},
    {"layers.#.self_attn.o_proj", "blk.#.attn_output"},
    {"layers.#.self_attn.q_norm", "blk.#.attn_q_norm"},
    {"layers.#.self_attn.k_norm", "blk.#.attn_k_norm"},
    {"layers.#.post_attention_layernorm", "blk.#.ffn_norm"},
    {"layers.#.mlp.gate_proj", "blk.#.ffn_gate"},
    {"layers.#.mlp.up_proj", "blk.#.ffn_up"},
    {"layers.#.mlp.down_proj", "blk.#.ffn_down"},
    {"layers.#.mlp.c_fc", "blk.#.ffn_up"},
    {"layers.#.mlp.c_proj", "blk.#.ffn_down"},
    {"layers.#.mlp.gate", "blk.#.ffn_gate_inp"},
};

constexpr KeyRule kClip[] = {{"clip_qkv", "attention.clamp_kqv", kReal}};
constexpr auto kOlmoe = with_experts(kClip);

constexpr float kOlmoEps = 1e-5f;

void unbiased_keys(Translation& t) {
  usual_keys(t);
  describe(t, {"attention_bias"});
}

void olmo_keys(Translation& t) {
  unbiased_keys(t);
  t.set("attention.layer_norm_epsilon", kOlmoEps);
}

void olmoe_tensors(Translation& t) {
  usual_experts(t, "layers.#.mlp.experts", t.config().u32("num_experts"));
}

// Layers with a window turn by the base alone, the others by its scaling.
void olmo3_keys(Translation& t) {
  t.require("hidden_act", "silu");
  window_by_layer(t);
  describe(t, {"attention_bias"});
  if (!t.has_rope_of("full_attention")) return usual_rope(t);
  t.rope({.head_dim = t.head_dim()}, t.rope_of("full_attention"));
  const Config local = t.rope_of("sliding_attention");
  const float theta = t.rope_of("full_attention").f32_or("rope_theta", 10000.f);
  if (local.string_or("rope_type", "default") != "default" ||
      local.f32_or("rope_theta", 10000.f) != theta)
    base::raise(ErrorKind::kUnsupported,
                "config.json: key 'rope_parameters.sliding_attention': expected the rope_type "
                "default and the rope_theta of the other layers");
  local.refuse_unread(t.model_type());
}

// The tensors say which form a layer has: branches side by side have one norm.
void stablelm_keys(Translation& t) {
  usual_keys(t);
  describe(t, {"use_qkv_bias", "qk_layernorm", "use_parallel_residual"});
}

// Norms of q and k have weights for each head, stored one by one.
void stablelm_tensors(Translation& t) {
  const auto joined = [&](std::uint32_t layer, const char* from, const char* to,
                          std::uint32_t heads) {
    const std::string stem = numbered(from, layer);
    if (!t.has(stem + "0.weight")) return;
    std::vector<Source> each;
    for (std::uint32_t h = 0; h < heads; ++h)
      each.push_back(t.take(stem + std::to_string(h) + ".weight"));
    const std::string name = numbered(to, layer);
    t.put(name, stack(std::move(each), name));
  };
  const bool normed = t.config().boolean_or("qk_layernorm", false);
  for (std::uint32_t i = 0; i < t.layers(); ++i) {
    joined(i, "layers.#.self_attn.q_layernorm.norms.", "blk.#.attn_q_norm.weight", t.heads());
    joined(i, "layers.#.self_attn.k_layernorm.norms.", "blk.#.attn_k_norm.weight", t.kv_heads());
    const bool found = t.has(numbered("layers.#.self_attn.q_layernorm.norms.0.weight", i));
    const bool apart = t.has(numbered("layers.#.post_attention_layernorm.weight", i));
    if (found != normed || apart == t.config().boolean_or("use_parallel_residual", false))
      base::raise(ErrorKind::kBadFile,
                  "config.json: keys 'qk_layernorm' and 'use_parallel_residual' contradict the "
                  "norms of layer {}",
                  i);
  }
}

void starcoder2_keys(Translation& t) {
  t.require("hidden_act", "gelu_pytorch_tanh", "gelu_new");
  usual_rope(t);
  window_of_all_layers(t);
  describe(t, {"use_bias", "residual_dropout", "norm_type", "mlp_type"});
}

constexpr Family kFamilies[] = {
    {"olmo", "olmo", "model.", kClip, kOlmo, olmo_keys},
    {"olmo2", "olmo2", "model.", {}, kOlmo2, unbiased_keys},
    {"olmo3", "olmo2", "model.", {}, kOlmo2, olmo3_keys},
    {"olmoe", "olmoe", "model.", kOlmoe, kPlain, unbiased_keys, olmoe_tensors},
    {"stablelm", "stablelm", "model.", {}, kPlain, stablelm_keys, stablelm_tensors},
    {"starcoder2", "starcoder2", "model.", {}, kPlain, starcoder2_keys},
};

}  // namespace

std::span<const Family> olmo_families() noexcept {
  return kFamilies;
}

}  // namespace lemma::weights::safetensors
