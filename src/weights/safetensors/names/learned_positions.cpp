// SPDX-License-Identifier: Apache-2.0
// Models with learned positions: GPT-2, whose matrices are stored [in, out], and BERT, of which
// lemma answers with hidden states, so that what stands behind them (pooler, heads) is left out.
#include "base/raise.hpp"
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
  const std::string activation = t.config().string_or("hidden_act", "gelu");
  if (activation != "gelu" && activation != "gelu_new" && activation != "gelu_pytorch_tanh")
    base::raise(
        ErrorKind::kUnsupported,
        "config.json: key 'hidden_act': expected gelu, gelu_new or gelu_pytorch_tanh, found "
        "'{}'",
        activation);
  t.set("attention.causal", false);
  // Files in GGUF do not say; the engine that they are written for has the tanh form.
  if (activation == "gelu") t.set("feed_forward_activation", "gelu_erf");
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
    {"bert", "bert", "bert.", {}, kBert, bert_keys, bert_tensors},
};

}  // namespace

std::span<const Family> learned_position_families() noexcept {
  return kFamilies;
}

}  // namespace lemma::weights::safetensors
