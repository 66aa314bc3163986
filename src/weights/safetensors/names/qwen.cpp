// SPDX-License-Identifier: Apache-2.0
// Qwen 2 to Qwen 3 Next. Qwen 3 Next's fused projections lie as GGUF's older files have them (rows
// by key head), its norms are stored around zero except the one behind the recurrence, and decays
// as logarithms.
#include <algorithm>

#include "base/raise.hpp"
#include "weights/safetensors/names/families.hpp"

namespace lemma::weights::safetensors {
namespace {

constexpr TensorRule kQwen[] = {
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
    {"layers.#.mlp.gate_proj", "blk.#.ffn_gate"},
    {"layers.#.mlp.up_proj", "blk.#.ffn_up"},
    {"layers.#.mlp.down_proj", "blk.#.ffn_down"},
    {"layers.#.mlp.gate", "blk.#.ffn_gate_inp"},
    {"layers.#.mlp.shared_expert.gate_proj", "blk.#.ffn_gate_shexp"},
    {"layers.#.mlp.shared_expert.up_proj", "blk.#.ffn_up_shexp"},
    {"layers.#.mlp.shared_expert.down_proj", "blk.#.ffn_down_shexp"},
};

constexpr TensorRule kQwenNext[] = {
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm", Change::kAddOne},
    {"layers.#.input_layernorm", "blk.#.attn_norm", Change::kAddOne},
    {"layers.#.self_attn.q_proj", "blk.#.attn_q"},
    {"layers.#.self_attn.k_proj", "blk.#.attn_k"},
    {"layers.#.self_attn.v_proj", "blk.#.attn_v"},
    {"layers.#.self_attn.o_proj", "blk.#.attn_output"},
    {"layers.#.self_attn.q_norm", "blk.#.attn_q_norm", Change::kAddOne},
    {"layers.#.self_attn.k_norm", "blk.#.attn_k_norm", Change::kAddOne},
    {"layers.#.linear_attn.in_proj_qkvz", "blk.#.ssm_in"},
    {"layers.#.linear_attn.in_proj_ba", "blk.#.ssm_ba"},
    {"layers.#.linear_attn.in_proj_qkv", "blk.#.attn_qkv"},
    {"layers.#.linear_attn.in_proj_z", "blk.#.attn_gate"},
    {"layers.#.linear_attn.in_proj_a", "blk.#.ssm_alpha"},
    {"layers.#.linear_attn.in_proj_b", "blk.#.ssm_beta"},
    {"layers.#.linear_attn.conv1d.weight", "blk.#.ssm_conv1d.weight", Change::kSqueeze, true},
    {"layers.#.linear_attn.A_log", "blk.#.ssm_a", Change::kNegExp, true},
    {"layers.#.linear_attn.dt_bias", "blk.#.ssm_dt.bias", Change::kNone, true},
    {"layers.#.linear_attn.norm", "blk.#.ssm_norm"},
    {"layers.#.linear_attn.out_proj", "blk.#.ssm_out"},
    {"layers.#.post_attention_layernorm", "blk.#.post_attention_norm", Change::kAddOne},
    {"layers.#.mlp.gate_proj", "blk.#.ffn_gate"},
    {"layers.#.mlp.up_proj", "blk.#.ffn_up"},
    {"layers.#.mlp.down_proj", "blk.#.ffn_down"},
    {"layers.#.mlp.gate", "blk.#.ffn_gate_inp"},
    {"layers.#.mlp.shared_expert.gate_proj", "blk.#.ffn_gate_shexp"},
    {"layers.#.mlp.shared_expert.up_proj", "blk.#.ffn_up_shexp"},
    {"layers.#.mlp.shared_expert.down_proj", "blk.#.ffn_down_shexp"},
    {"layers.#.eh_proj", "blk.#.nextn.eh_proj"},
    {"layers.#.enorm", "blk.#.nextn.enorm", Change::kAddOne},
    {"layers.#.hnorm", "blk.#.nextn.hnorm", Change::kAddOne},
    {"layers.#.shared_head.norm", "blk.#.nextn.shared_head_norm", Change::kAddOne},
};

// The window of these models has never been switched on; layer_types says it once more.
void dense_keys(Translation& t) {
  usual_keys(t);
  t.require_flag("use_sliding_window", false);
  const std::vector<bool> whole = t.layers_called("full_attention");
  if (std::ranges::count(whole, false) != 0)
    base::raise(ErrorKind::kUnsupported,
                "config.json: key 'layer_types': expected full_attention in every layer of a '{}' "
                "model",
                t.model_type());
  for (const char* described :
       {"attention_bias", "sliding_window", "max_window_layers", "qkv_bias"})
    t.config().ignore(described);
}

void expert_keys(Translation& t) {
  dense_keys(t);
  t.require_number("decoder_sparse_step", 1.f);
}

void expert_tensors(Translation& t) {
  const Config& config = t.config();
  usual_experts(
      t, "layers.#.mlp.experts",
      config.has("num_experts") ? config.u32("num_experts") : config.u32("num_local_experts"));
  for (std::uint32_t i = 0; i < t.blocks(); ++i) {
    const std::string gate = "layers." + std::to_string(i) + ".mlp.shared_expert_gate.weight";
    if (t.has(gate))
      t.put("blk." + std::to_string(i) + ".ffn_gate_inp_shexp.weight", squeeze(t.take(gate)));
  }
}

constexpr auto kNextKeys = with_experts({
    {"linear_num_key_heads", "ssm.group_count"},
    {"linear_num_value_heads", "ssm.time_step_rank"},
    {"linear_key_head_dim", "ssm.state_size"},
    {"linear_conv_kernel_dim", "ssm.conv_kernel"},
});

// Attention every so many layers: the architecture knows no other pattern.
void next_keys(Translation& t) {
  usual_keys(t);
  t.require_number("decoder_sparse_step", 1.f);
  t.config().ignore("attention_bias");
  const std::uint64_t inner = std::uint64_t{t.config().u32("linear_num_value_heads")} *
                              t.config().u32("linear_value_head_dim");
  t.set("ssm.inner_size", static_cast<std::uint32_t>(std::min<std::uint64_t>(inner, 1u << 31)));
  const std::vector<bool> attends = t.layers_called("full_attention");
  const auto first = std::ranges::find(attends, true);
  std::uint32_t interval = t.config().u32_or("full_attention_interval", 4);
  if (!attends.empty()) interval = static_cast<std::uint32_t>(first - attends.begin()) + 1;
  for (std::uint32_t i = 0; i < attends.size(); ++i)
    if (attends[i] != ((i + 1) % interval == 0))
      base::raise(ErrorKind::kUnsupported,
                  "config.json: key 'layer_types': expected full_attention in every {}th layer, "
                  "found otherwise in layer {}",
                  interval, i);
  t.set("full_attention_interval", interval);
}

// Sections of dims for time, height and width, taken in turns.
void sections(Translation& t) {
  if (!t.config().is_object("rope_parameters")) return;
  const Config rope = t.config().object("rope_parameters");
  if (!rope.has("mrope_section")) return;
  std::vector<std::uint32_t> dims = rope.u32s("mrope_section");
  if (dims.size() != 3 || !rope.boolean_or("mrope_interleaved", false))
    base::raise(ErrorKind::kUnsupported,
                "config.json: key 'rope_parameters.mrope_section': expected three interleaved "
                "sections");
  dims.push_back(0);  // GGUF has room for a fourth axis
  t.set("rope.dimension_sections", dims);
}

// Value heads stand beside the key head that they read; GGUF files have them reordered.
void qwen3_5_keys(Translation& t) {
  sections(t);
  next_keys(t);
  t.set("ssm.value_heads_grouped", true);
  t.require_flag("mtp_use_dedicated_embeddings", false);
  t.require_flag("attn_output_gate", true);
  describe(t, {"mtp_num_hidden_layers", "mamba_ssm_dtype", "full_attention_interval"});
}

void qwen3_5_expert_tensors(Translation& t) {
  stacked_experts(t);
  expert_tensors(t);
}

constexpr Family kFamilies[] = {
    {"qwen2", "qwen2", "model.", {}, kQwen, dense_keys},
    {"qwen2_moe", "qwen2moe", "model.", kExpertKeys, kQwen, expert_keys, expert_tensors},
    {"qwen3", "qwen3", "model.", {}, kQwen, dense_keys},
    {"qwen3_moe", "qwen3moe", "model.", kExpertKeys, kQwen, expert_keys, expert_tensors},
    {"qwen3_next", "qwen3next", "model.", kNextKeys, kQwenNext, next_keys, expert_tensors, false,
     "{}", Drafts::kModule},
    {"qwen3_5_text", "qwen35", "model.", kNextKeys, kQwenNext, qwen3_5_keys, nullptr, false, "{}",
     Drafts::kModule},
    {"qwen3_5", "qwen35", "model.", kNextKeys, kQwenNext, qwen3_5_keys, nullptr, false, "{}",
     Drafts::kModule},
    {"qwen3_5_moe_text", "qwen35moe", "model.", kNextKeys, kQwenNext, qwen3_5_keys,
     qwen3_5_expert_tensors, false, "{}", Drafts::kModule},
    {"qwen3_5_moe", "qwen35moe", "model.", kNextKeys, kQwenNext, qwen3_5_keys,
     qwen3_5_expert_tensors, false, "{}", Drafts::kModule},
};

}  // namespace

std::span<const Family> qwen_families() noexcept {
  return kFamilies;
}

}  // namespace lemma::weights::safetensors
