// SPDX-License-Identifier: Apache-2.0
// Latent attention with experts: DeepSeek V2, V3 and V3.2, GLM 5. Both halves of the expansion stay
// in one matrix, [key | value] rows by head, as older GGUF files have it. The block behind the last
// layer, where a file has it, predicts one more token.
#include "weights/safetensors/names/families.hpp"

namespace lemma::weights::safetensors {
namespace {

constexpr TensorRule kLatent[] = {
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm"},
    {"layers.#.input_layernorm", "blk.#.attn_norm"},
    {"layers.#.self_attn.q_proj", "blk.#.attn_q"},
    {"layers.#.self_attn.q_a_proj", "blk.#.attn_q_a"},
    {"layers.#.self_attn.q_a_layernorm", "blk.#.attn_q_a_norm"},
    {"layers.#.self_attn.q_b_proj", "blk.#.attn_q_b"},
    {"layers.#.self_attn.kv_a_proj_with_mqa", "blk.#.attn_kv_a_mqa"},
    {"layers.#.self_attn.kv_a_layernorm", "blk.#.attn_kv_a_norm"},
    {"layers.#.self_attn.kv_b_proj", "blk.#.attn_kv_b"},
    {"layers.#.self_attn.o_proj", "blk.#.attn_output"},
    {"layers.#.self_attn.indexer.wq_b", "blk.#.indexer.attn_q_b"},
    {"layers.#.self_attn.indexer.wk", "blk.#.indexer.attn_k"},
    {"layers.#.self_attn.indexer.k_norm", "blk.#.indexer.k_norm"},
    {"layers.#.self_attn.indexer.weights_proj", "blk.#.indexer.proj"},
    {"layers.#.post_attention_layernorm", "blk.#.ffn_norm"},
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

constexpr auto kKeys = with_experts({
    {"q_lora_rank", "attention.q_lora_rank"},
    {"kv_lora_rank", "attention.kv_lora_rank"},
    {"first_k_dense_replace", "leading_dense_block_count"},
});

// How many dims of a head turn: the rope part, which some files state as a share of the whole head.
Translation::RopeOptions turned_part(Translation& t) {
  const Config& config = t.config();
  const bool share = config.is_object("rope_parameters") &&
                     config.object("rope_parameters").has("partial_rotary_factor");
  const std::uint64_t whole =
      std::uint64_t{config.u32("qk_rope_head_dim")} + config.u32("qk_nope_head_dim");
  return {.head_dim = share ? static_cast<std::uint32_t>(whole) : config.u32("qk_rope_head_dim"),
          .latent = true};
}

void latent_keys(Translation& t) {
  const Config& config = t.config();
  t.require("hidden_act", "silu");
  t.require_number("moe_layer_freq", 1.f);
  t.require_flag("rope_interleave", true);
  const std::uint32_t turned = config.u32("qk_rope_head_dim");
  const std::uint64_t head = std::uint64_t{turned} + config.u32("qk_nope_head_dim");
  t.require_number("qk_head_dim", static_cast<float>(head));
  t.set("attention.key_length", static_cast<std::uint32_t>(head));
  t.set("attention.value_length", config.u32("v_head_dim"));
  t.rope(turned_part(t));
  for (const char* described :
       {"attention_bias", "seq_aux", "aux_loss_alpha", "num_nextn_predict_layers", "mlp_bias"})
    config.ignore(described);
}

void v2_keys(Translation& t) {
  latent_keys(t);
  t.require("scoring_func", "softmax");
  t.set("expert_gating_func", kSoftmaxScores);
  const std::string method = t.config().string_or("topk_method", "greedy");
  if (method == "group_limited_greedy") {
    expert_groups(t, "n_group", "topk_group");
  } else {
    t.require("topk_method", "greedy");
    for (const char* unused : {"n_group", "topk_group"}) t.config().ignore(unused);
  }
}

void v3_keys(Translation& t) {
  latent_keys(t);
  t.require("scoring_func", "sigmoid");
  t.require("topk_method", "noaux_tc");
  t.set("expert_gating_func", kSigmoidScores);
  expert_groups(t, "n_group", "topk_group");
}

// The temperature of queries rises once per original context. Experts stand in stacks already.
void mistral4_keys(Translation& t) {
  const Config rope = t.config().object("rope_parameters");
  if (rope.has("llama_4_scaling_beta"))
    t.set("attention.temperature_scale", rope.f32("llama_4_scaling_beta"));
  rope.ignore("max_position_embeddings");
  latent_keys(t);
  t.set("expert_gating_func", kSoftmaxScores);
  expert_groups(t, "n_group", "topk_group");
}

constexpr auto kSparseKeys = with_experts({
    {"q_lora_rank", "attention.q_lora_rank"},
    {"kv_lora_rank", "attention.kv_lora_rank"},
    {"index_n_heads", "attention.indexer.head_count"},
    {"index_head_dim", "attention.indexer.key_length"},
    {"index_topk", "attention.indexer.top_k"},
});

void sparse_keys(Translation& t) {
  v3_keys(t);
  dense_layers_in_front(t);
  const std::vector<bool> full = t.layers_called("full", "indexer_types");
  if (!full.empty())
    t.set("attention.indexer.types", std::vector<std::uint32_t>(full.begin(), full.end()));
  for (const char* described : {"indexer_rope_interleave", "index_topk_freq",
                                "index_skip_topk_offset", "layer_types", "mlp_bias"})
    t.config().ignore(described);
}

void expert_tensors(Translation& t) {
  usual_experts(t, "layers.#.mlp.experts", t.config().u32("n_routed_experts"));
}

constexpr Family kFamilies[] = {
    {"deepseek_v2", "deepseek2", "model.", kKeys, kLatent, v2_keys, expert_tensors, true, "{}",
     Drafts::kLayers},
    {"deepseek_v3", "deepseek2", "model.", kKeys, kLatent, v3_keys, expert_tensors, true, "{}",
     Drafts::kLayers},
    {"mistral4", "mistral4", "model.", kKeys, kLatent, mistral4_keys, stacked_experts, true, "{}",
     Drafts::kLayers},
    {"deepseek_v32", "deepseek32", "model.", kSparseKeys, kLatent, sparse_keys, expert_tensors,
     true, "{}", Drafts::kLayers},
    {"glm_moe_dsa", "glm-dsa", "model.", kSparseKeys, kLatent, sparse_keys, expert_tensors, true,
     "{}", Drafts::kLayers},
};

}  // namespace

std::span<const Family> deepseek_families() noexcept {
  return kFamilies;
}

}  // namespace lemma::weights::safetensors
