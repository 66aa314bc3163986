// SPDX-License-Identifier: Apache-2.0
// MiniMax M2 and M3. M2's norms of q and k go over whole rows. M3's norms are stored around zero;
// its indexers stand in the layers with experts; transformers joins gate and up of every block,
// published files have them apart.
#include <cmath>

#include "base/raise.hpp"
#include "weights/safetensors/names/families.hpp"

namespace lemma::weights::safetensors {
namespace {

constexpr TensorRule kMiniMaxM2[] = {
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
    {"layers.#.block_sparse_moe.gate", "blk.#.ffn_gate_inp"},
    {"layers.#.block_sparse_moe.e_score_correction_bias", "blk.#.exp_probs_b.bias", Change::kNone,
     true},
};

constexpr TensorRule kMiniMaxM3[] = {
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm", Change::kAddOne},
    {"layers.#.input_layernorm", "blk.#.attn_norm", Change::kAddOne},
    {"layers.#.self_attn.q_proj", "blk.#.attn_q"},
    {"layers.#.self_attn.k_proj", "blk.#.attn_k"},
    {"layers.#.self_attn.v_proj", "blk.#.attn_v"},
    {"layers.#.self_attn.o_proj", "blk.#.attn_output"},
    {"layers.#.self_attn.q_norm", "blk.#.attn_q_norm", Change::kAddOne},
    {"layers.#.self_attn.k_norm", "blk.#.attn_k_norm", Change::kAddOne},
    {"layers.#.self_attn.indexer.q_proj", "blk.#.indexer.q_proj"},
    {"layers.#.self_attn.indexer.k_proj", "blk.#.indexer.k_proj"},
    {"layers.#.self_attn.indexer.q_norm", "blk.#.indexer.q_norm", Change::kAddOne},
    {"layers.#.self_attn.indexer.k_norm", "blk.#.indexer.k_norm", Change::kAddOne},
    {"layers.#.self_attn.index_q_proj", "blk.#.indexer.q_proj"},
    {"layers.#.self_attn.index_k_proj", "blk.#.indexer.k_proj"},
    {"layers.#.self_attn.index_q_norm", "blk.#.indexer.q_norm", Change::kAddOne},
    {"layers.#.self_attn.index_k_norm", "blk.#.indexer.k_norm", Change::kAddOne},
    {"layers.#.post_attention_layernorm", "blk.#.ffn_norm", Change::kAddOne},
    {"layers.#.mlp.gate_proj", "blk.#.ffn_gate"},
    {"layers.#.mlp.up_proj", "blk.#.ffn_up"},
    {"layers.#.mlp.down_proj", "blk.#.ffn_down"},
    {"layers.#.mlp.gate", "blk.#.ffn_gate_inp"},
    {"layers.#.mlp.gate.e_score_correction_bias", "blk.#.exp_probs_b.bias", Change::kNone, true},
    {"layers.#.mlp.shared_experts.down_proj", "blk.#.ffn_down_shexp"},
    {"layers.#.block_sparse_moe.gate", "blk.#.ffn_gate_inp"},
    {"layers.#.block_sparse_moe.e_score_correction_bias", "blk.#.exp_probs_b.bias", Change::kNone,
     true},
    {"layers.#.block_sparse_moe.shared_experts.gate_proj", "blk.#.ffn_gate_shexp"},
    {"layers.#.block_sparse_moe.shared_experts.up_proj", "blk.#.ffn_up_shexp"},
    {"layers.#.block_sparse_moe.shared_experts.down_proj", "blk.#.ffn_down_shexp"},
};

constexpr auto kM3Keys = with_experts({
    {"dense_intermediate_size", "feed_forward_length"},
    {"intermediate_size", "expert_feed_forward_length"},
    {"shared_intermediate_size", "expert_shared_feed_forward_length"},
});

// The dims that turn are stated as a number or as a share of the head.
void turned_dims(Translation& t) {
  const Config& config = t.config();
  const bool share = config.has("partial_rotary_factor") ||
                     (config.is_object("rope_parameters") &&
                      config.object("rope_parameters").has("partial_rotary_factor"));
  const bool number = config.has("rotary_dim");
  t.rope({.head_dim = number && !share ? config.u32("rotary_dim") : t.head_dim()});
  if (number) t.require_number("rotary_dim", static_cast<float>(t.rotary_dim()));
}

void minimax_m2_keys(Translation& t) {
  t.require("hidden_act", "silu");
  turned_dims(t);
  t.require("scoring_func", "sigmoid");
  t.require("qk_norm_type", "per_layer");
  t.require_flag("use_routing_bias", true);
  t.require_flag("use_qk_norm", true);
  t.set("expert_gating_func", kSigmoidScores);
}

void minimax_m2_tensors(Translation& t) {
  usual_experts(t, "layers.#.block_sparse_moe.experts", t.config().u32("num_local_experts"), "w1",
                "w3", "w2");
}

/// Whether `list` (numbers, 0 for no) or `words` (where they are `word`) says so of each layer.
std::vector<bool> layers_that(Translation& t, const Config& holder, const char* list,
                              const char* words, const char* word) {
  if (!holder.has(list)) return t.layers_called(word, words);
  const std::vector<std::uint32_t> found = holder.u32s(list);
  if (found.size() != t.layers())
    base::raise(ErrorKind::kBadFile,
                "config.json: key '{}': expected {} numbers, one for each layer, found {}", list,
                t.layers(), found.size());
  std::vector<bool> out;
  for (const std::uint32_t number : found) out.push_back(number != 0);
  return out;
}

// Experts and indexers stand in the same layers, behind the dense ones.
void layer_kinds(Translation& t, const Config& sparse) {
  const std::vector<bool> routed =
      layers_that(t, t.config(), "moe_layer_freq", "mlp_layer_types", "sparse");
  const std::vector<bool> chooses =
      layers_that(t, sparse, "sparse_attention_freq", "layer_types", "minimax_m3_sparse");
  if (routed != chooses || !std::ranges::is_sorted(routed) || routed.empty())
    base::raise(ErrorKind::kUnsupported,
                "config.json: expected dense layers in front, then layers that have both experts "
                "and chosen blocks");
  const auto dense = std::ranges::count(routed, false);
  t.set("leading_dense_block_count", static_cast<std::uint32_t>(dense));
}

void indexer_keys(Translation& t, const Config& sparse, bool nested) {
  const auto number = [&](const char* flat, const char* inside, const char* key) {
    t.set(key, nested && sparse.has(inside) ? sparse.u32(inside) : t.config().u32(flat));
    t.config().ignore(flat);
  };
  number("index_n_heads", "sparse_num_index_heads", "attention.indexer.head_count");
  number("index_head_dim", "sparse_index_dim", "attention.indexer.key_length");
  number("index_block_size", "sparse_block_size", "attention.indexer.block_size");
  number("index_topk_blocks", "sparse_topk_blocks", "attention.indexer.top_k");
  number("index_local_blocks", "sparse_local_block", "attention.indexer.local_blocks");
  if (!nested) return;
  if (!sparse.boolean_or("use_sparse_attention", true) ||
      sparse.string_or("sparse_score_type", "max") != "max")
    base::raise(ErrorKind::kUnsupported,
                "config.json: key 'sparse_attention_config': expected blocks scored by their best "
                "key");
  sparse.ignore("sparse_disable_index_value");  // no tensors, no values
  sparse.refuse_unread(t.model_type());
}

void minimax_m3_keys(Translation& t) {
  const Config& config = t.config();
  t.require("hidden_act", "silu", "swigluoai");
  t.require_number("swiglu_alpha", 1.702f);
  t.require_number("swiglu_limit", 7.f);
  t.require("scoring_func", "sigmoid");
  t.require("qk_norm_type", "per_head");
  for (const char* on : {"use_qk_norm", "use_gemma_norm", "use_routing_bias"})
    t.require_flag(on, true);
  turned_dims(t);
  const bool nested = config.is_object("sparse_attention_config");
  const Config sparse = nested ? config.object("sparse_attention_config") : config;
  layer_kinds(t, sparse);
  indexer_keys(t, sparse, nested);
  t.set("expert_gating_func", kSigmoidScores);
  t.set("expert_shared_count", config.u32_or("n_shared_experts", 1));
  // In this family the key without a prefix means the experts.
  t.set("feed_forward_length", config.u32("dense_intermediate_size"));
  describe(t, {"num_mtp_modules", "num_nextn_predict_layers", "n_shared_experts", "layer_types",
               "mlp_layer_types"});
}

void minimax_m3_tensors(Translation& t) {
  stacked_experts(t);
  split_gate_up(t, "layers.#.mlp.gate_up_proj", "blk.#.ffn_gate", "blk.#.ffn_up");
  split_gate_up(t, "layers.#.mlp.shared_experts.gate_up_proj", "blk.#.ffn_gate_shexp",
                "blk.#.ffn_up_shexp");
  usual_experts(t, "layers.#.block_sparse_moe.experts", t.config().u32("num_local_experts"), "w1",
                "w3", "w2");
}

constexpr Family kFamilies[] = {
    {"minimax_m2", "minimax-m2", "model.", kExpertKeys, kMiniMaxM2, minimax_m2_keys,
     minimax_m2_tensors},
    {"minimax_m3", "minimax-m3", "model.", kM3Keys, kMiniMaxM3, minimax_m3_keys,
     minimax_m3_tensors},
    {"minimax_m3_vl", "minimax-m3", "model.", kM3Keys, kMiniMaxM3, minimax_m3_keys,
     minimax_m3_tensors},
    {"minimax_m3_vl_text", "minimax-m3", "model.", kM3Keys, kMiniMaxM3, minimax_m3_keys,
     minimax_m3_tensors},
};

}  // namespace

std::span<const Family> minimax_families() noexcept {
  return kFamilies;
}

}  // namespace lemma::weights::safetensors
