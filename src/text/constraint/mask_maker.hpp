// SPDX-License-Identifier: Apache-2.0
// MaskMaker: which tokens of a vocabulary may come next at a place of an automaton. What it has
// found it keeps, in two forms, both bounded in bytes:
//   - the mask of a place, counts clamped, for when the same place comes again;
//   - per state at the top of a stack, whatever its callers: the tokens that end within the rule,
//     and the tokens that get out of it, which are then tried at the place itself. A new place with
//     a known state (the next string of a document) so costs the few tokens that close it, not a
//     walk through the vocabulary (Y. Dong et al., "XGrammar", arXiv:2411.15100, section 3.1).
// Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "text/constraint/state_store.hpp"
#include "text/constraint/token_set.hpp"
#include "text/constraint/token_trie.hpp"

namespace lemma::text::constraint {

class MaskMaker {
 public:
  static constexpr std::size_t kMostMaskBytes = std::size_t{8} << 20;  ///< of each form
  static constexpr std::size_t kMostStoreBytes = std::size_t{24} << 20;

  /// Both must outlive the maker.
  MaskMaker(const Automaton& automaton, const TokenTrie& trie);

  StateStore& store() noexcept { return store_; }
  /// Sets the bits of the tokens whose whole text may come at `node`; end tokens are not among
  /// them. Throws kUsage where the grammar is too ambiguous.
  void fill(NodeId node, TokenBits& bits);
  /// Where a text leads; kDead if it may not come.
  NodeId follow(NodeId node, std::string_view text);
  /// Forgets places other than `roots`, which get new ids, if there are too many. Call between
  /// tokens.
  void tidy(std::span<NodeId* const> roots);
  std::size_t bytes() const noexcept { return store_.bytes() + place_bytes_ + frame_bytes_; }

 private:
  /// A state by itself.
  struct Frame {
    bool usable = true;                    ///< false: too many tokens get out
    TokenSet inside;                       ///< tokens that end within the rule, or just complete it
    std::vector<TokenTrie::Entry> beyond;  ///< tokens that may go on behind it
  };

  void compute(NodeId node, TokenBits& bits);
  const Frame& frame_of(const Item& item);
  Frame make_frame(const Item& item);
  void walk(NodeId node, TokenBits& bits);
  void try_list(NodeId node, std::span<const TokenTrie::Entry> list, TokenBits& bits);

  const TokenTrie& trie_;
  StateStore store_;
  const std::vector<TokenTrie::Entry> long_tokens_;  ///< longer than clamped counts are exact
  std::unordered_map<NodeId, TokenSet> places_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, Frame> frames_;
  std::size_t place_bytes_ = 0, frame_bytes_ = 0;
  std::vector<NodeId> path_;  ///< by depth, while walking
};

}  // namespace lemma::text::constraint
