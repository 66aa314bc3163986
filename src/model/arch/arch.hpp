// SPDX-License-Identifier: Apache-2.0
// Architectures: one file per family turns a checkpoint's metadata into a Plan. The table in
// arch.cpp maps `general.architecture` to that file; an architecture that is not in it is refused
// by name. `Reader` gives the files short words for what all of them read.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "model/plan.hpp"
#include "weights/checkpoint.hpp"

namespace lemma::model {

struct PlanOptions {
  /// Positions that sequences may reach; 0: what the model was made for. LongRoPE chooses its
  /// short or long factors by it.
  std::uint32_t context = 0;
};

/// Plans the model in `checkpoint`. Throws kUnsupported for an unknown architecture (the message
/// lists the known ones), an unknown word in it, and any key or tensor that the plan would ignore
/// although it may change the result; kBadFile for missing or contradictory keys.
Plan make_plan(const weights::Checkpoint& checkpoint, const PlanOptions& options);

/// The names of all known architectures, sorted.
std::vector<std::string_view> known_architectures();

namespace arch {

/// Reads the keys and tensors of one checkpoint under its architecture's prefix.
class Reader {
 public:
  Reader(const weights::Checkpoint& checkpoint, const PlanOptions& options);

  const weights::Checkpoint& checkpoint() const noexcept { return *checkpoint_; }
  const weights::Metadata& metadata() const noexcept { return checkpoint_->metadata(); }
  const std::string& architecture() const noexcept { return architecture_; }

  /// "block_count" -> "llama.block_count", which counts as read from now on (refuse_ignored).
  std::string key(std::string_view suffix) const;
  bool was_read(std::string_view name) const { return read_.find(name) != read_.end(); }
  /// The `count` values of a vector that becomes part of the plan itself; counts as read too.
  std::vector<float> values(const std::string& tensor, std::uint64_t count) const;
  bool has_tensor(std::string_view name) const noexcept {
    return checkpoint_->find(name) != nullptr;
  }
  /// Counts a tensor as read that some files carry although the model has no use for it.
  void leave_out(std::string_view tensor) const { read_.emplace(tensor); }

  std::uint32_t width() const noexcept { return width_; }  ///< D
  /// L: the blocks of the model itself. Blocks behind them that draft (nextn_predict_layers) are
  /// counted in block_count; their tensors count as read until add_drafts() plans them.
  std::uint32_t layers() const noexcept { return layers_; }
  /// The blocks behind them that the file has; they are numbered from layers() on, also in heads()
  /// and the like.
  std::uint32_t drafts() const noexcept { return drafts_; }
  std::uint32_t context() const noexcept { return context_; }  ///< in use (PlanOptions), at least 1
  std::uint32_t trained_context() const noexcept { return trained_context_; }
  std::uint32_t original_context() const;  ///< before RoPE scaling; the trained one without its key

  // Per-layer dimensions, checked: heads > 0; KV heads divide heads, and are 0 in layers without
  // keys.
  std::uint32_t heads(std::uint32_t layer) const noexcept { return heads_[layer]; }
  std::uint32_t kv_heads(std::uint32_t layer) const noexcept { return kv_heads_[layer]; }
  /// F of a dense block; 0 in a model without any.
  std::uint32_t hidden(std::uint32_t layer) const noexcept {
    return hidden_.empty() ? 0 : hidden_[layer];
  }
  std::uint32_t head_dim() const noexcept { return head_dim_; }  ///< of queries and keys
  std::uint32_t value_dim() const noexcept { return value_dim_; }

  /// A positive scale; `fallback` where the key is absent or 0, which means "none" in these files.
  float scale(std::string_view suffix, float fallback) const;
  /// The window of a model whose every layer slides; 0 where the key is absent.
  std::uint32_t window() const;
  /// Which layers slide: the key attention.sliding_window_pattern (a period n: all but every n-th
  /// layer; or one flag per layer), else all but every `period`-th.
  std::vector<bool> sliding_layers(std::uint32_t period) const;

  /// A plan with width, vocabulary, context, embedding table, final norm of `norm` kind and a head
  /// that is tied to the embedding where the checkpoint has no output matrix.
  Plan base_plan(algorithm::NormKind norm) const;

  /// "blk.3." + suffix.
  static std::string block(std::uint32_t layer, std::string_view suffix);
  /// The weight and, where the checkpoint has it, the bias of "blk.<layer>.<stem>".
  Linear linear(std::uint32_t layer, std::string_view stem) const;
  /// The same of rows [begin, end) of a fused tensor.
  Linear linear_rows(std::uint32_t layer, std::string_view stem, std::uint64_t begin,
                     std::uint64_t end) const;
  /// The norm "blk.<layer>.<stem>" with the architecture's epsilon; a bias where there is one.
  Norm norm(std::uint32_t layer, std::string_view stem, algorithm::NormKind kind) const;
  Norm named_norm(std::string_view stem, algorithm::NormKind kind) const;
  float epsilon(algorithm::NormKind kind) const;

  /// The norms attn_q_norm and attn_k_norm of a layer's queries and keys.
  QkNorm qk_norm(std::uint32_t layer, algorithm::NormKind kind, QkNorm::Extent extent) const;
  /// Attention with the usual names: attn_q/k/v (or a fused attn_qkv) and attn_output, biases where
  /// present, scale attention.scale or head_dim^-0.5, full range; no norm and no rope yet.
  Gqa gqa(std::uint32_t layer) const;
  /// RoPE from the keys rope.* and the tensors rope_freqs / rope_factors_*: Default, Linear, YaRN,
  /// LongRoPE. Unknown scaling types throw kUnsupported.
  algorithm::RopeSpec rope(algorithm::RopeLayout layout) const;
  /// A feed-forward block with the usual names ffn_gate/up/down; an ungated one where ffn_gate is
  /// absent and ffn_up has F rows, a fused gate_up where ffn_up has 2 F rows.
  DenseMlp mlp(std::uint32_t layer, algorithm::Activation activation) const;
  /// The most common layer: attention and a feed-forward block, each behind a norm of the stream,
  /// "attn_norm" and `ffn_norm`, and each added to it.
  Layer pre_norm(std::uint32_t layer, algorithm::NormKind kind, Mixer attention, Mixer ffn,
                 std::string_view ffn_norm = "ffn_norm") const;
  /// Adds the table position_embd to the plan and refuses contexts beyond it.
  void add_learned_positions(Plan& plan) const;
  /// Adds the draft blocks that the file has (draft_file.hpp: or that came in a second one), each
  /// around `layer(its number)`: the tensors blk.N.nextn.*. What a block lacks is the model's.
  void add_drafts(Plan& plan, const std::function<Layer(std::uint32_t)>& layer) const;

  // Experts (experts.cpp).

  /// Whether a layer's feed-forward block has experts: expert_count is not 0, and the layer stands
  /// behind the leading_dense_block_count dense ones.
  bool routed(std::uint32_t layer) const;
  /// How the routers choose and weigh, from the keys expert_*. `score` and `normalize` are the
  /// family's ways where the keys expert_gating_func and expert_weights_norm are absent.
  algorithm::RoutingSpec routing(algorithm::RouteScore score, bool normalize) const;
  /// Experts with the usual names: ffn_gate_inp, exp_probs_b, ffn_gate/up/down_exps or a fused
  /// ffn_gate_up_exps, and a shared block ffn_*_shexp with its gate ffn_gate_inp_shexp, where
  /// present.
  Moe moe(std::uint32_t layer, const algorithm::ActivationSpec& activation,
          algorithm::RoutingSpec routing) const;
  /// Experts in routed layers, a dense block in the others.
  Mixer ffn(std::uint32_t layer, const algorithm::ActivationSpec& activation,
            const algorithm::RoutingSpec& routing) const;

 private:
  const weights::Checkpoint* checkpoint_;
  std::string architecture_;
  std::uint32_t width_ = 0, layers_ = 0, drafts_ = 0, context_ = 0, trained_context_ = 0;
  std::uint32_t head_dim_ = 0, value_dim_ = 0;
  std::vector<std::uint32_t> heads_, kv_heads_, hidden_;
  mutable std::set<std::string, std::less<>> read_;  ///< keys and tensors asked for

  void read_heads();
  void read_blocks();
  std::vector<std::uint32_t> per_block(const std::string& key) const;
  DenseMlp shared_expert(std::uint32_t layer, const algorithm::ActivationSpec& activation) const;
};

/// `rope` with plain frequencies of base `theta`: what sliding layers use beside scaled global
/// ones.
algorithm::RopeSpec unscaled(algorithm::RopeSpec rope, float theta);

/// Throws kUnsupported when the checkpoint has experts, for families that are planned without.
void refuse_experts(const Reader& reader);
/// Throws kUnsupported naming a key under the architecture's prefix that no one asked for, or a
/// tensor that `plan` does not use: what is ignored may have changed the result. Keys that switch
/// something off (0, false) or are known to describe only pass.
void refuse_ignored(const Reader& reader, const Plan& plan);

// One per architecture.
Plan bailingmoe2(const Reader& reader);
Plan bailingmoe3(const Reader& reader);
Plan bert(const Reader& reader);
Plan bloom(const Reader& reader);
Plan cohere2(const Reader& reader);
Plan command_r(const Reader& reader);
Plan deepseek2(const Reader& reader);
Plan deepseek32(const Reader& reader);
Plan deepseek4(const Reader& reader);
Plan falcon(const Reader& reader);
Plan gemma(const Reader& reader);
Plan gemma2(const Reader& reader);
Plan gemma3(const Reader& reader);
Plan gemma4(const Reader& reader);
Plan glm4(const Reader& reader);
Plan glm4moe(const Reader& reader);
Plan glm5_next(const Reader& reader);
Plan glm_dsa(const Reader& reader);
Plan gpt2(const Reader& reader);
Plan gpt_oss(const Reader& reader);
Plan gptneox(const Reader& reader);
Plan granite(const Reader& reader);
Plan kimi_k3(const Reader& reader);
Plan kimi_linear(const Reader& reader);
Plan llama(const Reader& reader);
Plan minimax_m2(const Reader& reader);
Plan minimax_m3(const Reader& reader);
Plan mistral3(const Reader& reader);
Plan mistral4(const Reader& reader);
Plan mpt(const Reader& reader);
Plan olmo(const Reader& reader);
Plan olmo2(const Reader& reader);
Plan olmoe(const Reader& reader);
Plan phi2(const Reader& reader);
Plan phi3(const Reader& reader);
Plan qwen2(const Reader& reader);
Plan qwen3(const Reader& reader);
Plan qwen35(const Reader& reader);
Plan qwen3next(const Reader& reader);
Plan smollm3(const Reader& reader);
Plan stablelm(const Reader& reader);
Plan starcoder(const Reader& reader);
Plan starcoder2(const Reader& reader);

}  // namespace arch
}  // namespace lemma::model
