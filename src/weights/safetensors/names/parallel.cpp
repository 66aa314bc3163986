// SPDX-License-Identifier: Apache-2.0
// Command-R and its kin, whose attention and feed-forward block stand side by side behind one norm,
// and Phi 3, whose projections are fused as in GGUF. Command-R turns neighbouring pairs already.
#include "weights/safetensors/names/families.hpp"

namespace lemma::weights::safetensors {
namespace {

constexpr TensorRule kCohere[] = {
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm"},
    {"layers.#.input_layernorm", "blk.#.attn_norm"},
    {"layers.#.self_attn.q_proj", "blk.#.attn_q"},
    {"layers.#.self_attn.k_proj", "blk.#.attn_k"},
    {"layers.#.self_attn.v_proj", "blk.#.attn_v"},
    {"layers.#.self_attn.o_proj", "blk.#.attn_output"},
    {"layers.#.self_attn.q_norm", "blk.#.attn_q_norm"},
    {"layers.#.self_attn.k_norm", "blk.#.attn_k_norm"},
    {"layers.#.mlp.gate_proj", "blk.#.ffn_gate"},
    {"layers.#.mlp.up_proj", "blk.#.ffn_up"},
    {"layers.#.mlp.down_proj", "blk.#.ffn_down"},
};

constexpr TensorRule kPhi3[] = {
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm"},
    {"layers.#.input_layernorm", "blk.#.attn_norm"},
    {"layers.#.self_attn.qkv_proj", "blk.#.attn_qkv"},
    {"layers.#.self_attn.o_proj", "blk.#.attn_output"},
    {"layers.#.post_attention_layernorm", "blk.#.ffn_norm"},
    {"layers.#.mlp.gate_up_proj", "blk.#.ffn_up"},
    {"layers.#.mlp.down_proj", "blk.#.ffn_down"},
};

constexpr TensorRule kPhi[] = {
    {"embed_tokens", "token_embd"},
    {"final_layernorm", "output_norm"},
    {"layers.#.input_layernorm", "blk.#.attn_norm"},
    {"layers.#.self_attn.q_proj", "blk.#.attn_q"},
    {"layers.#.self_attn.k_proj", "blk.#.attn_k"},
    {"layers.#.self_attn.v_proj", "blk.#.attn_v"},
    {"layers.#.self_attn.dense", "blk.#.attn_output"},
    {"layers.#.mlp.fc1", "blk.#.ffn_up"},
    {"layers.#.mlp.fc2", "blk.#.ffn_down"},
};

void phi_keys(Translation& t) {
  t.require("hidden_act", "gelu_new", "gelu_pytorch_tanh");
  t.require_flag("qk_layernorm", false);
  usual_rope(t);
}

constexpr KeyRule kLogits[] = {{"logit_scale", "logit_scale", kReal}};

void cohere_keys(Translation& t) {
  usual_keys(t);
  for (const char* described : {"attention_bias", "use_qk_norm"}) t.config().ignore(described);
}

void cohere2_keys(Translation& t) {
  cohere_keys(t);
  window_by_layer(t);
  t.require_number("sliding_window_pattern", 4.f);
  t.require_flag("use_embedding_sharing", true);
  t.require_flag("use_parallel_block", true);
  t.require_flag("use_parallel_embedding", false);
  t.require("position_embedding_type", "rope_gptj");
  for (const char* described : {"order_of_interleaved_layers", "rotary_pct", "cache_implementation",
                                "use_gated_activation"})
    t.config().ignore(described);
}

void phi3_keys(Translation& t) {
  usual_keys(t);
  window_of_all_layers(t);
  for (const char* described : {"attention_bias", "original_max_position_embeddings"})
    t.config().ignore(described);
}

constexpr Family kFamilies[] = {
    {"cohere", "command-r", "model.", kLogits, kCohere, cohere_keys},
    {"cohere2", "cohere2", "model.", kLogits, kCohere, cohere2_keys},
    {"phi", "phi2", "model.", {}, kPhi, phi_keys},
    {"phi3", "phi3", "model.", {}, kPhi3, phi3_keys},
};

}  // namespace

std::span<const Family> parallel_families() noexcept {
  return kFamilies;
}

}  // namespace lemma::weights::safetensors
