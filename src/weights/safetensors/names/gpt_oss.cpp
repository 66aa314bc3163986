// SPDX-License-Identifier: Apache-2.0
// gpt-oss. Its experts lie in one stack, gate and up in alternating columns: [E, D, 2 F], which
// becomes two stacks [E, F, D]. The published checkpoints hold them as MXFP4, already [E, 2 F, D]
// (quantized.cpp).
#include "base/raise.hpp"
#include "weights/safetensors/names/families.hpp"

namespace lemma::weights::safetensors {
namespace {

constexpr TensorRule kGptOss[] = {
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm"},
    {"layers.#.input_layernorm", "blk.#.attn_norm"},
    {"layers.#.self_attn.q_proj", "blk.#.attn_q"},
    {"layers.#.self_attn.k_proj", "blk.#.attn_k"},
    {"layers.#.self_attn.v_proj", "blk.#.attn_v"},
    {"layers.#.self_attn.o_proj", "blk.#.attn_output"},
    {"layers.#.self_attn.sinks", "blk.#.attn_sinks.weight", Change::kNone, true},
    {"layers.#.post_attention_layernorm", "blk.#.post_attention_norm"},
    {"layers.#.mlp.router", "blk.#.ffn_gate_inp"},
    {"layers.#.mlp.experts.down_proj_bias", "blk.#.ffn_down_exps.bias", Change::kNone, true},
};

void keys(Translation& t) {
  usual_keys(t);
  window_by_layer(t);
  const Config& config = t.config();
  t.set("expert_used_count", config.has("num_experts_per_tok") ? config.u32("num_experts_per_tok")
                                                               : config.u32("experts_per_token"));
  t.require_number("swiglu_limit", 7.f);
  t.require_number("swiglu_alpha", 1.702f);
  for (const char* described :
       {"attention_bias", "initial_context_length", "experts_per_token", "output_router_logits"})
    config.ignore(described);
}

/// [E, 2 F, n] -> every second row from `first` on, [E, F, n].
Source every_second(Source source, std::uint64_t first) {
  const std::vector<std::uint64_t> shape = source.shape;
  Source rows = gather_rows(std::move(source), shape[0] * shape[1] / 2,
                            [first](std::uint64_t row) { return 2 * row + first; });
  rows.shape = {shape[0], shape[1] / 2, shape[2]};
  return rows;
}

void tensors(Translation& t) {
  const std::uint64_t experts = t.config().u32("num_local_experts");
  if (experts == 0)
    base::raise(ErrorKind::kBadFile,
                "config.json: key 'num_local_experts': expected at least 1, found 0");
  for (std::uint32_t i = 0; i < t.layers(); ++i) {
    const std::string from = "layers." + std::to_string(i) + ".mlp.experts.";
    const std::string to = "blk." + std::to_string(i) + ".ffn_";
    const bool packed = t.has(from + "gate_up_proj_blocks");
    const auto stack = [&](const std::string& name) {
      Source source = packed ? t.take_mxfp4(from + name) : transpose(t.take(from + name));
      if (source.shape.size() != 3 || source.shape[0] != experts || source.shape[1] % 2 != 0)
        require_shape(source, {experts, source.rows() / experts / 2 * 2, source.row_elements()});
      return source;
    };
    const Source both = stack("gate_up_proj");
    t.put(to + "gate_exps.weight", every_second(both, 0));
    t.put(to + "up_exps.weight", every_second(both, 1));
    t.put(to + "down_exps.weight", stack("down_proj"));
    Source bias = t.take(from + "gate_up_proj_bias");
    require_shape(bias, {experts, both.shape[1]});
    bias = reshape(std::move(bias), {experts, both.shape[1], 1});
    for (const std::uint64_t part : {0, 1}) {
      Source half = every_second(bias, part);
      half.shape.pop_back();
      t.put(to + (part == 0 ? "gate_exps.bias" : "up_exps.bias"), std::move(half));
    }
  }
}

constexpr Family kFamilies[] = {
    {"gpt_oss", "gpt-oss", "model.", kExpertKeys, kGptOss, keys, tensors},
};

}  // namespace

std::span<const Family> gpt_oss_families() noexcept {
  return kFamilies;
}

}  // namespace lemma::weights::safetensors
