// SPDX-License-Identifier: Apache-2.0
// OLMo 1, 2 and OLMoE, StableLM and StarCoder 2. OLMo 1's rows are put in order as Llama's are; its
// layer norms have no weights and an eps that config.json does not state.
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
constexpr KeyRule kOlmoe[] = {
    {"clip_qkv", "attention.clamp_kqv", kReal},
    {"num_experts", "expert_count"},
    {"num_experts_per_tok", "expert_used_count"},
    {"norm_topk_prob", "expert_weights_norm", kFlag},
};

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

void stablelm_keys(Translation& t) {
  usual_keys(t);
  t.require_flag("qk_layernorm", false);
  if (t.config().has("use_parallel_residual"))
    t.set("use_parallel_residual", t.config().boolean("use_parallel_residual"));
  t.require_flag("use_parallel_residual", false);
  describe(t, {"use_qkv_bias"});
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
    {"olmoe", "olmoe", "model.", kOlmoe, kPlain, unbiased_keys, olmoe_tensors},
    {"stablelm", "stablelm", "model.", {}, kPlain, stablelm_keys},
    {"starcoder2", "starcoder2", "model.", {}, kPlain, starcoder2_keys},
};

}  // namespace

std::span<const Family> olmo_families() noexcept {
  return kFamilies;
}

}  // namespace lemma::weights::safetensors
