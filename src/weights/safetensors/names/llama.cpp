// SPDX-License-Identifier: Apache-2.0
// Llama's layer and its kin. Their GGUF files hold the rows of queries and keys for a rotation of
// neighbouring pairs; the published models turn halves, so the rows are put in order. Mixtral's
// experts are called w1 (gate), w3 (up) and w2 (down).
#include "weights/safetensors/names/families.hpp"

namespace lemma::weights::safetensors {
namespace {

constexpr TensorRule kLlama[] = {
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm"},
    {"layers.#.input_layernorm", "blk.#.attn_norm"},
    {"layers.#.self_attn.q_proj", "blk.#.attn_q", Change::kQueryRows},
    {"layers.#.self_attn.k_proj", "blk.#.attn_k", Change::kKeyRows},
    {"layers.#.self_attn.v_proj", "blk.#.attn_v"},
    {"layers.#.self_attn.o_proj", "blk.#.attn_output"},
    {"layers.#.post_attention_layernorm", "blk.#.ffn_norm"},
    {"layers.#.mlp.gate_proj", "blk.#.ffn_gate"},
    {"layers.#.mlp.up_proj", "blk.#.ffn_up"},
    {"layers.#.mlp.down_proj", "blk.#.ffn_down"},
    {"layers.#.block_sparse_moe.gate", "blk.#.ffn_gate_inp"},
    {"layers.#.block_sparse_moe.router.layer", "blk.#.ffn_gate_inp"},
    {"layers.#.block_sparse_moe.input_linear", "blk.#.ffn_gate_up_exps"},
    {"layers.#.block_sparse_moe.output_linear", "blk.#.ffn_down_exps"},
};

void llama_keys(Translation& t) {
  usual_keys(t);
  for (const char* described : {"attention_bias", "mlp_bias"}) t.config().ignore(described);
}

void mistral_keys(Translation& t) {
  usual_keys(t);
  window_of_all_layers(t);
}

void mixtral_tensors(Translation& t) {
  usual_experts(t, "layers.#.block_sparse_moe.experts", t.config().u32("num_local_experts"), "w1",
                "w3", "w2");
}

// Every fourth layer does not turn; the architecture knows that, so config.json must agree.
void smollm3_keys(Translation& t) {
  llama_keys(t);
  window_by_layer(t);
  t.require_flag("use_sliding_window", false);
  t.require_number("no_rope_layer_interval", 4.f);
  t.config().ignore("no_rope_layers");
  t.config().ignore("max_window_layers");
}

constexpr KeyRule kGranite[] = {{"attention_multiplier", "attention.scale", kReal},
                                {"embedding_multiplier", "embedding_scale", kReal},
                                {"logits_scaling", "logit_scale", kReal},
                                {"residual_multiplier", "residual_scale", kReal}};

constexpr auto kGraniteMoe = with_experts(kGranite);

// Ministral 3: the temperature of queries rises once per original context.
void ministral3_keys(Translation& t) {
  const Config rope = t.config().object("rope_parameters");
  if (rope.has("llama_4_scaling_beta"))
    t.set("attention.temperature_scale", rope.f32("llama_4_scaling_beta"));
  rope.ignore("max_position_embeddings");
  mistral_keys(t);
}

constexpr Family kFamilies[] = {
    {"llama", "llama", "model.", {}, kLlama, llama_keys},
    {"mistral", "llama", "model.", {}, kLlama, mistral_keys},
    {"mixtral", "llama", "model.", kExpertKeys, kLlama, mistral_keys, mixtral_tensors},
    {"smollm3", "smollm3", "model.", {}, kLlama, smollm3_keys},
    {"ministral3", "mistral3", "model.", {}, kLlama, ministral3_keys},
    {"granitemoe", "granitemoe", "model.", kGraniteMoe, kLlama, llama_keys},
    {"granite", "granite", "model.", kGranite, kLlama, llama_keys},
};

}  // namespace

std::span<const Family> llama_families() noexcept {
  return kFamilies;
}

}  // namespace lemma::weights::safetensors
