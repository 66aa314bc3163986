// SPDX-License-Identifier: Apache-2.0
#include "weights/safetensors/translation.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/raise.hpp"
#include "weights/safetensors/packed.hpp"

namespace lemma::weights::safetensors {
namespace {

using base::raise;
using Names = std::span<const std::string_view>;

constexpr std::uint32_t kMaxDimension = 1u << 24;

// What different families call the same key.
constexpr auto kWidth = std::to_array<std::string_view>({"hidden_size", "n_embd", "d_model"});
constexpr auto kLayers =
    std::to_array<std::string_view>({"num_hidden_layers", "n_layer", "n_layers", "num_layers"});
constexpr auto kHeads =
    std::to_array<std::string_view>({"num_attention_heads", "n_head", "n_heads"});
constexpr auto kKvHeads = std::to_array<std::string_view>({"num_key_value_heads", "num_kv_heads"});
constexpr auto kHidden =
    std::to_array<std::string_view>({"intermediate_size", "n_inner", "ffn_hidden_size"});
constexpr auto kContext = std::to_array<std::string_view>(
    {"max_position_embeddings", "n_positions", "max_seq_len", "model_max_length"});
constexpr auto kHeadDim = std::to_array<std::string_view>({"head_dim"});
constexpr auto kLayerNormEps =
    std::to_array<std::string_view>({"layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"});

// Keys that change no result: they describe, or matter in training or for the text around it only.
constexpr auto kDescriptive = std::to_array<std::string_view>({
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "attention_probs_dropout_prob",
    "attn_pdrop",
    "auto_map",
    "bos_token_id",
    "classifier_dropout",
    "dtype",
    "embd_pdrop",
    "eos_token_id",
    "ep_size",
    "hidden_dropout",
    "hidden_dropout_prob",
    "id2label",
    "initializer_range",
    "is_decoder",
    "label2id",
    "model_type",
    "output_router_logits",
    "pad_token_id",
    "pretraining_tp",
    "problem_type",
    "quantization_config",
    "resid_pdrop",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "sep_token_id",
    "task_specific_params",
    "torch_dtype",
    "transformers_version",
    "unsloth_version",
    "use_cache",
    "vocab_size",
});

// Towers for images and sound, which text does not pass.
constexpr auto kOtherTowers = std::to_array<std::string_view>(
    {"vision_tower.", "vision_model.", "visual.", "model.visual.", "model.vision_tower.",
     "multi_modal_projector.", "model.multi_modal_projector.", "audio_tower.", "model.audio_tower.",
     "embed_vision.", "model.embed_vision.", "mm_projector.", "patch_merge_mlp."});

// Angles and masks that old files carry beside what they follow from.
constexpr auto kBuffers = std::to_array<std::string_view>(
    {".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", "embeddings.position_ids",
     ".attention.bias", ".attention.masked_bias"});

std::string_view first_of(const Config& config, Names names) {
  for (const std::string_view name : names)
    if (config.has(name)) return name;
  return names.front();
}

float one_more(float w) {
  return w + 1.f;
}
float decay(float w) {
  return -std::exp(w);
}

}  // namespace

std::string numbered(std::string_view pattern, std::uint32_t layer) {
  std::string out(pattern);
  if (const auto at = out.find('#'); at != std::string::npos)
    out.replace(at, 1, std::to_string(layer));
  return out;
}

Translation::Translation(const Family& family, const Config& config, Config whole,
                         const Folder& folder)
    : family_(family),
      config_(config.completed(family.defaults)),
      whole_(std::move(whole)),
      folder_(folder) {
  canonical_names();
}

// Names without the family's prefix; a wrapper for images puts its own in front of it.
void Translation::canonical_names() {
  for (const auto& [name, stored] : folder_.tensors()) {
    const auto starts = [&name = name](std::string_view prefix) {
      return name.starts_with(prefix);
    };
    if (std::ranges::any_of(kOtherTowers, starts)) continue;
    std::string_view rest = name;
    std::string rewritten;
    if (rest.starts_with("model.language_model.")) {
      rest.remove_prefix(21);
    } else {
      if (rest.starts_with("language_model.")) rest.remove_prefix(15);
      if (rest.starts_with(family_.prefix)) rest.remove_prefix(family_.prefix.size());
    }
    if (!names_.emplace(rest, &stored).second)
      raise(ErrorKind::kBadFile, "tensors '{}' and '{}' are the same one of the model", name,
            names_.find(rest)->second->name);
  }
}

void Translation::run() {
  metadata.add("general.architecture", Value{std::string(family_.architecture), "string"});
  count_layers();
  read_dimensions();
  read_quantization();
  if (family_.more_keys) family_.more_keys(*this);
  common_keys();
  for (const TensorRule& rule : family_.tensors) move(rule);
  if (family_.more_tensors) family_.more_tensors(*this);
  head_and_table();
  for (const std::string_view key : kDescriptive) config_.ignore(key);
  config_.refuse_unread(family_.model_type);
  refuse_unused();
}

// Each layer has tensors, so that nothing is done more often than the files back.
void Translation::count_layers() {
  const std::string_view key = first_of(config_, kLayers);
  layers_ = config_.u32(key);
  if (layers_ == 0 || layers_ > names_.size())
    raise(ErrorKind::kBadFile,
          "config.json: key '{}': expected 1 to {}, the number of tensors, "
          "found {}",
          key, names_.size(), layers_);
  rename_drafts();
  count_drafts();
}

std::uint32_t Translation::dimension(Names names) const {
  const std::string_view key = first_of(config_, names);
  const std::uint32_t value = config_.u32(key);
  if (value == 0 || value > kMaxDimension)
    raise(ErrorKind::kBadFile, "config.json: key '{}': expected 1 to {}, found {}", key,
          kMaxDimension, value);
  return value;
}

void Translation::read_dimensions() {
  width_ = dimension(kWidth);
  heads_ = dimension(kHeads);
  kv_heads_ = config_.has(first_of(config_, kKvHeads)) ? dimension(kKvHeads) : heads_;
  head_dim_ = width_ / heads_;
  config_.ignore("head_dim");
  if (!family_.latent && config_.has("head_dim")) head_dim_ = dimension(kHeadDim);
  if (head_dim_ == 0 || heads_ % kv_heads_ != 0)
    raise(ErrorKind::kBadFile,
          "config.json: expected heads that KV heads divide and that fit the width, found {} and "
          "{} of width {}",
          heads_, kv_heads_, width_);
}

void Translation::common_keys() {
  const auto otherwise = [&](std::string_view suffix, auto value) {
    if (!is_set(suffix)) set(suffix, value);
  };
  otherwise("embedding_length", width_);
  otherwise("block_count", blocks_);
  if (blocks_ > layers_) otherwise("nextn_predict_layers", blocks_ - layers_);
  if (!is_set("context_length")) set("context_length", dimension(kContext));
  otherwise("attention.head_count", heads_);
  otherwise("attention.head_count_kv", kv_heads_);
  if (config_.has(first_of(config_, kHidden))) otherwise("feed_forward_length", dimension(kHidden));
  for (const std::string_view name : kHidden) config_.ignore(name);
  if (!family_.latent && config_.has("head_dim")) {
    otherwise("attention.key_length", head_dim_);
    otherwise("attention.value_length", head_dim_);
  }
  if (config_.has("rms_norm_eps"))
    otherwise("attention.layer_norm_rms_epsilon", config_.f32("rms_norm_eps"));
  if (const auto key = first_of(config_, kLayerNormEps); config_.has(key))
    otherwise("attention.layer_norm_epsilon", config_.f32(key));
  for (const KeyRule& rule : family_.keys) {
    if (!config_.has(rule.hf)) continue;
    if (rule.type == kWhole) otherwise(rule.gguf, config_.u32(rule.hf));
    if (rule.type == kReal) otherwise(rule.gguf, config_.f32(rule.hf));
    if (rule.type == kFlag) otherwise(rule.gguf, config_.boolean(rule.hf));
  }
}

void Translation::add(std::string_view suffix, Value value) {
  metadata.add(fmt::format("{}.{}", family_.architecture, suffix), std::move(value));
}
void Translation::set(std::string_view suffix, std::uint32_t value) {
  add(suffix, {std::int64_t{value}, "u32"});
}
void Translation::set(std::string_view suffix, float value) {
  add(suffix, {double{value}, "f32"});
}
void Translation::set(std::string_view suffix, bool value) {
  add(suffix, {value, "bool"});
}
void Translation::set(std::string_view suffix, std::string_view value) {
  add(suffix, {std::string(value), "string"});
}
void Translation::set(std::string_view suffix, const std::vector<bool>& values) {
  add(suffix, {values, "array of bool"});
}
void Translation::set(std::string_view suffix, const std::vector<std::uint32_t>& values) {
  add(suffix, {Value::Ints(values.begin(), values.end()), "array of u32"});
}
void Translation::set(std::string_view suffix, const std::vector<float>& values) {
  add(suffix, {Value::Floats(values.begin(), values.end()), "array of f32"});
}
bool Translation::is_set(std::string_view suffix) const {
  return metadata.has(fmt::format("{}.{}", family_.architecture, suffix));
}

void Translation::require(std::string_view key, std::string_view value,
                          std::string_view also) const {
  const std::string found = config_.string_or(key, value);
  if (found == value || (!also.empty() && found == also)) return;
  raise(ErrorKind::kUnsupported, "config.json: key '{}': expected '{}' in a '{}' model, found '{}'",
        key, value, family_.model_type, found);
}

void Translation::require_flag(std::string_view key, bool value) const {
  if (config_.boolean_or(key, value) == value) return;
  raise(ErrorKind::kUnsupported, "config.json: key '{}': expected {} in a '{}' model, found {}",
        key, value, family_.model_type, !value);
}

void Translation::require_number(std::string_view key, float value) const {
  const float found = config_.f32_or(key, value);
  if (found == value) return;
  raise(ErrorKind::kUnsupported, "config.json: key '{}': expected {} in a '{}' model, found {}",
        key, value, family_.model_type, found);
}

std::vector<bool> Translation::layers_called(std::string_view name, std::string_view key) const {
  if (!config_.has(key)) return {};
  const std::vector<std::string> types = config_.strings(key);
  if (types.size() != layers_)
    raise(ErrorKind::kBadFile,
          "config.json: key '{}': expected {} entries, one for each layer, "
          "found {}",
          key, layers_, types.size());
  std::vector<bool> called(types.size());
  for (std::size_t i = 0; i < types.size(); ++i) called[i] = types[i] == name;
  return called;
}

bool Translation::has(std::string_view name) const {
  return names_.contains(name) || has_packed(name);
}

Source Translation::take(const std::string& name) {
  const auto found = names_.find(name);
  if (found == names_.end()) {
    if (has_packed(name)) return take_packed(name);
    raise(ErrorKind::kBadFile, "missing tensor '{}{}'", family_.prefix, name);
  }
  used_.insert(name);
  if (found->second->dtype.starts_with("F8_")) return take_fp8(name, *found->second);
  return stored(*found->second);
}

Source Translation::stored(const Stored& tensor) const {
  Source source{.name = tensor.name, .shape = tensor.shape, .bytes = tensor.bytes};
  if (source.shape.empty()) source.shape = {1};
  if (tensor.dtype == "F32") return source;
  if (tensor.dtype == "F8_E8M0") return decode_exponents(tensor);
  source.format = Format::kF16;
  if (tensor.dtype == "F16") return source;
  source.format = Format::kBF16;
  if (tensor.dtype == "BF16") return source;
  raise(ErrorKind::kUnsupported, "tensor '{}': expected F32, F16 or BF16, found {}", tensor.name,
        tensor.dtype);
}

void Translation::put(std::string gguf, Source source) {
  if (!made_.insert(gguf).second)
    raise(ErrorKind::kBadFile, "tensor '{}': another tensor takes the same place, '{}'",
          source.name, gguf);
  tensors.push_back(tensor_info(std::move(gguf), std::move(source)));
}

Source Translation::interleave(Source source, std::uint32_t heads, std::uint32_t rotary) const {
  const std::uint64_t rows = source.shape[0];
  if (heads == 0 || rows % heads != 0 || rotary % 2 != 0 || rotary > rows / heads)
    raise(ErrorKind::kBadFile,
          "tensor '{}': expected rows of {} heads that turn {} dims each, found {} rows",
          source.name, heads, rotary, rows);
  const std::vector<std::uint64_t> shape = source.shape;
  if (shape.size() == 1) source.shape.push_back(1);  // a bias
  const std::uint64_t head = rows / heads;
  Source out = gather_rows(std::move(source), rows, [head, rotary](std::uint64_t row) {
    const std::uint64_t i = row % head;
    if (i >= rotary) return row;
    return row - i + i % 2 * (rotary / 2) + i / 2;
  });
  out.shape = shape;
  return out;
}

Source Translation::changed(Source source, Change change, bool bias) const {
  switch (change) {
    case Change::kNone:
      return source;
    case Change::kQueryRows:
      return interleave(std::move(source), heads_, rotary_dim_);
    case Change::kKeyRows:
      return interleave(std::move(source), kv_heads_, rotary_dim_);
    case Change::kTranspose:
      return bias ? source : transpose(std::move(source));
    case Change::kAddOne:
      return bias ? source : map(std::move(source), one_more);
    case Change::kNegExp:
      return map(squeeze(std::move(source)), decay);
    case Change::kSqueeze:
      return squeeze(std::move(source));
  }
  raise(ErrorKind::kInternal, "tensor '{}': a change of unknown kind", source.name);
}

void Translation::move_one(const std::string& hf, const std::string& gguf, Change change,
                           bool bias) {
  if (has(hf)) put(gguf, changed(take(hf), change, bias));
}

void Translation::move(const TensorRule& rule) {
  const bool once = rule.hf.find('#') == std::string_view::npos;
  for (std::uint32_t layer = 0; layer < (once ? 1 : blocks_); ++layer) {
    const std::string hf = numbered(rule.hf, layer), gguf = numbered(rule.gguf, layer);
    if (rule.exact) {
      move_one(hf, gguf, rule.change, false);
      continue;
    }
    move_one(hf + ".weight", gguf + ".weight", rule.change, false);
    move_one(hf + ".bias", gguf + ".bias", rule.change, true);
  }
}

void Translation::stack_experts(std::string_view path, std::string_view stem, std::string_view gguf,
                                std::uint32_t experts) {
  for (std::uint32_t layer = 0; layer < blocks_; ++layer) {
    const std::string folder = numbered(path, layer);
    const auto of = [&](std::uint32_t e) {
      return fmt::format("{}.{}.{}.weight", folder, e, stem);
    };
    if (!has(of(0))) continue;
    if (experts == 0)
      raise(ErrorKind::kBadFile, "config.json: expected experts, found 0, but a tensor '{}'",
            of(0));
    std::vector<Source> each;
    for (std::uint32_t e = 0; e < experts; ++e) each.push_back(take(of(e)));  // ends if one lacks
    const std::string name = numbered(gguf, layer) + ".weight";
    put(name, stack(std::move(each), name));
  }
}

void Translation::head_and_table() {
  const bool has_head = has("lm_head.weight");
  const bool tied = config_.boolean_or("tie_word_embeddings", !has_head);
  if (tied) {
    for (const char* name : {"lm_head.weight", "embed_out.weight"})
      if (has(name)) drop(name);
  } else {
    move({"lm_head", "output"});
  }
  const auto table = std::ranges::find(tensors, "token_embd.weight", &TensorInfo::name);
  if (table == tensors.end()) return;
  const std::uint32_t vocabulary = config_.u32_or("vocab_size", 0);
  if (vocabulary != 0 && table->rows() != vocabulary)
    raise(ErrorKind::kBadFile,
          "config.json: key 'vocab_size' is {}, but the embedding table has {} rows", vocabulary,
          table->rows());
}

void Translation::refuse_unused() const {
  for (const auto& [name, stored] : names_) {
    const auto ends = [&name = name](std::string_view suffix) { return name.ends_with(suffix); };
    if (used_.contains(name) || std::ranges::any_of(kBuffers, ends) || of_a_draft(name)) continue;
    raise(
        ErrorKind::kUnsupported,
        "tensor '{}' has no place in a '{}' model; it may change the result, so it is not ignored",
        stored->name, family_.model_type);
  }
}

}  // namespace lemma::weights::safetensors
