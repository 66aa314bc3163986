// SPDX-License-Identifier: Apache-2.0
// Qwen 2 to Qwen 3 Next. Qwen 3 Next's fused projections lie as GGUF's older files have them (rows
// by key head), its norms are stored around zero except the one behind the recurrence, and decays
// as logarithms.
#include <algorithm>
#include <cmath>

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
    {"layers.#.linear_attn.norm", "blk.#.ssm_norm"},
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

// The other tensors of Qwen 3 Next's recurrence.
constexpr TensorRule kNextRecurrence[] = {
    {"layers.#.linear_attn.in_proj_qkvz", "blk.#.ssm_in"},
    {"layers.#.linear_attn.in_proj_ba", "blk.#.ssm_ba"},
    {"layers.#.linear_attn.conv1d.weight", "blk.#.ssm_conv1d.weight", Change::kSqueeze, true},
    {"layers.#.linear_attn.A_log", "blk.#.ssm_a", Change::kNegExp, true},
    {"layers.#.linear_attn.dt_bias", "blk.#.ssm_dt.bias", Change::kNone, true},
    {"layers.#.linear_attn.out_proj", "blk.#.ssm_out"},
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

void qwen3_5_keys(Translation& t) {
  sections(t);
  next_keys(t);
  t.require_flag("mtp_use_dedicated_embeddings", false);
  t.require_flag("attn_output_gate", true);
  describe(t, {"mtp_num_hidden_layers", "mamba_ssm_dtype", "full_attention_interval"});
}

void next_tensors(Translation& t) {
  for (const TensorRule& rule : kNextRecurrence) t.move(rule);
  expert_tensors(t);
}

// Qwen 3.5 stores value heads beside the key head that they read; in GGUF files head h reads the
// key head h modulo their number.
class ValueHeads {
 public:
  explicit ValueHeads(const Config& config)
      : keys_(config.u32("linear_num_key_heads")),
        values_(config.u32("linear_num_value_heads")),
        key_rows_(std::uint64_t{2} * keys_ * config.u32("linear_key_head_dim")),
        width_(config.u32("linear_value_head_dim")) {
    const std::uint64_t largest = std::max({keys_, values_, width_, key_rows_});
    if (keys_ == 0 || values_ == 0 || width_ == 0 || values_ % keys_ != 0 || largest > kMost)
      base::raise(ErrorKind::kBadFile,
                  "config.json: expected linear_num_key_heads that divide linear_num_value_heads, "
                  "of at most {} rows, found {} and {}, of {} dims",
                  kMost, keys_, values_, width_);
  }

  std::uint64_t key_rows() const { return key_rows_; }
  std::uint64_t width() const { return width_; }

  /// Rows of value heads, `width` each, behind `first` rows that stay.
  Source reordered(Source source, std::uint64_t width, std::uint64_t first = 0) const {
    const std::vector<std::uint64_t> shape = source.shape;
    const std::uint64_t rows = first + values_ * width;
    if (shape.empty() || shape[0] != rows)
      base::raise(ErrorKind::kBadFile, "tensor '{}': expected {} rows for {} value heads, found {}",
                  source.name, rows, values_, shape.empty() ? 0 : shape[0]);
    if (shape.size() == 1) source.shape.push_back(1);
    const std::uint64_t keys = keys_, ratio = values_ / keys_;
    Source out = gather_rows(std::move(source), rows, [=](std::uint64_t row) {
      if (row < first) return row;
      const std::uint64_t head = (row - first) / width, place = (row - first) % width;
      return first + (head % keys * ratio + head / keys) * width + place;
    });
    out.shape = shape;
    return out;
  }

 private:
  static constexpr std::uint64_t kMost = 1u << 24;
  std::uint64_t keys_, values_, key_rows_, width_;
};

float decay(float logarithm) {
  return -std::exp(logarithm);
}

void qwen3_5_recurrence(Translation& t) {
  const ValueHeads heads(t.config());
  for (std::uint32_t i = 0; i < t.layers(); ++i) {
    const std::string from = numbered("layers.#.linear_attn.", i), to = numbered("blk.#.", i);
    if (!t.has(from + "in_proj_qkv.weight")) continue;
    const auto put = [&](const char* name, Source source) { t.put(to + name, std::move(source)); };
    const auto take = [&](const char* name) { return t.take(from + name); };
    put("attn_qkv.weight",
        heads.reordered(take("in_proj_qkv.weight"), heads.width(), heads.key_rows()));
    put("ssm_conv1d.weight",
        heads.reordered(squeeze(take("conv1d.weight")), heads.width(), heads.key_rows()));
    put("attn_gate.weight", heads.reordered(take("in_proj_z.weight"), heads.width()));
    put("ssm_alpha.weight", heads.reordered(take("in_proj_a.weight"), 1));
    put("ssm_beta.weight", heads.reordered(take("in_proj_b.weight"), 1));
    put("ssm_dt.bias", heads.reordered(squeeze(take("dt_bias")), 1));
    put("ssm_a", map(heads.reordered(squeeze(take("A_log")), 1), decay));
    put("ssm_out.weight",
        transpose(heads.reordered(transpose(take("out_proj.weight")), heads.width())));
  }
}

void qwen3_5_expert_tensors(Translation& t) {
  qwen3_5_recurrence(t);
  stacked_experts(t);
  expert_tensors(t);
}

constexpr Family kFamilies[] = {
    {"qwen2", "qwen2", "model.", {}, kQwen, dense_keys},
    {"qwen2_moe", "qwen2moe", "model.", kExpertKeys, kQwen, expert_keys, expert_tensors},
    {"qwen3", "qwen3", "model.", {}, kQwen, dense_keys},
    {"qwen3_moe", "qwen3moe", "model.", kExpertKeys, kQwen, expert_keys, expert_tensors},
    {"qwen3_next", "qwen3next", "model.", kNextKeys, kQwenNext, next_keys, next_tensors, false,
     "{}", Drafts::kModule},
    {"qwen3_5_text", "qwen35", "model.", kNextKeys, kQwenNext, qwen3_5_keys, qwen3_5_recurrence,
     false, "{}", Drafts::kModule},
    {"qwen3_5", "qwen35", "model.", kNextKeys, kQwenNext, qwen3_5_keys, qwen3_5_recurrence, false,
     "{}", Drafts::kModule},
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
