// SPDX-License-Identifier: Apache-2.0
// DeepSeek V4, whose checkpoints keep the names of DeepSeek's own code; the model around the layers
// is named by it (embed, hc_head_fn) or by transformers (model.embed_tokens, model.hc_head.hc_fn).
// Layers that compress turn with another base, and with YaRN without its magnitude.
#include <algorithm>

#include "base/raise.hpp"
#include "weights/safetensors/names/families.hpp"

namespace lemma::weights::safetensors {
namespace {

constexpr TensorRule kDeepseek4[] = {
    {"embed_tokens", "token_embd"},
    {"embed", "token_embd"},
    {"norm", "output_norm"},
    {"head", "output"},
    {"hc_head.hc_fn", "output_hc_fn.weight", Change::kNone, true},
    {"hc_head.hc_base", "output_hc_base.weight", Change::kNone, true},
    {"hc_head.hc_scale", "output_hc_scale.weight", Change::kNone, true},
    {"hc_head_fn", "output_hc_fn.weight", Change::kNone, true},
    {"hc_head_base", "output_hc_base.weight", Change::kNone, true},
    {"hc_head_scale", "output_hc_scale.weight", Change::kNone, true},
    {"layers.#.attn_norm", "blk.#.attn_norm"},
    {"layers.#.attn.wq_a", "blk.#.attn_q_a"},
    {"layers.#.attn.q_norm", "blk.#.attn_q_a_norm"},
    {"layers.#.attn.wq_b", "blk.#.attn_q_b"},
    {"layers.#.attn.wkv", "blk.#.attn_kv"},
    {"layers.#.attn.norm", "blk.#.attn_kv_a_norm"},
    {"layers.#.attn.kv_norm", "blk.#.attn_kv_a_norm"},
    {"layers.#.attn.attn_sink", "blk.#.attn_sinks.weight", Change::kNone, true},
    {"layers.#.attn.wo_a", "blk.#.attn_output_a"},
    {"layers.#.attn.wo_b", "blk.#.attn_output_b"},
    {"layers.#.attn.compressor.wkv", "blk.#.attn_compressor_kv"},
    {"layers.#.attn.compressor.wgate", "blk.#.attn_compressor_gate"},
    {"layers.#.attn.compressor.norm", "blk.#.attn_compressor_norm"},
    {"layers.#.attn.compressor.ape", "blk.#.attn_compressor_ape.weight", Change::kNone, true},
    {"layers.#.attn.indexer.wq_b", "blk.#.indexer.attn_q_b"},
    {"layers.#.attn.indexer.weights_proj", "blk.#.indexer.proj"},
    {"layers.#.attn.indexer.compressor.wkv", "blk.#.indexer_compressor_kv"},
    {"layers.#.attn.indexer.compressor.wgate", "blk.#.indexer_compressor_gate"},
    {"layers.#.attn.indexer.compressor.norm", "blk.#.indexer_compressor_norm"},
    {"layers.#.attn.indexer.compressor.ape", "blk.#.indexer_compressor_ape.weight", Change::kNone,
     true},
    {"layers.#.ffn_norm", "blk.#.ffn_norm"},
    {"layers.#.ffn.gate.weight", "blk.#.ffn_gate_inp.weight", Change::kNone, true},
    {"layers.#.ffn.gate.bias", "blk.#.exp_probs_b.bias", Change::kNone, true},
    {"layers.#.ffn.shared_experts.w1", "blk.#.ffn_gate_shexp"},
    {"layers.#.ffn.shared_experts.w3", "blk.#.ffn_up_shexp"},
    {"layers.#.ffn.shared_experts.w2", "blk.#.ffn_down_shexp"},
    {"layers.#.hc_attn_fn", "blk.#.hc_attn_fn.weight", Change::kNone, true},
    {"layers.#.hc_attn_base", "blk.#.hc_attn_base.weight", Change::kNone, true},
    {"layers.#.hc_attn_scale", "blk.#.hc_attn_scale.weight", Change::kNone, true},
    {"layers.#.hc_ffn_fn", "blk.#.hc_ffn_fn.weight", Change::kNone, true},
    {"layers.#.hc_ffn_base", "blk.#.hc_ffn_base.weight", Change::kNone, true},
    {"layers.#.hc_ffn_scale", "blk.#.hc_ffn_scale.weight", Change::kNone, true},
    {"layers.#.enorm", "blk.#.nextn.enorm"},
    {"layers.#.hnorm", "blk.#.nextn.hnorm"},
    {"layers.#.e_proj", "blk.#.nextn.e_proj"},
    {"layers.#.h_proj", "blk.#.nextn.h_proj"},
    {"layers.#.norm", "blk.#.nextn.shared_head_norm"},
    {"layers.#.hc_head_fn", "blk.#.nextn.hc_head_fn.weight", Change::kNone, true},
    {"layers.#.hc_head_base", "blk.#.nextn.hc_head_base.weight", Change::kNone, true},
    {"layers.#.hc_head_scale", "blk.#.nextn.hc_head_scale.weight", Change::kNone, true},
};

constexpr auto kKeys = with_experts({
    {"q_lora_rank", "attention.q_lora_rank"},
    {"sliding_window", "attention.sliding_window"},
    {"o_groups", "attention.output_group_count"},
    {"o_lora_rank", "attention.output_lora_rank"},
    {"index_n_heads", "attention.indexer.head_count"},
    {"index_head_dim", "attention.indexer.key_length"},
    {"index_topk", "attention.indexer.top_k"},
    {"hc_mult", "hyper_connection.count"},
    {"hc_sinkhorn_iters", "hyper_connection.sinkhorn_iterations"},
    {"hc_eps", "hyper_connection.epsilon", kReal},
});

// How many tokens an entry of each layer stands for: a list of numbers, or words and their rates.
std::vector<std::uint32_t> ratios(Translation& t) {
  const Config& config = t.config();
  if (config.has("compress_ratios")) {
    std::vector<std::uint32_t> found = config.u32s("compress_ratios");
    if (found.size() > t.layers()) found.resize(t.layers());  // blocks that draft follow
    return found;
  }
  std::vector<std::uint32_t> found(t.layers());
  for (const char* word : {"compressed_sparse_attention", "heavily_compressed_attention"}) {
    const std::vector<bool> called = t.layers_called(word);
    if (std::ranges::count(called, true) == 0) continue;
    const std::uint32_t rate = config.object("compress_rates").u32(word);
    for (std::size_t i = 0; i < called.size(); ++i)
      if (called[i]) found[i] = rate;
  }
  return found;
}

// Layers whose experts a table by token id chooses stand in front.
std::uint32_t hashed_layers(Translation& t) {
  if (t.config().has("num_hash_layers")) return t.config().u32("num_hash_layers");
  const std::vector<bool> hashed = t.layers_called("hash_moe", "mlp_layer_types");
  const auto end = std::ranges::find(hashed, false);
  if (std::count(end, hashed.end(), true) != 0)
    base::raise(ErrorKind::kUnsupported,
                "config.json: key 'mlp_layer_types': expected hash_moe in front only");
  return static_cast<std::uint32_t>(end - hashed.begin());
}

void rotation(Translation& t) {
  const Config& config = t.config();
  Translation::RopeOptions options{.head_dim = t.head_dim(), .magnitude = false};
  options.theta_key = "attention.compress_rope_freq_base";
  if (t.has_rope_of("compress")) {
    t.rope(options, t.rope_of("compress"));
    const Config main = t.rope_of("main");
    if (main.string_or("rope_type", "default") != "default")
      base::raise(ErrorKind::kUnsupported,
                  "config.json: key 'rope_parameters.main.rope_type': expected default");
    t.set("rope.freq_base", main.f32_or("rope_theta", 10000.f));
    return;
  }
  // DeepSeek's own file: dims that turn, one scaling, two bases.
  options.head_dim = config.u32("qk_rope_head_dim");
  options.theta = config.f32_or("compress_rope_theta", 160000.f);
  options.fixed_theta = true;
  t.rope(options);
  t.set("rope.freq_base", config.f32_or("rope_theta", 10000.f));
}

void keys(Translation& t) {
  const Config& config = t.config();
  t.require("hidden_act", "silu");
  t.require("scoring_func", "sqrtsoftplus");
  t.require("topk_method", "noaux_tc");
  t.set("expert_gating_func", kSqrtSoftplusScores);
  rotation(t);
  t.set("attention.compress_ratios", ratios(t));
  t.set("hash_layer_count", hashed_layers(t));
  const float limit = config.f32_or("swiglu_limit", 0.f);
  t.set("swiglu_clamp_exp", std::vector<float>(t.layers(), limit));
  describe(t, {"attention_bias", "mlp_bias", "compress_rates", "compress_rope_theta", "layer_types",
               "num_nextn_predict_layers", "partial_rotary_factor", "qk_rope_head_dim",
               "rope_theta", "expert_dtype", "rope_parameters", "scale_fmt"});
}

void tensors(Translation& t) {
  usual_experts(t, "layers.#.ffn.experts", t.config().u32("n_routed_experts"), "w1", "w3", "w2");
  for (std::uint32_t i = 0; i < t.layers(); ++i) {
    const std::string table = "layers." + std::to_string(i) + ".ffn.gate.tid2eid";
    if (t.has(table))
      t.put("blk." + std::to_string(i) + ".ffn_gate_tid2eid.weight", t.take_ids(table));
  }
}

constexpr Family kFamilies[] = {
    {"deepseek_v4", "deepseek4", "model.", kKeys, kDeepseek4, keys, tensors, false, "{}",
     Drafts::kBlocks},
};

}  // namespace

std::span<const Family> deepseek_v4_families() noexcept {
  return kFamilies;
}

}  // namespace lemma::weights::safetensors
