// SPDX-License-Identifier: Apache-2.0
// GLM 5.3 Flash (glm5_next). Its text model lies beside a tower for images, its keys in
// text_config. The three convolutions of KDA are stored apart (published files) or in one tensor,
// and the forget gate's parts with or without a module of their own.
#include <cmath>

#include "base/raise.hpp"
#include "weights/safetensors/names/families.hpp"

namespace lemma::weights::safetensors {
namespace {

constexpr TensorRule kGlm[] = {
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm"},
    {"layers.#.input_layernorm", "blk.#.attn_norm"},
    {"layers.#.self_attn.q_proj", "blk.#.attn_q"},
    {"layers.#.self_attn.k_proj", "blk.#.attn_k"},
    {"layers.#.self_attn.v_proj", "blk.#.attn_v"},
    {"layers.#.self_attn.q_conv1d", "blk.#.ssm_conv1d_q", Change::kSqueeze},
    {"layers.#.self_attn.k_conv1d", "blk.#.ssm_conv1d_k", Change::kSqueeze},
    {"layers.#.self_attn.v_conv1d", "blk.#.ssm_conv1d_v", Change::kSqueeze},
    {"layers.#.self_attn.f_a_proj", "blk.#.ssm_f_a"},
    {"layers.#.self_attn.f_b_proj", "blk.#.ssm_f_b"},
    {"layers.#.self_attn.A_log", "blk.#.ssm_a", Change::kNegExp, true},
    {"layers.#.self_attn.dt_bias", "blk.#.ssm_dt.bias", Change::kNone, true},
    {"layers.#.self_attn.forget_gate.f_a_proj", "blk.#.ssm_f_a"},
    {"layers.#.self_attn.forget_gate.f_b_proj", "blk.#.ssm_f_b"},
    {"layers.#.self_attn.forget_gate.A_log", "blk.#.ssm_a", Change::kNegExp, true},
    {"layers.#.self_attn.forget_gate.dt_bias", "blk.#.ssm_dt.bias", Change::kNone, true},
    {"layers.#.self_attn.g_a_proj", "blk.#.ssm_g_a"},
    {"layers.#.self_attn.g_b_proj", "blk.#.ssm_g_b"},
    {"layers.#.self_attn.b_proj", "blk.#.ssm_beta"},
    {"layers.#.self_attn.o_norm", "blk.#.ssm_norm"},
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
    {"layers.#.self_attn.indexer.index_kpool_compress_gate", "blk.#.indexer.pool_gate.weight",
     Change::kNone, true},
    {"layers.#.self_attn.indexer.index_kpool_compress_ape", "blk.#.indexer.pool_positions.weight",
     Change::kNone, true},
    {"layers.#.post_attention_layernorm", "blk.#.ffn_norm"},
    {"layers.#.mlp.gate_proj", "blk.#.ffn_gate"},
    {"layers.#.mlp.up_proj", "blk.#.ffn_up"},
    {"layers.#.mlp.down_proj", "blk.#.ffn_down"},
    {"layers.#.mlp.gate", "blk.#.ffn_gate_inp"},
    {"layers.#.mlp.gate.e_score_correction_bias", "blk.#.exp_probs_b.bias", Change::kNone, true},
    {"layers.#.mlp.shared_experts.gate_proj", "blk.#.ffn_gate_shexp"},
    {"layers.#.mlp.shared_experts.up_proj", "blk.#.ffn_up_shexp"},
    {"layers.#.mlp.shared_experts.down_proj", "blk.#.ffn_down_shexp"},
    {"layers.#.hc_attn_fn", "blk.#.hc_attn_fn.weight", Change::kNone, true},
    {"layers.#.hc_attn_base", "blk.#.hc_attn_base.weight", Change::kNone, true},
    {"layers.#.hc_attn_scale", "blk.#.hc_attn_scale.weight", Change::kNone, true},
    {"layers.#.hc_ffn_fn", "blk.#.hc_ffn_fn.weight", Change::kNone, true},
    {"layers.#.hc_ffn_base", "blk.#.hc_ffn_base.weight", Change::kNone, true},
    {"layers.#.hc_ffn_scale", "blk.#.hc_ffn_scale.weight", Change::kNone, true},
    {"layers.#.attn_hc.fn", "blk.#.hc_attn_fn.weight", Change::kNone, true},
    {"layers.#.attn_hc.base", "blk.#.hc_attn_base.weight", Change::kNone, true},
    {"layers.#.attn_hc.scale", "blk.#.hc_attn_scale.weight", Change::kNone, true},
    {"layers.#.ffn_hc.fn", "blk.#.hc_ffn_fn.weight", Change::kNone, true},
    {"layers.#.ffn_hc.base", "blk.#.hc_ffn_base.weight", Change::kNone, true},
    {"layers.#.ffn_hc.scale", "blk.#.hc_ffn_scale.weight", Change::kNone, true},
};

constexpr auto kKeys = with_experts({
    {"q_lora_rank", "attention.q_lora_rank"},
    {"kv_lora_rank", "attention.kv_lora_rank"},
    {"index_n_heads", "attention.indexer.head_count"},
    {"index_head_dim", "attention.indexer.key_length"},
    {"index_topk", "attention.indexer.top_k"},
    {"index_kpool", "attention.indexer.pool_size"},
    {"hc_mult", "hyper_connection.count"},
    {"hc_sinkhorn_iters", "hyper_connection.sinkhorn_iterations"},
    {"hc_eps", "hyper_connection.epsilon", kReal},
    {"swiglu_limit", "swiglu_clamp_exp", kReal},
});

// linear_attn_config, where it stands, replaces the flat keys.
void linear_keys(Translation& t) {
  const Config& config = t.config();
  const bool nested = config.is_object("linear_attn_config");
  const Config linear = nested ? config.object("linear_attn_config") : config;
  const auto number = [&](std::string_view inside, std::string_view flat) {
    return nested && linear.has(inside) ? linear.u32(inside) : config.u32(flat);
  };
  heads_by_layer(t, t.layers_called("linear_attention"), number("num_heads", "linear_num_heads"));
  t.set("kda.head_dim", number("head_dim", "linear_head_dim"));
  t.set("ssm.conv_kernel", number("short_conv_kernel_size", "linear_conv_kernel_dim"));
  const bool bounded = nested && linear.has("gate_lower_bound");
  if (bounded || config.has("linear_lower_bound"))
    t.set("kda.gate_lower_bound",
          bounded ? linear.f32("gate_lower_bound") : config.f32("linear_lower_bound"));
  for (const char* flat : {"linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim",
                           "linear_lower_bound", "linear_attn_config"})
    config.ignore(flat);
  if (nested) linear.refuse_unread(t.model_type());
}

void keys(Translation& t) {
  const Config& config = t.config();
  t.require("hidden_act", "silu");
  t.require_number("qk_rope_head_dim", 0.f);
  if (!config.has("layer_types") || !config.has("mlp_layer_types"))
    base::raise(ErrorKind::kUnsupported,
                "config.json: expected the keys 'layer_types' and 'mlp_layer_types'");
  t.set("expert_gating_func", kSigmoidScores);
  dense_layers_in_front(t);
  expert_groups(t, "n_group", "topk_group");
  linear_keys(t);
  t.set("attention.key_length", config.u32("qk_nope_head_dim"));
  t.set("attention.value_length", config.u32("v_head_dim"));
  t.set("attention.indexer.pool_tail", config.boolean_or("index_kpool_always_select_tail", true));
  // Which layers have an indexer the tensors say.
  for (const char* described :
       {"attention_bias", "qk_head_dim", "indexer_types", "rope_parameters", "rope_theta",
        "rope_scaling", "index_topk_freq", "index_skip_topk_offset", "index_topk_pattern",
        "num_nextn_predict_layers"})
    config.ignore(described);
}

void tensors(Translation& t) {
  usual_experts(t, "layers.#.mlp.experts", t.config().u32("n_routed_experts"));
  for (std::uint32_t i = 0; i < t.layers(); ++i) {
    const std::string joined = "layers." + std::to_string(i) + ".self_attn.conv1d.weight";
    if (!t.has(joined)) continue;
    const Source source = squeeze(t.take(joined));
    const std::uint64_t third = source.shape[0] / 3;
    if (third == 0 || source.shape[0] % 3 != 0)
      base::raise(ErrorKind::kBadFile, "tensor '{}': expected three equal parts, found {} rows",
                  source.name, source.shape[0]);
    for (std::uint64_t p = 0; p < 3; ++p)
      t.put("blk." + std::to_string(i) + ".ssm_conv1d_" + "qkv"[p] + ".weight",
            part(source, p * third, (p + 1) * third));
  }
}

constexpr Family kFamilies[] = {
    {"glm5_next", "glm5-next", "model.", kKeys, kGlm, keys, tensors, true},
    {"glm5_next_text", "glm5-next", "model.", kKeys, kGlm, keys, tensors, true},
};

}  // namespace

std::span<const Family> glm5_next_families() noexcept {
  return kFamilies;
}

}  // namespace lemma::weights::safetensors
