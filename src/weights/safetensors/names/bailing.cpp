// SPDX-License-Identifier: Apache-2.0
// Ling and Ring 2 (bailing_moe_v2; some published files say bailing_moe, as those of the first
// generation do, which has neither normed heads nor sigmoid scores) and Ling 3 (bailing_hybrid).
// Both call attention's output `dense` and the router's correction `expert_bias`.
#include "base/raise.hpp"
#include "weights/safetensors/names/families.hpp"

namespace lemma::weights::safetensors {
namespace {

constexpr TensorRule kLing2[] = {
    {"word_embeddings", "token_embd"},
    {"norm", "output_norm"},
    {"layers.#.input_layernorm", "blk.#.attn_norm"},
    {"layers.#.attention.query_key_value", "blk.#.attn_qkv"},
    {"layers.#.attention.query_layernorm", "blk.#.attn_q_norm"},
    {"layers.#.attention.key_layernorm", "blk.#.attn_k_norm"},
    {"layers.#.attention.dense", "blk.#.attn_output"},
    {"layers.#.post_attention_layernorm", "blk.#.ffn_norm"},
    {"layers.#.mlp.gate_proj", "blk.#.ffn_gate"},
    {"layers.#.mlp.up_proj", "blk.#.ffn_up"},
    {"layers.#.mlp.down_proj", "blk.#.ffn_down"},
    {"layers.#.mlp.gate", "blk.#.ffn_gate_inp"},
    {"layers.#.mlp.gate.expert_bias", "blk.#.exp_probs_b.bias", Change::kNone, true},
    {"layers.#.mlp.shared_experts.gate_proj", "blk.#.ffn_gate_shexp"},
    {"layers.#.mlp.shared_experts.up_proj", "blk.#.ffn_up_shexp"},
    {"layers.#.mlp.shared_experts.down_proj", "blk.#.ffn_down_shexp"},
};

constexpr TensorRule kLing3[] = {
    {"word_embeddings", "token_embd"},
    {"norm", "output_norm"},
    {"layers.#.input_layernorm", "blk.#.attn_norm"},
    {"layers.#.attention.q_proj", "blk.#.attn_q"},
    {"layers.#.attention.k_proj", "blk.#.attn_k"},
    {"layers.#.attention.v_proj", "blk.#.attn_v"},
    {"layers.#.attention.q_conv1d", "blk.#.ssm_conv1d_q", Change::kSqueeze},
    {"layers.#.attention.k_conv1d", "blk.#.ssm_conv1d_k", Change::kSqueeze},
    {"layers.#.attention.v_conv1d", "blk.#.ssm_conv1d_v", Change::kSqueeze},
    {"layers.#.attention.f_proj", "blk.#.ssm_f_a"},
    {"layers.#.attention.b_proj", "blk.#.ssm_beta"},
    {"layers.#.attention.A_log", "blk.#.ssm_a", Change::kNegExp, true},
    {"layers.#.attention.dt_bias", "blk.#.ssm_dt.bias", Change::kNone, true},
    {"layers.#.attention.o_norm", "blk.#.ssm_norm"},
    {"layers.#.attention.q_a_proj", "blk.#.attn_q_a"},
    {"layers.#.attention.q_a_layernorm", "blk.#.attn_q_a_norm"},
    {"layers.#.attention.q_b_proj", "blk.#.attn_q_b"},
    {"layers.#.attention.kv_a_proj_with_mqa", "blk.#.attn_kv_a_mqa"},
    {"layers.#.attention.kv_a_layernorm", "blk.#.attn_kv_a_norm"},
    {"layers.#.attention.kv_b_proj", "blk.#.attn_kv_b"},
    {"layers.#.attention.dense", "blk.#.attn_output"},
    {"layers.#.post_attention_layernorm", "blk.#.ffn_norm"},
    {"layers.#.mlp.gate_proj", "blk.#.ffn_gate"},
    {"layers.#.mlp.up_proj", "blk.#.ffn_up"},
    {"layers.#.mlp.down_proj", "blk.#.ffn_down"},
    {"layers.#.mlp.gate", "blk.#.ffn_gate_inp"},
    {"layers.#.mlp.gate.expert_bias", "blk.#.exp_probs_b.bias", Change::kNone, true},
    {"layers.#.mlp.shared_experts.gate_proj", "blk.#.ffn_gate_shexp"},
    {"layers.#.mlp.shared_experts.up_proj", "blk.#.ffn_up_shexp"},
    {"layers.#.mlp.shared_experts.down_proj", "blk.#.ffn_down_shexp"},
};

constexpr auto kLing3Keys = with_experts({
    {"q_lora_rank", "attention.q_lora_rank"},
    {"kv_lora_rank", "attention.kv_lora_rank"},
    {"short_conv_kernel_size", "ssm.conv_kernel"},
    {"kda_safe_gate", "kda.safe_gate", kFlag},
});

constexpr float kLing3Bound = -5.f;
constexpr std::uint32_t kLing3Group = 6;

void ling2_keys(Translation& t) {
  usual_keys(t);
  t.require("score_function", "sigmoid");
  for (const char* on : {"use_rmsnorm", "moe_router_enable_expert_bias"}) t.require_flag(on, true);
  if (!t.config().boolean_or("use_qk_norm", false))
    base::raise(ErrorKind::kUnsupported,
                "config.json: key 'use_qk_norm': expected true; the first generation of '{}' "
                "models is not supported",
                t.model_type());
  t.set("expert_gating_func", kSigmoidScores);
  dense_layers_in_front(t);
  expert_groups(t, "n_group", "topk_group");
  describe(t, {"router_dtype", "use_bias", "use_qkv_bias", "num_nextn_predict_layers",
               "max_window_layers", "sliding_window"});
}

void expert_tensors(Translation& t) {
  usual_experts(t, "layers.#.mlp.experts", t.config().u32("num_experts"));
}

// The last layer of every group attends; the others are linear.
std::vector<bool> linear_layers(Translation& t) {
  std::vector<bool> found = t.layers_called("linear_attention");
  const std::uint32_t group = t.config().u32_or("layer_group_size", kLing3Group);
  if (group == 0)
    base::raise(ErrorKind::kBadFile,
                "config.json: key 'layer_group_size': expected at least 1, found 0");
  for (std::uint32_t i = 0; found.size() < t.layers(); ++i) found.push_back((i + 1) % group != 0);
  return found;
}

void ling3_keys(Translation& t) {
  const Config& config = t.config();
  t.require("hidden_act", "silu");
  t.set("expert_gating_func", kSigmoidScores);
  dense_layers_in_front(t);
  expert_groups(t, config.has("n_group") ? "n_group" : "num_expert_group", "topk_group");
  heads_by_layer(t, linear_layers(t), config.u32_or("linear_num_heads", t.heads()));
  // transformers states the size of a linear head beside head_dim, published files by it.
  t.set("kda.head_dim",
        config.has("linear_head_dim") ? config.u32("linear_head_dim") : config.u32("head_dim"));
  t.set("kda.gate_lower_bound", config.f32_or("kda_lower_bound", kLing3Bound));
  const std::uint32_t turned = config.u32("qk_rope_head_dim");
  const std::uint64_t head = std::uint64_t{turned} + config.u32("qk_nope_head_dim");
  t.require_number("qk_head_dim", static_cast<float>(head));
  t.set("attention.key_length", static_cast<std::uint32_t>(head));
  t.set("attention.value_length", config.u32("v_head_dim"));
  t.rope({.head_dim = turned, .latent = true, .theta = 6e6f});
  describe(t, {"attention_bias", "num_nextn_predict_layers", "linear_conv_kernel_dim",
               "mtp_loss_scaling_factor", "rope_theta"});
}

void ling3_tensors(Translation& t) {
  expert_tensors(t);
  for (std::uint32_t i = 0; i < t.layers(); ++i) {
    const std::string from = numbered("layers.#.attention.", i);
    const bool linear = t.has(from + "f_proj.weight");
    if (t.has(from + "g_proj.weight"))
      t.put(numbered(linear ? "blk.#.ssm_g_a.weight" : "blk.#.attn_gate.weight", i),
            t.take(from + "g_proj.weight"));
  }
}

// Half of each head turns where config.json does not say.
constexpr std::string_view kLing2Defaults = R"({"partial_rotary_factor": 0.5})";

constexpr Family kFamilies[] = {
    {"bailing_moe_v2", "bailingmoe2", "model.", kExpertKeys, kLing2, ling2_keys, expert_tensors,
     false, kLing2Defaults},
    {"bailing_moe", "bailingmoe2", "model.", kExpertKeys, kLing2, ling2_keys, expert_tensors, false,
     kLing2Defaults},
    {"bailing_hybrid", "bailingmoe3", "model.", kLing3Keys, kLing3, ling3_keys, ling3_tensors,
     true},
};

}  // namespace

std::span<const Family> bailing_families() noexcept {
  return kFamilies;
}

}  // namespace lemma::weights::safetensors
