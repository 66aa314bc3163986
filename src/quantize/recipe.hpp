// SPDX-License-Identifier: Apache-2.0
// Recipe: which block format each tensor of a quantized file gets. A plain format ("Q8_0") is used
// for every matrix; a mixed recipe ("Q4_K_M") gives more bits to the tensors that the output
// depends on most. Mixed recipes bear the names that the field uses, and follow their published
// proportions. A user's rules by name come first. Everything here is pure.
//
//   const Recipe recipe = recipe_by_name("Q4_K_M");
//   const Choice choice = choose(recipe, rules, tensor);   // {Q6_K, ""}
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weights/format.hpp"

namespace lemma::quantize {

using weights::Format;

/// What a matrix does in its model, as far as recipes tell matrices apart.
enum class Role : std::uint8_t {
  kEmbedding,  ///< the table of token rows
  kOutput,     ///< the head, or an embedding that serves as one
  kQuery,      ///< also the halves of a query through a latent
  kKey,        ///< also latents and their way up
  kValue,
  kQkv,  ///< fused
  kAttentionOutput,
  kGateUp,  ///< of a dense block
  kDown,
  kExpertGateUp,  ///< stacks of routed experts
  kExpertDown,
  kSharedExpert,  ///< gate, up and down of the block that every row passes
  kOther,
};

/// The role of the matrix that a GGUF file calls `name`. A tied embedding is the head's as well.
Role role_of(std::string_view name, bool tied) noexcept;

struct TensorFacts {
  std::string_view name;
  Role role = Role::kOther;
  std::uint32_t layer = 0, layers = 1;  ///< layer 0 outside of the layers
  std::uint64_t cols = 0;
};

/// Where in the stack of layers a rule holds.
enum class Part : std::uint8_t {
  kAll,
  kFirstEighth,
  kFirstSixteenth,
  kEnds,  ///< the first and the last eighth, and every third layer between
};

struct Rule {
  Role role;
  Part part = Part::kAll;
  Format format;
};

/// The first rule that fits a matrix decides; without one it gets `base`.
struct Recipe {
  std::string_view name;
  Format base;
  std::vector<Rule> rules;
};

/// A user's rule: matrices whose name matches `pattern` ('*' stands for any text, '?' for one
/// character) get `format`.
struct NamedRule {
  std::string pattern;
  Format format;
};

/// Parses "PATTERN=FORMAT". Throws kUsage.
NamedRule parse_rule(std::string_view text);

/// The recipe called `name` (case-insensitive): a mixed one, or any format that can be written.
/// Throws kUsage, with the list of known names.
Recipe recipe_by_name(std::string_view name);
/// The names of the mixed recipes.
std::vector<std::string_view> mixed_recipes();

struct Choice {
  Format format;
  std::string note;  ///< why it is not the format that the recipe names; empty if it is
};

/// The format for `tensor`: a format whose blocks do not fit its rows gives way to a wider one with
/// smaller blocks, which the note says. A user's rule that does not fit throws kUsage.
Choice choose(const Recipe& recipe, const std::vector<NamedRule>& rules, const TensorFacts& tensor);

}  // namespace lemma::quantize
