// SPDX-License-Identifier: Apache-2.0
// Program: a grammar made ready for one vocabulary, shared by any number of requests and threads.
// Matcher: one text on its way through a program: which tokens may come next, and what came.
//
// A text may begin unconstrained. With `after` the constraint begins behind the first occurrence of
// that text, blanks apart (reasoning first); the text must come, so end tokens are excluded until
// it has. With `triggers` it begins where the first of these texts begins, if one ever comes (a
// tool call); what stands before it in the same token is free. With both, triggers are looked for
// behind `after`. Markers may be control tokens; they count as the vocabulary spells them.
//
//   Matcher matcher(program, {});
//   matcher.mask(allowed);                  // flags [V]
//   matcher.take(chosen);
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/constraint/mask_maker.hpp"

namespace lemma::text::constraint {

struct Beginning {
  std::string after;
  std::vector<std::string> triggers;
};

class Matcher;

class Program {
 public:
  Program(const Grammar& grammar, std::shared_ptr<const TokenTrie> trie);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  const TokenTrie& trie() const noexcept { return *trie_; }
  const Automaton& automaton() const noexcept { return automaton_; }
  std::size_t bytes() const;

 private:
  friend class Matcher;
  const std::shared_ptr<const TokenTrie> trie_;
  const Automaton automaton_;
  mutable std::mutex mutex_;
  mutable MaskMaker maker_;                 // under mutex_
  mutable std::vector<Matcher*> matchers_;  // under mutex_: whose places must be kept
};

class Matcher {
 public:
  Matcher(std::shared_ptr<const Program> program, std::shared_ptr<const Tokenizer> tokenizer,
          Beginning beginning = {});
  ~Matcher();
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;

  /// Sets `allowed` [>= vocabulary] to 1 for the tokens that may come next and to 0 for all others,
  /// end tokens where the text may end. While the beginning is free, tokens that complete a marker
  /// and go on wrongly are let through: ask fits(). Throws kUsage where the grammar is too
  /// ambiguous to be followed. False: nothing is allowed.
  bool mask(std::span<std::uint8_t> allowed);
  /// The same as bits, one a token; faster.
  bool mask(TokenBits& bits);
  /// True if take() would succeed.
  bool fits(TokenId id);
  /// Goes on by one token. False, and nothing changes, if it may not come. An end token is taken
  /// where the text may end and changes nothing.
  bool take(TokenId id);
  /// Bytes, as a tokenizer-free way in; the same rules.
  bool take(std::string_view text);
  bool may_end();
  /// True if the text is complete and nothing but an end token may follow.
  bool finished();
  bool is_free() const noexcept { return phase_ != Phase::kConstrained; }

 private:
  enum class Phase : std::uint8_t { kBefore, kUntriggered, kConstrained };
  struct Place {
    Phase phase;
    NodeId node;
    std::string tail;  ///< the last bytes of the free text, in which a marker may have begun
  };

  std::optional<Place> after(std::string_view text);
  void look_for_triggers(Place& place, std::string_view& rest) const;
  std::string text_of(TokenId id) const;

  const std::shared_ptr<const Program> program_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const Beginning beginning_;
  Phase phase_;
  NodeId node_;  ///< under the program's mutex: tidying changes it
  std::string tail_;
  TokenBits bits_;
};

}  // namespace lemma::text::constraint
