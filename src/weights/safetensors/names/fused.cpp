// SPDX-License-Identifier: Apache-2.0
// Models with one q/k/v matrix: BLOOM and GPT-NeoX store its rows by head, Falcon by group of
// heads, MPT as GGUF does. Their GELU is exact in all but BLOOM.
#include "base/raise.hpp"
#include "weights/safetensors/names/families.hpp"

namespace lemma::weights::safetensors {
namespace {

constexpr TensorRule kBloom[] = {
    {"word_embeddings", "token_embd"},
    {"word_embeddings_layernorm", "token_embd_norm"},
    {"ln_f", "output_norm"},
    {"h.#.input_layernorm", "blk.#.attn_norm"},
    {"h.#.self_attention.dense", "blk.#.attn_output"},
    {"h.#.post_attention_layernorm", "blk.#.ffn_norm"},
    {"h.#.mlp.dense_h_to_4h", "blk.#.ffn_up"},
    {"h.#.mlp.dense_4h_to_h", "blk.#.ffn_down"},
};

constexpr TensorRule kFalcon[] = {
    {"word_embeddings", "token_embd"},          {"ln_f", "output_norm"},
    {"h.#.input_layernorm", "blk.#.attn_norm"}, {"h.#.ln_attn", "blk.#.attn_norm_2"},
    {"h.#.ln_mlp", "blk.#.attn_norm"},          {"h.#.self_attention.dense", "blk.#.attn_output"},
    {"h.#.mlp.dense_h_to_4h", "blk.#.ffn_up"},  {"h.#.mlp.dense_4h_to_h", "blk.#.ffn_down"},
};

constexpr TensorRule kNeox[] = {
    {"embed_in", "token_embd"},
    {"final_layer_norm", "output_norm"},
    {"layers.#.input_layernorm", "blk.#.attn_norm"},
    {"layers.#.attention.dense", "blk.#.attn_output"},
    {"layers.#.post_attention_layernorm", "blk.#.ffn_norm"},
    {"layers.#.mlp.dense_h_to_4h", "blk.#.ffn_up"},
    {"layers.#.mlp.dense_4h_to_h", "blk.#.ffn_down"},
};

constexpr TensorRule kMpt[] = {
    {"wte", "token_embd"},
    {"wpe", "position_embd"},
    {"norm_f", "output_norm"},
    {"blocks.#.norm_1", "blk.#.attn_norm"},
    {"blocks.#.attn.Wqkv", "blk.#.attn_qkv"},
    {"blocks.#.attn.out_proj", "blk.#.attn_output"},
    {"blocks.#.norm_2", "blk.#.ffn_norm"},
    {"blocks.#.ffn.up_proj", "blk.#.ffn_up"},
    {"blocks.#.ffn.down_proj", "blk.#.ffn_down"},
};

/// Positions that BLOOM was trained for, where config.json does not say; ALiBi has no limit.
constexpr std::uint32_t kBloomContext = 2048;
constexpr std::uint32_t kFalconContext = 2048;

std::uint32_t times(std::uint32_t width, std::uint32_t factor) {
  const std::uint64_t product = std::uint64_t{width} * factor;
  if (product > 0xffffffffu)
    base::raise(ErrorKind::kBadFile, "config.json: a feed-forward width of {} x {}", width, factor);
  return static_cast<std::uint32_t>(product);
}

void move_fused(Translation& t, const char* path, std::uint32_t groups) {
  for (std::uint32_t i = 0; i < t.layers(); ++i) {
    std::string stem(path);
    stem.replace(stem.find('#'), 1, std::to_string(i));
    for (const char* part : {".weight", ".bias"})
      if (t.has(stem + part))
        t.put("blk." + std::to_string(i) + ".attn_qkv" + part,
              ungrouped(t.take(stem + part), t.heads(), groups, t.head_dim()));
  }
}

void bloom_keys(Translation& t) {
  t.require_flag("apply_residual_connection_post_layernorm", false);
  t.set("context_length", t.config().u32_or("seq_length", kBloomContext));
  t.set("feed_forward_length", times(t.heads() * t.head_dim(), 4));
  describe(t, {"slow_but_exact", "bias_dropout_fusion", "masked_softmax_fusion",
               "attention_softmax_in_fp32", "offset_alibi", "skip_bias_add", "skip_bias_add_qkv",
               "unk_token_id"});
}

void bloom_tensors(Translation& t) {
  move_fused(t, "h.#.self_attention.query_key_value", t.heads());
}

std::uint32_t falcon_groups(const Translation& t) {
  const Config& config = t.config();
  if (config.boolean_or("new_decoder_architecture", false))
    return config.u32_or("num_kv_heads", config.u32_or("n_head_kv", t.heads()));
  return config.boolean_or("multi_query", true) ? 1 : t.heads();
}

void falcon_keys(Translation& t) {
  t.require_flag("alibi", false);
  t.require_flag("parallel_attn", true);
  gelu_kind(t, "activation");
  const std::uint32_t groups = falcon_groups(t);
  if (groups == 0 || t.heads() % groups != 0)
    base::raise(ErrorKind::kBadFile, "config.json: expected KV heads that divide {}, found {}",
                t.heads(), groups);
  t.set("attention.head_count_kv", groups);
  t.set("context_length", t.config().u32_or("max_position_embeddings", kFalconContext));
  if (!t.config().has("ffn_hidden_size"))
    t.set("feed_forward_length", times(t.heads() * t.head_dim(), 4));
  usual_rope(t);
  describe(t, {"bias", "multi_query", "num_ln_in_parallel_attn"});
}

void falcon_tensors(Translation& t) {
  move_fused(t, "h.#.self_attention.query_key_value", falcon_groups(t));
}

void neox_keys(Translation& t) {
  gelu_kind(t, "hidden_act");
  t.set("attention.head_count_kv", t.heads());
  t.set("use_parallel_residual", t.config().boolean_or("use_parallel_residual", true));
  usual_rope(t);
  describe(t, {"attention_bias"});
}

void neox_tensors(Translation& t) {
  move_fused(t, "layers.#.attention.query_key_value", t.heads());
  t.move({"embed_out", "output"});
}

void mpt_keys(Translation& t) {
  const Config& config = t.config();
  const Config attention = config.object("attn_config");
  if (attention.string_or("attn_type", "multihead_attention") != "multihead_attention" ||
      attention.boolean_or("qk_ln", false) || attention.boolean_or("prefix_lm", false) ||
      attention.has("softmax_scale"))
    base::raise(ErrorKind::kUnsupported,
                "config.json: key 'attn_config': expected multihead_attention without qk_ln, "
                "prefix_lm and softmax_scale");
  if (attention.boolean_or("alibi", true))
    t.set("attention.max_alibi_bias", attention.f32_or("alibi_bias_max", 8.f));
  if (attention.has("clip_qkv")) t.set("attention.clamp_kqv", attention.f32("clip_qkv"));
  t.set("feed_forward_length",
        times(t.heads() * t.head_dim(), config.u32_or("expansion_ratio", 4)));
  if (!config.has("layer_norm_epsilon")) t.set("attention.layer_norm_epsilon", 1e-5f);
  t.set("feed_forward_activation", "gelu_erf");
  t.require_number("embedding_fraction", 1.f);
  describe(t, {"no_bias", "learned_pos_emb", "norm_type", "init_device", "init_config", "emb_pdrop",
               "tokenizer_name", "verbose", "expansion_ratio", "use_norm_bias"});
}

constexpr Family kFamilies[] = {
    {"bloom", "bloom", "transformer.", {}, kBloom, bloom_keys, bloom_tensors},
    {"falcon", "falcon", "transformer.", {}, kFalcon, falcon_keys, falcon_tensors},
    {"gpt_neox", "gptneox", "gpt_neox.", {}, kNeox, neox_keys, neox_tensors},
    {"mpt", "mpt", "transformer.", {}, kMpt, mpt_keys},
};

}  // namespace

std::span<const Family> fused_families() noexcept {
  return kFamilies;
}

}  // namespace lemma::weights::safetensors
