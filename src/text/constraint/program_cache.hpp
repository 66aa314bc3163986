// SPDX-License-Identifier: Apache-2.0
// ProgramCache: the programs of an engine's latest constraints, so that a schema which comes with
// every request is compiled once and keeps what was found out about it. Bounded in number and
// bytes; programs in use outlive their place. Thread-safe; compiling holds no lock.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "lemma/constraint.hpp"
#include "text/constraint/matcher.hpp"

namespace lemma::text::constraint {

class ProgramCache {
 public:
  static constexpr std::size_t kMostPrograms = 32;
  static constexpr std::size_t kMostBytes = std::size_t{256} << 20;

  explicit ProgramCache(std::shared_ptr<const Tokenizer> tokenizer)
      : tokenizer_(std::move(tokenizer)) {}

  /// Throws kUsage for a text that is no grammar or schema, naming the place.
  std::shared_ptr<const Program> get(const Constraint& constraint);
  /// A matcher at the beginning of a text. Throws as get(), and for an empty trigger.
  std::unique_ptr<Matcher> matcher(const Constraint& constraint);
  std::size_t size() const;

 private:
  std::shared_ptr<const TokenTrie> trie();

  using Entry = std::pair<std::string, std::shared_ptr<const Program>>;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  mutable std::mutex mutex_;
  std::shared_ptr<const TokenTrie> trie_;  // under mutex_
  std::list<Entry> entries_;               // under mutex_: the latest first
};

}  // namespace lemma::text::constraint
