// SPDX-License-Identifier: Apache-2.0
// Kimi Linear and Kimi K3, whose published checkpoints name their tensors alike. Which layers are
// linear stands in layer_types, or in lists of linear_attn_config that count layers from 1. Kimi
// K3's keys lie in text_config; it adds the attention residual, output gates, SiTU and a narrower
// space for its experts.
#include <algorithm>
#include <cmath>

#include "base/raise.hpp"
#include "weights/safetensors/names/families.hpp"

namespace lemma::weights::safetensors {
namespace {

constexpr TensorRule kKimi[] = {
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm"},
    {"output_attn_res_norm", "output_res_norm"},
    {"output_attn_res_proj", "output_res_proj", Change::kSqueeze},
    {"layers.#.input_layernorm", "blk.#.attn_norm"},
    {"layers.#.self_attention_res_norm", "blk.#.attn_res_norm"},
    {"layers.#.self_attention_res_proj", "blk.#.attn_res_proj", Change::kSqueeze},
    {"layers.#.mlp_res_norm", "blk.#.ffn_res_norm"},
    {"layers.#.mlp_res_proj", "blk.#.ffn_res_proj", Change::kSqueeze},
    {"layers.#.self_attn.q_proj", "blk.#.attn_q"},
    {"layers.#.self_attn.k_proj", "blk.#.attn_k"},
    {"layers.#.self_attn.v_proj", "blk.#.attn_v"},
    {"layers.#.self_attn.q_conv1d", "blk.#.ssm_conv1d_q", Change::kSqueeze},
    {"layers.#.self_attn.k_conv1d", "blk.#.ssm_conv1d_k", Change::kSqueeze},
    {"layers.#.self_attn.v_conv1d", "blk.#.ssm_conv1d_v", Change::kSqueeze},
    {"layers.#.self_attn.f_a_proj", "blk.#.ssm_f_a"},
    {"layers.#.self_attn.f_b_proj", "blk.#.ssm_f_b"},
    {"layers.#.self_attn.g_a_proj", "blk.#.ssm_g_a"},
    {"layers.#.self_attn.g_b_proj", "blk.#.ssm_g_b"},
    {"layers.#.self_attn.b_proj", "blk.#.ssm_beta"},
    {"layers.#.self_attn.dt_bias", "blk.#.ssm_dt.bias", Change::kNone, true},
    {"layers.#.self_attn.o_norm", "blk.#.ssm_norm"},
    {"layers.#.self_attn.q_a_proj", "blk.#.attn_q_a"},
    {"layers.#.self_attn.q_a_layernorm", "blk.#.attn_q_a_norm"},
    {"layers.#.self_attn.q_b_proj", "blk.#.attn_q_b"},
    {"layers.#.self_attn.kv_a_proj_with_mqa", "blk.#.attn_kv_a_mqa"},
    {"layers.#.self_attn.kv_a_layernorm", "blk.#.attn_kv_a_norm"},
    {"layers.#.self_attn.kv_b_proj", "blk.#.attn_kv_b"},
    {"layers.#.self_attn.o_proj", "blk.#.attn_output"},
    {"layers.#.post_attention_layernorm", "blk.#.ffn_norm"},
    {"layers.#.mlp.gate_proj", "blk.#.ffn_gate"},
    {"layers.#.mlp.up_proj", "blk.#.ffn_up"},
    {"layers.#.mlp.down_proj", "blk.#.ffn_down"},
    // transformers gives a dense block the name of a sparse one.
    {"layers.#.block_sparse_moe.gate_proj", "blk.#.ffn_gate"},
    {"layers.#.block_sparse_moe.up_proj", "blk.#.ffn_up"},
    {"layers.#.block_sparse_moe.down_proj", "blk.#.ffn_down"},
    {"layers.#.block_sparse_moe.gate", "blk.#.ffn_gate_inp"},
    {"layers.#.block_sparse_moe.gate.e_score_correction_bias", "blk.#.exp_probs_b.bias",
     Change::kNone, true},
    {"layers.#.block_sparse_moe.shared_experts.gate_proj", "blk.#.ffn_gate_shexp"},
    {"layers.#.block_sparse_moe.shared_experts.up_proj", "blk.#.ffn_up_shexp"},
    {"layers.#.block_sparse_moe.shared_experts.down_proj", "blk.#.ffn_down_shexp"},
    {"layers.#.block_sparse_moe.routed_expert_down_proj", "blk.#.ffn_latent_down"},
    {"layers.#.block_sparse_moe.routed_expert_up_proj", "blk.#.ffn_latent_up"},
    {"layers.#.block_sparse_moe.routed_expert_norm", "blk.#.ffn_latent_norm"},
};

constexpr auto kKeys = with_experts({
    {"q_lora_rank", "attention.q_lora_rank"},
    {"kv_lora_rank", "attention.kv_lora_rank"},
    {"routed_expert_hidden_size", "expert_latent_length"},
    {"attn_res_block_size", "residual.block_size"},
    {"activation_situ_beta", "activation.situ_beta", kReal},
    {"activation_situ_linear_beta", "activation.situ_linear_beta", kReal},
});

std::vector<bool> linear_layers(Translation& t, const Config& linear) {
  std::vector<bool> found = t.layers_called("linear_attention");
  if (!found.empty()) return found;
  found.resize(t.layers());
  std::vector<bool> named(t.layers());
  for (const char* list : {"kda_layers", "full_attn_layers"})
    for (const std::uint32_t layer : linear.u32s(list)) {
      if (layer == 0 || layer > t.layers() || named[layer - 1])
        base::raise(ErrorKind::kBadFile,
                    "config.json: key 'linear_attn_config.{}': expected each layer from 1 to {} "
                    "once, found {}",
                    list, t.layers(), layer);
      named[layer - 1] = true;
      found[layer - 1] = std::string_view(list) == "kda_layers";
    }
  if (std::ranges::count(named, false) != 0)
    base::raise(ErrorKind::kBadFile,
                "config.json: key 'linear_attn_config': expected every layer in kda_layers or "
                "full_attn_layers");
  return found;
}

void kimi_keys(Translation& t) {
  const Config& config = t.config();
  t.require("moe_router_activation_func", "sigmoid");
  t.require_number("moe_layer_freq", 1.f);
  t.require_flag("mla_use_nope", true);
  t.set("expert_gating_func", kSigmoidScores);
  dense_layers_in_front(t);
  expert_groups(t, "num_expert_group", "topk_group");
  const std::uint32_t shared = config.u32("qk_rope_head_dim");
  const std::uint64_t head = std::uint64_t{shared} + config.u32("qk_nope_head_dim");
  t.set("attention.key_length", static_cast<std::uint32_t>(head));
  t.set("attention.value_length", config.u32("v_head_dim"));
  t.set("rope.dimension_count", shared);
  for (const char* unused :
       {"attention_bias", "qk_head_dim", "rope_theta", "rope_scaling", "rope_parameters",
        "use_grouped_topk", "num_nextn_predict_layers", "use_cache", "max_position_embeddings"})
    config.ignore(unused);  // nothing turns
  const bool nested = config.is_object("linear_attn_config");
  const Config linear = nested ? config.object("linear_attn_config") : config;
  const auto number = [&](std::string_view inside, std::string_view flat) {
    return nested ? linear.u32(inside) : config.u32(flat);
  };
  heads_by_layer(t, linear_layers(t, linear), number("num_heads", "linear_num_heads"));
  t.set("kda.head_dim", number("head_dim", "linear_head_dim"));
  t.set("ssm.conv_kernel", number("short_conv_kernel_size", "linear_conv_kernel_dim"));
  if (nested && linear.has("gate_lower_bound"))
    t.set("kda.gate_lower_bound", linear.f32("gate_lower_bound"));
  if (!nested) return;
  for (const char* described : {"kda_layers", "full_attn_layers", "use_full_rank_gate"})
    linear.ignore(described);  // the tensors say which form the gate has
  linear.refuse_unread(t.model_type());
}

void kimi_linear_keys(Translation& t) {
  t.require("hidden_act", "silu");
  kimi_keys(t);
}

void kimi_k3_keys(Translation& t) {
  t.require("hidden_act", "situ");
  t.require_flag("latent_moe_use_norm", true);
  t.require_flag("mla_use_output_gate", true);
  kimi_keys(t);
}

// One decay per head; published files fill its place up to the head's width with zeros.
Source rate(Translation& t, std::uint32_t layer, std::uint64_t heads) {
  Source source = squeeze(t.take("layers." + std::to_string(layer) + ".self_attn.A_log"));
  if (source.elements() <= heads) return source;
  const std::vector<float> values = source.values();
  for (std::size_t i = heads; i < values.size(); ++i)
    if (values[i] != 0.f)
      base::raise(ErrorKind::kBadFile, "tensor '{}': expected {} decays, found {}", source.name,
                  heads, values.size());
  return part(source, 0, heads);
}

float decay(float logarithm) {
  return -std::exp(logarithm);
}

void kimi_tensors(Translation& t) {
  usual_experts(t, "layers.#.block_sparse_moe.experts", t.config().u32_or("num_experts", 0), "w1",
                "w3", "w2");
  const Config& config = t.config();
  const std::uint32_t heads = config.is_object("linear_attn_config")
                                  ? config.object("linear_attn_config").u32("num_heads")
                                  : config.u32("linear_num_heads");
  for (std::uint32_t i = 0; i < t.layers(); ++i) {
    const std::string from = "layers." + std::to_string(i) + ".self_attn.";
    const std::string to = "blk." + std::to_string(i) + ".";
    const bool linear = t.has(from + "A_log");
    if (linear) t.put(to + "ssm_a", map(rate(t, i, heads), decay));
    // A gate that is one matrix has the same name in both kinds of layer.
    if (const std::string gate = from + "g_proj.weight"; t.has(gate))
      t.put(to + (linear ? "ssm_g_a.weight" : "attn_gate.weight"), t.take(gate));
  }
}

constexpr Family kFamilies[] = {
    {"kimi_linear", "kimi-linear", "model.", kKeys, kKimi, kimi_linear_keys, kimi_tensors, true},
    {"kimi_k3", "kimi-k3", "model.", kKeys, kKimi, kimi_k3_keys, kimi_tensors, true},
};

}  // namespace

std::span<const Family> kimi_families() noexcept {
  return kFamilies;
}

}  // namespace lemma::weights::safetensors
