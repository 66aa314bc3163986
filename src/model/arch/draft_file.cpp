// SPDX-License-Identifier: Apache-2.0
#include "model/arch/draft_file.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/raise.hpp"
#include "weights/joined_checkpoint.hpp"

namespace lemma::model {
namespace {

using base::raise;
using weights::Checkpoint;
using weights::Metadata;
using weights::TensorInfo;
using weights::Value;

/// The support file of DeepSeek V4 names its architecture so.
constexpr std::string_view kSupportOf4 = "deepseek4_mtp_support";
constexpr std::string_view kSupportPrefix = "mtp.0.";

// The block's own tensors there, and what other files call them.
constexpr auto kSupportNames = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"e_proj.weight", "nextn.e_proj.weight"},
    {"h_proj.weight", "nextn.h_proj.weight"},
    {"enorm.weight", "nextn.enorm.weight"},
    {"hnorm.weight", "nextn.hnorm.weight"},
    {"norm.weight", "nextn.shared_head_norm.weight"},
    {"hc_head_fn.weight", "nextn.hc_head_fn.weight"},
    {"hc_head_base.weight", "nextn.hc_head_base.weight"},
    {"hc_head_scale.weight", "nextn.hc_head_scale.weight"},
});

// What a draft file may say otherwise than its model: where the blocks stand, and what only text
// about the file or other towers depends on.
constexpr auto kMayDiffer = std::to_array<std::string_view>(
    {"block_count", "nextn_predict_layers", "context_length", "leading_dense_block_count"});

struct Counts {
  std::uint32_t layers = 0, drafts = 0;
};

Counts counts_of(const Metadata& metadata, const std::string& architecture) {
  Counts counts;
  const std::uint32_t blocks = metadata.u32(architecture + ".block_count");
  counts.drafts = metadata.u32_or(architecture + ".nextn_predict_layers", 0);
  if (counts.drafts >= blocks)
    raise(ErrorKind::kBadFile, "{} blocks, of which {} draft: nothing is left of the model", blocks,
          counts.drafts);
  counts.layers = blocks - counts.drafts;
  return counts;
}

std::optional<std::uint64_t> scalar(const Value& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value.data))
    return static_cast<std::uint64_t>(*integer);
  if (const auto* flag = std::get_if<bool>(&value.data)) return *flag;
  return {};
}

void check_keys(const Metadata& model, const Metadata& draft, const std::string& architecture) {
  for (const auto& [key, value] : draft.pairs()) {
    if (!key.starts_with(architecture + ".")) continue;
    const std::string_view word = std::string_view(key).substr(architecture.size() + 1);
    const Value* own = model.find(key);
    if (!own || std::find(kMayDiffer.begin(), kMayDiffer.end(), word) != kMayDiffer.end()) continue;
    const auto theirs = scalar(value), ours = scalar(*own);
    if (theirs && ours && *theirs != *ours)
      raise(ErrorKind::kUnsupported,
            "the draft file is for another model: key '{}' is {} there and {} in the model", key,
            *theirs, *ours);
  }
}

// Whole token lists: a draft block would give the logits of other words.
void check_vocabulary(const Checkpoint& model, const Checkpoint& draft) {
  constexpr std::string_view kTokens = "tokenizer.ggml.tokens", kTable = "token_embd.weight";
  if (model.metadata().has(kTokens) && draft.metadata().has(kTokens)) {
    const auto &ours = model.metadata().strings(kTokens),
               &theirs = draft.metadata().strings(kTokens);
    if (ours != theirs)
      raise(ErrorKind::kUnsupported,
            "the draft file has another vocabulary, of {} tokens; the model has {}", theirs.size(),
            ours.size());
  }
  const TensorInfo *ours = model.find(kTable), *theirs = draft.find(kTable);
  if (ours && theirs && ours->shape != theirs->shape)
    raise(ErrorKind::kUnsupported,
          "the draft file has another vocabulary or width: its embedding has {} rows of {}, the "
          "model's {} of {}",
          theirs->rows(), theirs->row_elements(), ours->rows(), ours->row_elements());
}

// The N and the rest of "blk.N.rest".
std::optional<std::pair<std::uint32_t, std::string_view>> block_of(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return {};
  std::uint32_t block = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, block);
  if (error != std::errc{} || stop == end || *stop != '.') return {};
  return std::pair{block, std::string_view(stop + 1, end)};
}

std::string block_name(std::uint32_t block, std::string_view rest) {
  return "blk." + std::to_string(block) + "." + std::string(rest);
}

// The name of a draft file's tensor behind the `layers` layers of the model.
std::optional<std::string> joined_name(std::string_view name, std::uint32_t layers,
                                       std::uint32_t their_layers) {
  if (name.starts_with(kSupportPrefix)) {
    const std::string_view rest = name.substr(kSupportPrefix.size());
    for (const auto& [from, to] : kSupportNames)
      if (rest == from) return block_name(layers, to);
    return block_name(layers, rest);
  }
  const auto block = block_of(name);
  if (!block || block->first < their_layers) return {};
  return block_name(layers + (block->first - their_layers), block->second);
}

Metadata with_drafts(const Metadata& model, const std::string& architecture, Counts counts) {
  const std::string blocks_key = architecture + ".block_count";
  const std::string drafts_key = architecture + ".nextn_predict_layers";
  Metadata joined;
  for (const auto& [key, value] : model.pairs())
    if (key != blocks_key && key != drafts_key) joined.add(key, value);
  joined.add(blocks_key, {std::int64_t{counts.layers} + counts.drafts, "u32"});
  joined.add(drafts_key, {std::int64_t{counts.drafts}, "u32"});
  return joined;
}

// Of a file that says little about itself the norm of the token tells how wide its model is.
void check_width(const Checkpoint& joined, std::uint32_t width, std::uint32_t block) {
  const TensorInfo* norm = joined.find(block_name(block, "nextn.enorm.weight"));
  if (!norm)
    raise(ErrorKind::kUnsupported,
          "the draft file has no draft block: there is no tensor '{}', nor one of 'mtp.0.*'",
          block_name(block, "nextn.enorm.weight"));
  if (norm->elements() != width)
    raise(ErrorKind::kUnsupported,
          "the draft file is for another model: its width is {}, the model's {}", norm->elements(),
          width);
}

}  // namespace

std::unique_ptr<const Checkpoint> join_draft(std::unique_ptr<const Checkpoint> model,
                                             std::unique_ptr<const Checkpoint> draft) {
  const std::string architecture = model->metadata().string("general.architecture");
  const std::string theirs = draft->metadata().string("general.architecture");
  const bool support = theirs == kSupportOf4 && architecture == "deepseek4";
  if (theirs != architecture && !support)
    raise(ErrorKind::kUnsupported,
          "the draft file is for another model: its architecture is '{}', the model's '{}'", theirs,
          architecture);
  Counts counts = counts_of(model->metadata(), architecture);
  for (const TensorInfo& tensor : model->tensors())
    if (const auto block = block_of(tensor.name); block && block->first >= counts.layers)
      raise(ErrorKind::kUnsupported,
            "the model has a draft block of its own ('{}'): it takes none from a second file",
            tensor.name);
  check_keys(model->metadata(), draft->metadata(), architecture);
  check_vocabulary(*model, *draft);

  const Counts own = support ? Counts{0, 1} : counts_of(draft->metadata(), architecture);
  counts.drafts = own.drafts;
  const std::uint32_t width = model->metadata().u32(architecture + ".embedding_length");
  Metadata metadata = with_drafts(model->metadata(), architecture, counts);
  const auto naming = [&](const TensorInfo& tensor) {
    return joined_name(tensor.name, counts.layers, support ? ~0u : own.layers);
  };
  auto joined = std::make_unique<weights::JoinedCheckpoint>(std::move(model), std::move(draft),
                                                            std::move(metadata), naming);
  check_width(*joined, width, counts.layers);
  return joined;
}

}  // namespace lemma::model
