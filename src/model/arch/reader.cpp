// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>
#include <utility>
#include <variant>

#include "base/raise.hpp"
#include "model/arch/arch.hpp"

namespace lemma::model::arch {
namespace {

using algorithm::NormKind;
using algorithm::NormSpec;
using base::raise;

// A plan multiplies these with each other; the limit keeps every product far inside 64 bits and
// refuses nonsense before anything is sized by it.
constexpr std::uint32_t kMaxDimension = 1u << 24;
constexpr std::uint32_t kMaxContext = algorithm::kMaxRopePosition;

std::uint32_t dimension(const weights::Metadata& metadata, const std::string& key) {
  const std::uint32_t value = metadata.u32(key);
  if (value == 0 || value > kMaxDimension)
    raise(ErrorKind::kBadFile, "key '{}': expected 1 to {}, found {}", key, kMaxDimension, value);
  return value;
}

void check_range(std::span<const std::uint32_t> values, const std::string& key) {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] == 0 || values[i] > kMaxDimension)
      raise(ErrorKind::kBadFile, "key '{}': expected 1 to {}, found {} in layer {}", key,
            kMaxDimension, values[i], i);
}

// The N of a tensor "blk.N.", or nothing.
std::optional<std::uint32_t> block_of(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return {};
  std::uint32_t block = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, block);
  if (error != std::errc{} || stop == end || *stop != '.') return {};
  return block;
}

}  // namespace

Reader::Reader(const weights::Checkpoint& checkpoint, const PlanOptions& options)
    : checkpoint_(&checkpoint),
      architecture_(checkpoint.metadata().string("general.architecture")) {
  read_blocks();
  width_ = dimension(metadata(), key("embedding_length"));
  trained_context_ = metadata().u32(key("context_length"));
  if (trained_context_ == 0 || trained_context_ > kMaxContext)
    raise(ErrorKind::kBadFile, "key '{}': expected 1 to {}, found {}", key("context_length"),
          kMaxContext, trained_context_);
  if (options.context > kMaxContext)
    raise(ErrorKind::kUsage, "context: expected at most {} positions, found {}", kMaxContext,
          options.context);
  context_ = options.context ? options.context : trained_context_;
  // Models without a dense block need not say how wide one would be.
  if (const std::string hidden_key = key("feed_forward_length"); metadata().has(hidden_key)) {
    hidden_ = per_block(hidden_key);
    check_range(hidden_, hidden_key);
  }
  read_heads();
}

// The tensors' names say how many blocks there really are. Asked first, so that nothing is ever
// sized by a count that the file does not back. Blocks that predict further tokens may be missing.
void Reader::read_blocks() {
  const std::uint32_t count = metadata().u32(key("block_count"));
  const std::uint32_t drafts = metadata().u32_or(key("nextn_predict_layers"), 0);
  if (count == 0 || drafts >= count)
    raise(ErrorKind::kBadFile,
          "keys '{}' and '{}': expected more blocks than drafts, found {} and {}",
          key("block_count"), key("nextn_predict_layers"), count, drafts);
  layers_ = count - drafts;
  std::uint64_t blocks = 0;
  for (const weights::TensorInfo& tensor : checkpoint_->tensors())
    if (const auto block = block_of(tensor.name)) {
      blocks = std::max(blocks, std::uint64_t{*block} + 1);
      if (*block >= layers_) leave_out(tensor.name);
    }
  if (blocks < layers_ || blocks > count || blocks > checkpoint_->tensors().size())
    raise(ErrorKind::kBadFile,
          "key '{}': expected {}, the number of blocks that tensors name, found {}",
          key("block_count"), blocks, count);
  drafts_ = static_cast<std::uint32_t>(blocks - layers_);
}

// One number for each layer and draft block; files may list none for the latter, which then are
// like the last layer.
std::vector<std::uint32_t> Reader::per_block(const std::string& key) const {
  std::vector<std::uint32_t> values = metadata().u32_per_layer(key, layers_);
  const weights::Value* const list = metadata().find(key);
  if (list && std::holds_alternative<weights::Value::Ints>(list->data))
    if (std::get<weights::Value::Ints>(list->data).size() >= std::size_t{layers_} + drafts_)
      return metadata().u32_per_layer(key, std::size_t{layers_} + drafts_);
  values.resize(std::size_t{layers_} + drafts_, values.back());
  return values;
}

void Reader::read_heads() {
  const std::string heads_key = key("attention.head_count");
  const std::string kv_key = key("attention.head_count_kv");
  heads_ = per_block(heads_key);
  check_range(heads_, heads_key);
  kv_heads_ = metadata().has(kv_key) ? per_block(kv_key) : heads_;
  for (std::uint32_t layer = 0; layer < heads_.size(); ++layer)
    if (kv_heads_[layer] != 0 && heads_[layer] % kv_heads_[layer] != 0)
      raise(ErrorKind::kBadFile,
            "key '{}': expected a divisor of the {} heads, found {} in layer {}", kv_key,
            heads_[layer], kv_heads_[layer], layer);

  const std::string length_key = key("attention.key_length");
  if (metadata().has(length_key)) {
    head_dim_ = dimension(metadata(), length_key);
  } else if (width_ % heads_[0] == 0) {
    head_dim_ = width_ / heads_[0];
  } else {
    raise(ErrorKind::kBadFile,
          "key '{}': {} is not a multiple of the {} heads, and there is no '{}'",
          key("embedding_length"), width_, heads_[0], length_key);
  }
  const std::string value_key = key("attention.value_length");
  value_dim_ = metadata().has(value_key) ? dimension(metadata(), value_key) : head_dim_;

  const std::string rotary_key = key("rope.dimension_count");
  if (const std::uint32_t rotary = metadata().u32_or(rotary_key, head_dim_);
      rotary == 0 || rotary % 2 != 0 || rotary > head_dim_)
    raise(ErrorKind::kBadFile,
          "key '{}': expected an even number from 2 to the head size {}, found {}", rotary_key,
          head_dim_, rotary);
}

std::string Reader::key(std::string_view suffix) const {
  std::string key = architecture_ + "." + std::string(suffix);
  read_.insert(key);
  return key;
}

std::vector<float> Reader::values(const std::string& tensor, std::uint64_t count) const {
  read_.insert(tensor);
  return weights::to_f32(weights::bind(*checkpoint_, {tensor, {}}, 1, count));
}

std::uint32_t Reader::original_context() const {
  const std::uint32_t context =
      metadata().u32_or(key("rope.scaling.original_context_length"), trained_context_);
  return context ? context : trained_context_;
}

float Reader::scale(std::string_view suffix, float fallback) const {
  const float value = metadata().f32_or(key(suffix), 0.f);
  if (value < 0.f)
    raise(ErrorKind::kBadFile, "key '{}': expected a positive number, found {}", key(suffix),
          value);
  return value == 0.f ? fallback : value;
}

std::uint32_t Reader::window() const {
  return metadata().u32_or(key("attention.sliding_window"), 0);
}

std::vector<bool> Reader::sliding_layers(std::uint32_t period) const {
  const std::string pattern_key = key("attention.sliding_window_pattern");
  if (const weights::Value* value = metadata().find(pattern_key)) {
    if (std::holds_alternative<weights::Value::Bools>(value->data))
      return metadata().boolean_per_layer(pattern_key, layers_);
    if (std::holds_alternative<weights::Value::Ints>(value->data)) {
      const auto flags = metadata().u32_per_layer(pattern_key, layers_);
      return {flags.begin(), flags.end()};
    }
    period = metadata().u32(pattern_key);
  }
  std::vector<bool> sliding(layers_, true);  // a period of 0 leaves it so
  for (std::uint32_t layer = 0; layer < layers_ && period; ++layer)
    sliding[layer] = layer % period != period - 1;
  return sliding;
}

std::string Reader::block(std::uint32_t layer, std::string_view suffix) {
  return "blk." + std::to_string(layer) + "." + std::string(suffix);
}

float Reader::epsilon(NormKind kind) const {
  return metadata().f32(key(kind == NormKind::kRms ? "attention.layer_norm_rms_epsilon"
                                                   : "attention.layer_norm_epsilon"));
}

Norm Reader::named_norm(std::string_view stem, NormKind kind) const {
  Norm norm;
  norm.spec = NormSpec{kind, epsilon(kind)};
  norm.weight.tensor = std::string(stem) + ".weight";
  if (const std::string bias = std::string(stem) + ".bias"; has_tensor(bias))
    norm.bias.tensor = bias;
  return norm;
}

Norm Reader::norm(std::uint32_t layer, std::string_view stem, NormKind kind) const {
  return named_norm(block(layer, stem), kind);
}

Linear Reader::linear(std::uint32_t layer, std::string_view stem) const {
  Linear linear;
  linear.weight.tensor = block(layer, stem) + ".weight";
  if (const std::string bias = block(layer, stem) + ".bias"; has_tensor(bias))
    linear.bias.tensor = bias;
  return linear;
}

Linear Reader::linear_rows(std::uint32_t layer, std::string_view stem, std::uint64_t begin,
                           std::uint64_t end) const {
  Linear part = linear(layer, stem);
  part.weight.view = View::rows(begin, end);
  if (part.bias) part.bias.view = View::elements(begin, end);
  return part;
}

Plan Reader::base_plan(NormKind kind) const {
  Plan plan;
  plan.architecture = architecture_;
  plan.name = metadata().string_or("general.name", "");
  plan.width = width_;
  plan.context = trained_context_;
  const weights::TensorInfo& table = checkpoint_->at("token_embd.weight");
  if (table.rows() == 0 || table.rows() > kMaxDimension)
    raise(ErrorKind::kBadFile, "tensor 'token_embd.weight' has {} rows; expected 1 to {}",
          table.rows(), kMaxDimension);
  plan.vocabulary = static_cast<std::uint32_t>(table.rows());
  plan.embedding.table.tensor = table.name;
  plan.final_norm = named_norm("output_norm", kind);
  plan.head.output.weight.tensor = has_tensor("output.weight") ? "output.weight" : table.name;
  if (has_tensor("output.bias")) plan.head.output.bias.tensor = "output.bias";
  return plan;
}

QkNorm Reader::qk_norm(std::uint32_t layer, NormKind kind, QkNorm::Extent extent) const {
  return {.query = norm(layer, "attn_q_norm", kind),
          .key = norm(layer, "attn_k_norm", kind),
          .extent = extent};
}

Gqa Reader::gqa(std::uint32_t layer) const {
  if (kv_heads(layer) == 0)
    raise(ErrorKind::kBadFile, "key '{}': expected a divisor of the {} heads, found 0 in layer {}",
          key("attention.head_count_kv"), heads(layer), layer);
  Gqa gqa;
  gqa.spec.query_heads = heads(layer);
  gqa.spec.kv_heads = kv_heads(layer);
  gqa.spec.head_dim = head_dim_;
  gqa.spec.value_dim = value_dim_;
  gqa.spec.scale = scale("attention.scale", 1.f / std::sqrt(static_cast<float>(head_dim_)));
  if (has_tensor(block(layer, "attn_qkv.weight"))) {
    const std::uint64_t query = std::uint64_t{heads(layer)} * head_dim_;
    const std::uint64_t key_end = query + std::uint64_t{kv_heads(layer)} * head_dim_;
    const std::uint64_t value_end = key_end + std::uint64_t{kv_heads(layer)} * value_dim_;
    gqa.query = linear_rows(layer, "attn_qkv", 0, query);
    gqa.key = linear_rows(layer, "attn_qkv", query, key_end);
    gqa.value = linear_rows(layer, "attn_qkv", key_end, value_end);
  } else {
    gqa.query = linear(layer, "attn_q");
    gqa.key = linear(layer, "attn_k");
    gqa.value = linear(layer, "attn_v");
  }
  gqa.output = linear(layer, "attn_output");
  gqa.clamp = metadata().f32_or(key("attention.clamp_kqv"), 0.f);
  return gqa;
}

DenseMlp Reader::mlp(std::uint32_t layer, algorithm::Activation activation) const {
  if (hidden_.empty()) dimension(metadata(), key("feed_forward_length"));  // says that it is absent
  DenseMlp mlp;
  mlp.spec.activation.kind = activation;
  mlp.spec.width = width_;
  mlp.spec.hidden = hidden(layer);
  mlp.down = linear(layer, "ffn_down");
  if (has_tensor(block(layer, "ffn_gate.weight"))) {
    mlp.gate = linear(layer, "ffn_gate");
    mlp.up = linear(layer, "ffn_up");
  } else if (checkpoint_->at(block(layer, "ffn_up.weight")).rows() == 2ull * hidden(layer)) {
    mlp.gate = linear_rows(layer, "ffn_up", 0, hidden(layer));
    mlp.up = linear_rows(layer, "ffn_up", hidden(layer), 2ull * hidden(layer));
  } else {
    mlp.up = linear(layer, "ffn_up");
    mlp.spec.gated = false;
  }
  return mlp;
}

Layer Reader::pre_norm(std::uint32_t layer, NormKind kind, Mixer attention, Mixer ffn,
                       std::string_view ffn_norm) const {
  Layer out;
  out.sites.push_back({.norm = norm(layer, "attn_norm", kind), .mixer = std::move(attention)});
  out.sites.push_back({.norm = norm(layer, ffn_norm, kind), .mixer = std::move(ffn)});
  return out;
}

void Reader::add_learned_positions(Plan& plan) const {
  const weights::TensorInfo& positions = checkpoint_->at("position_embd.weight");
  if (positions.rows() != trained_context_)
    raise(ErrorKind::kBadFile, "tensor '{}' has {} rows; expected '{}', which is {}",
          positions.name, positions.rows(), key("context_length"), trained_context_);
  if (context_ > trained_context_)
    raise(ErrorKind::kUnsupported,
          "a context of {} is asked for, but the model has learned positions for {}", context_,
          trained_context_);
  plan.embedding.positions.tensor = positions.name;
  plan.embedding.position_rows = trained_context_;
}

}  // namespace lemma::model::arch
