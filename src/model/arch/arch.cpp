// SPDX-License-Identifier: Apache-2.0
#include "model/arch/arch.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include <fmt/ranges.h>

#include "base/raise.hpp"
#include "model/plan_cost.hpp"

namespace lemma::model {
namespace {

using Planner = Plan (*)(const arch::Reader&);

// general.architecture -> the family's planner. Sorted by name.
constexpr auto kArchitectures = std::to_array<std::pair<std::string_view, Planner>>({
    {"bailingmoe2", arch::bailingmoe2},
    {"bailingmoe3", arch::bailingmoe3},
    {"bert", arch::bert},
    {"bloom", arch::bloom},
    {"cohere2", arch::cohere2},
    {"command-r", arch::command_r},
    {"deepseek2", arch::deepseek2},
    {"deepseek32", arch::deepseek32},
    {"deepseek4", arch::deepseek4},
    {"falcon", arch::falcon},
    {"gemma", arch::gemma},
    {"gemma2", arch::gemma2},
    {"gemma3", arch::gemma3},
    {"gemma4", arch::gemma4},
    {"glm-dsa", arch::glm_dsa},
    {"glm4", arch::glm4},
    {"glm4moe", arch::glm4moe},
    {"glm5-next", arch::glm5_next},
    {"gpt-oss", arch::gpt_oss},
    {"gpt2", arch::gpt2},
    {"gptneox", arch::gptneox},
    {"granite", arch::granite},
    {"granitemoe", arch::granite},
    {"kimi-k3", arch::kimi_k3},
    {"kimi-linear", arch::kimi_linear},
    {"llama", arch::llama},
    {"minimax-m2", arch::minimax_m2},
    {"minimax-m3", arch::minimax_m3},
    {"mistral3", arch::mistral3},
    {"mistral4", arch::mistral4},
    {"mpt", arch::mpt},
    {"olmo", arch::olmo},
    {"olmo2", arch::olmo2},
    {"olmoe", arch::olmoe},
    {"phi2", arch::phi2},
    {"phi3", arch::phi3},
    {"qwen2", arch::qwen2},
    {"qwen2moe", arch::qwen2},
    {"qwen3", arch::qwen3},
    {"qwen35", arch::qwen35},
    {"qwen35moe", arch::qwen35},
    {"qwen3moe", arch::qwen3},
    {"qwen3next", arch::qwen3next},
    {"smollm3", arch::smollm3},
    {"stablelm", arch::stablelm},
    {"starcoder", arch::starcoder},
    {"starcoder2", arch::starcoder2},
});

}  // namespace

std::vector<std::string_view> known_architectures() {
  std::vector<std::string_view> names;
  for (const auto& [name, planner] : kArchitectures) names.push_back(name);
  return names;
}

Plan make_plan(const weights::Checkpoint& checkpoint, const PlanOptions& options) {
  const std::string& name = checkpoint.metadata().string("general.architecture");
  const auto found = std::find_if(kArchitectures.begin(), kArchitectures.end(),
                                  [&](const auto& entry) { return entry.first == name; });
  if (found == kArchitectures.end())
    base::raise(ErrorKind::kUnsupported, "architecture '{}' is not supported; known are {}", name,
                fmt::join(known_architectures(), ", "));
  const arch::Reader reader(checkpoint, options);
  Plan plan = found->second(reader);
  plan.validate();
  for (const WeightRef* weight : weights_of(plan)) checkpoint.at(weight->tensor);  // is it there?
  arch::refuse_ignored(reader, plan);
  return plan;
}

namespace arch {
namespace {

// Keys that change no result: they describe, or they only matter together with one that is read.
constexpr auto kDescriptive = std::to_array<std::string_view>({
    "attention.causal",              // true; false is refused
    "attention.layer_norm_epsilon",  // each family asks for the one of its kind of norm
    "attention.layer_norm_rms_epsilon",
    "pooling_type",  // of embedding models; lemma answers with every row
    "rope.scaling.finetuned", "rope.scaling.original_context_length", "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow", "rope.scaling.yarn_log_multiplier", "tensor_data_layout",
    "vocab_size",  // the embedding table says it
});

// Parts of a file that belong to another tower (images, sound), which text does not pass through.
constexpr auto kOtherTowers = std::to_array<std::string_view>({"vision.", "audio.", "mm."});
constexpr auto kOtherTensors = std::to_array<std::string_view>({"v.", "a.", "mm."});

// A table of angles that some old files carry beside the keys that it follows from.
constexpr std::string_view kRotaryTable = ".attn_rot_embd";

bool starts_with_any(std::string_view text, auto& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return text.starts_with(prefix); });
}

bool contains(auto& list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

bool switched_off(const weights::Value& value) {
  if (const auto* flag = std::get_if<bool>(&value.data)) return !*flag;
  if (const auto* integer = std::get_if<std::int64_t>(&value.data)) return *integer == 0;
  if (const auto* number = std::get_if<double>(&value.data)) return *number == 0.0;
  return false;
}

void refuse_ignored_keys(const Reader& reader) {
  const std::string prefix = reader.architecture() + ".";
  for (const auto& [key, value] : reader.metadata().pairs()) {
    if (!key.starts_with(prefix) || reader.was_read(key)) continue;
    const std::string_view word = std::string_view(key).substr(prefix.size());
    if (word == "attention.causal" && !reader.metadata().boolean(key))
      base::raise(ErrorKind::kUnsupported, "key '{}': expected true, found false", key);
    if (switched_off(value) || contains(kDescriptive, word) || starts_with_any(word, kOtherTowers))
      continue;
    base::raise(
        ErrorKind::kUnsupported,
        "key '{}' is not known for the architecture '{}'; it may change the result, so it is "
        "not ignored",
        key, reader.architecture());
  }
}

void refuse_ignored_tensors(const Reader& reader, const Plan& plan) {
  std::set<std::string_view> used;
  for (const WeightRef* weight : weights_of(plan)) used.insert(weight->tensor);
  for (const weights::TensorInfo& tensor : reader.checkpoint().tensors()) {
    const std::string_view name = tensor.name;
    if (used.contains(name) || reader.was_read(name) ||
        name.find(kRotaryTable) != std::string_view::npos || starts_with_any(name, kOtherTensors))
      continue;
    base::raise(
        ErrorKind::kUnsupported,
        "tensor '{}' has no place in the architecture '{}'; it may change the result, so it "
        "is not ignored",
        name, reader.architecture());
  }
}

}  // namespace

void refuse_experts(const Reader& reader) {
  const std::string key = reader.key("expert_count");
  if (const std::uint32_t experts = reader.metadata().u32_or(key, 0); experts > 0)
    base::raise(ErrorKind::kUnsupported,
                "{} is {}; the '{}' architecture runs here without a mixture of experts only", key,
                experts, reader.architecture());
}

void refuse_ignored(const Reader& reader, const Plan& plan) {
  refuse_ignored_keys(reader);
  refuse_ignored_tensors(reader, plan);
}

}  // namespace arch
}  // namespace lemma::model
