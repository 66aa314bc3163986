// SPDX-License-Identifier: Apache-2.0
// Blocks that draft, as folders name them. GGUF numbers them on behind the layers, so they get such
// names first and pass the same tables as the layers.
#include <charconv>

#include "base/raise.hpp"
#include "weights/safetensors/translation.hpp"

namespace lemma::weights::safetensors {

using base::raise;

// Under the names that they would have as blocks behind the last layer.
void Translation::rename_drafts() {
  if (family_.drafts != Drafts::kBlocks && family_.drafts != Drafts::kModule) return;
  constexpr std::string_view kMtp = "mtp.";
  const auto own = [&](std::string_view rest) -> std::string {
    const std::string layer = numbered("layers.#.", layers_);
    if (rest == "fc.weight") return layer + "eh_proj.weight";
    if (rest == "pre_fc_norm_embedding.weight") return layer + "enorm.weight";
    if (rest == "pre_fc_norm_hidden.weight") return layer + "hnorm.weight";
    if (rest == "norm.weight") return layer + "shared_head.norm.weight";
    return {};
  };
  std::vector<std::pair<std::string, std::string>> moves;
  for (auto it = names_.lower_bound(kMtp); it != names_.end() && it->first.starts_with(kMtp);
       ++it) {
    std::string_view rest = std::string_view(it->first).substr(kMtp.size());
    std::string to = family_.drafts == Drafts::kModule ? own(rest) : std::string();
    if (family_.drafts == Drafts::kModule && rest.starts_with("layers.")) rest.remove_prefix(7);
    // One digit: no file has more blocks than that.
    if (to.empty() && rest.size() > 2 && rest[1] == '.' && rest[0] >= '0' && rest[0] <= '9')
      to = numbered("layers.#", layers_ + static_cast<std::uint32_t>(rest[0] - '0')) +
           std::string(rest.substr(1));
    if (!to.empty()) moves.emplace_back(it->first, std::move(to));
  }
  for (auto& [from, to] : moves) {
    auto node = names_.extract(from);
    node.key() = std::move(to);
    if (const auto at = names_.insert(std::move(node)); !at.inserted)
      raise(ErrorKind::kBadFile, "tensors '{}' and '{}' are the same one of the model",
            at.node.mapped()->name, at.position->second->name);
  }
}

void Translation::count_drafts() {
  blocks_ = layers_;
  if (family_.drafts == Drafts::kNone) return;
  const bool stated = family_.drafts == Drafts::kLayers;
  const std::uint32_t most = stated ? config_.u32_or("num_nextn_predict_layers", 0)
                             : family_.drafts == Drafts::kModule ? 1
                                                                 : 10;
  const std::string_view sign =
      family_.drafts == Drafts::kBlocks ? "layers.#.e_proj.weight" : "layers.#.eh_proj.weight";
  while (blocks_ - layers_ < most && has(numbered(sign, blocks_))) ++blocks_;
}

// Blocks that draft and that this family's architecture does not plan, or more than it plans.
bool Translation::of_a_draft(std::string_view name) const {
  if (name.starts_with("mtp.")) return true;
  constexpr std::string_view kLayers = "layers.";
  if (!name.starts_with(kLayers)) return false;
  const std::string_view digits = name.substr(kLayers.size());
  std::uint32_t layer = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), layer);
  if (error != std::errc() || layer < blocks_) return false;
  const std::string block = numbered("layers.#.", layer);
  return has(block + "eh_proj.weight") || has(block + "e_proj.weight");
}

}  // namespace lemma::weights::safetensors
