// SPDX-License-Identifier: Apache-2.0
// Models with learned positions: GPT-2, whose matrices are stored [in, out], and BERT, of which
// lemma answers with hidden states, so that what stands behind them (pooler, heads) is left out.
#include "weights/safetensors/names/families.hpp"

namespace lemma::weights::safetensors {
namespace {

constexpr TensorRule kGpt2[] = {
    {"wte", "token_embd"},
    {"wpe", "position_embd"},
    {"ln_f", "output_norm"},
    {"h.#.ln_1", "blk.#.attn_norm"},
    {"h.#.attn.c_attn", "blk.#.attn_qkv", Change::kTranspose},
    {"h.#.attn.c_proj", "blk.#.attn_output", Change::kTranspose},
    {"h.#.ln_2", "blk.#.ffn_norm"},
    {"h.#.mlp.c_fc", "blk.#.ffn_up", Change::kTranspose},
    {"h.#.mlp.c_proj", "blk.#.ffn_down", Change::kTranspose},
};

constexpr TensorRule kBigCode[] = {
    {"wte", "token_embd"},
    {"wpe", "position_embd"},
    {"ln_f", "output_norm"},
    {"h.#.ln_1", "blk.#.attn_norm"},
    {"h.#.attn.c_attn", "blk.#.attn_qkv"},
    {"h.#.attn.c_proj", "blk.#.attn_output"},
    {"h.#.ln_2", "blk.#.ffn_norm"},
    {"h.#.mlp.c_fc", "blk.#.ffn_up"},
    {"h.#.mlp.c_proj", "blk.#.ffn_down"},
};

void gpt2_keys(Translation& t) {
  t.require("activation_function", "gelu_new", "gelu_pytorch_tanh");
  t.require_flag("scale_attn_weights", true);
  t.require_flag("scale_attn_by_inverse_layer_idx", false);
  t.require_flag("add_cross_attention", false);
  if (!t.config().has("n_inner")) {
    const std::uint64_t hidden = std::uint64_t{4} * t.heads() * t.head_dim();
    t.set("feed_forward_length", static_cast<std::uint32_t>(hidden));
  }
  for (const char* described :
       {"n_ctx", "reorder_and_upcast_attn", "summary_activation", "summary_first_dropout",
        "summary_proj_to_labels", "summary_type", "summary_use_proj"})
    t.config().ignore(described);
}

// Rows [q | k | v] with one KV head; with as many as heads they stand by head.
void big_code_keys(Translation& t) {
  t.require_flag("multi_query", true);
  t.set("attention.head_count_kv", 1u);
  gpt2_keys(t);
  describe(t, {"attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "inference_runner",
               "max_batch_size", "max_sequence_length", "pad_key_length", "pre_allocate_kv_cache",
               "validate_runner_input"});
}

constexpr TensorRule kBert[] = {
    {"embeddings.word_embeddings", "token_embd"},
    {"embeddings.position_embeddings", "position_embd"},
    {"embeddings.token_type_embeddings", "token_types"},
    {"embeddings.LayerNorm", "token_embd_norm"},
    {"encoder.layer.#.attention.self.query", "blk.#.attn_q"},
    {"encoder.layer.#.attention.self.key", "blk.#.attn_k"},
    {"encoder.layer.#.attention.self.value", "blk.#.attn_v"},
    {"encoder.layer.#.attention.output.dense", "blk.#.attn_output"},
    {"encoder.layer.#.attention.output.LayerNorm", "blk.#.attn_output_norm"},
    {"encoder.layer.#.intermediate.dense", "blk.#.ffn_up"},
    {"encoder.layer.#.output.dense", "blk.#.ffn_down"},
    {"encoder.layer.#.output.LayerNorm", "blk.#.layer_output_norm"},
};

void bert_keys(Translation& t) {
  t.require("position_embedding_type", "absolute");
  t.require_flag("is_decoder", false);
  t.require_flag("add_cross_attention", false);
  gelu_kind(t, "hidden_act");
  t.set("attention.causal", false);
  for (const char* described : {"type_vocab_size", "chunk_size_feed_forward"})
    t.config().ignore(described);
}

void bert_tensors(Translation& t) {
  for (const char* behind :
       {"pooler.dense.weight", "pooler.dense.bias", "cls.predictions.bias",
        "cls.predictions.decoder.weight", "cls.predictions.decoder.bias",
        "cls.predictions.transform.dense.weight", "cls.predictions.transform.dense.bias",
        "cls.predictions.transform.LayerNorm.weight", "cls.predictions.transform.LayerNorm.bias",
        "cls.seq_relationship.weight", "cls.seq_relationship.bias"})
    t.drop(behind);
}

constexpr Family kFamilies[] = {
    {"gpt2", "gpt2", "transformer.", {}, kGpt2, gpt2_keys},
    {"gpt_bigcode", "starcoder", "transformer.", {}, kBigCode, big_code_keys},
    {"bert", "bert", "bert.", {}, kBert, bert_keys, bert_tensors},
};

}  // namespace

std::span<const Family> learned_position_families() noexcept {
  return kFamilies;
}

}  // namespace lemma::weights::safetensors
