// SPDX-License-Identifier: Apache-2.0
// GLM 4 and 4.5. GLM 4 turns neighbouring pairs already; its gate and up stand in one matrix, as in
// GGUF.
#include "weights/safetensors/names/families.hpp"

namespace lemma::weights::safetensors {
namespace {

constexpr TensorRule kGlm4[] = {
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm"},
    {"layers.#.input_layernorm", "blk.#.attn_norm"},
    {"layers.#.self_attn.q_proj", "blk.#.attn_q"},
    {"layers.#.self_attn.k_proj", "blk.#.attn_k"},
    {"layers.#.self_attn.v_proj", "blk.#.attn_v"},
    {"layers.#.self_attn.o_proj", "blk.#.attn_output"},
    {"layers.#.post_self_attn_layernorm", "blk.#.post_attention_norm"},
    {"layers.#.post_attention_layernorm", "blk.#.ffn_norm"},
    {"layers.#.mlp.gate_up_proj", "blk.#.ffn_up"},
    {"layers.#.mlp.down_proj", "blk.#.ffn_down"},
    {"layers.#.post_mlp_layernorm", "blk.#.post_ffw_norm"},
};

constexpr TensorRule kGlm4Moe[] = {
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm"},
    {"layers.#.input_layernorm", "blk.#.attn_norm"},
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
    {"layers.#.mlp.gate", "blk.#.ffn_gate_inp"},
    {"layers.#.mlp.gate.e_score_correction_bias", "blk.#.exp_probs_b.bias", Change::kNone, true},
    {"layers.#.mlp.shared_experts.gate_proj", "blk.#.ffn_gate_shexp"},
    {"layers.#.mlp.shared_experts.up_proj", "blk.#.ffn_up_shexp"},
    {"layers.#.mlp.shared_experts.down_proj", "blk.#.ffn_down_shexp"},
    {"layers.#.eh_proj", "blk.#.nextn.eh_proj"},
    {"layers.#.enorm", "blk.#.nextn.enorm"},
    {"layers.#.hnorm", "blk.#.nextn.hnorm"},
    {"layers.#.embed_tokens", "blk.#.nextn.embed_tokens"},
    {"layers.#.shared_head.norm", "blk.#.nextn.shared_head_norm"},
    {"layers.#.shared_head.head", "blk.#.nextn.shared_head_head"},
};

void glm4_keys(Translation& t) {
  usual_keys(t);
  describe(t, {"attention_bias"});
}

void glm4_moe_keys(Translation& t) {
  glm4_keys(t);
  t.set("expert_gating_func", kSigmoidScores);
  dense_layers_in_front(t);
  expert_groups(t, "n_group", "topk_group");
  describe(t, {"use_qk_norm", "num_nextn_predict_layers"});
}

void glm4_moe_tensors(Translation& t) {
  usual_experts(t, "layers.#.mlp.experts", t.config().u32("n_routed_experts"));
}

constexpr Family kFamilies[] = {
    {"glm4", "glm4", "model.", {}, kGlm4, glm4_keys},
    {"glm4_moe", "glm4moe", "model.", kExpertKeys, kGlm4Moe, glm4_moe_keys, glm4_moe_tensors, false,
     "{}", Drafts::kLayers},
};

}  // namespace

std::span<const Family> glm4_families() noexcept {
  return kFamilies;
}

}  // namespace lemma::weights::safetensors
