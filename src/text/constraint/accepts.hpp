// SPDX-License-Identifier: Apache-2.0
// For tests: whether a grammar takes a text, byte by byte, without any vocabulary.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "lemma/error.hpp"
#include "text/constraint/automaton.hpp"
#include "text/constraint/gbnf.hpp"
#include "text/constraint/json_schema.hpp"
#include "text/constraint/state_store.hpp"

namespace lemma::text::constraint {

class Acceptor {
 public:
  explicit Acceptor(const Grammar& grammar)
      : automaton_(std::make_unique<const Automaton>(Automaton::compile(grammar))),
        store_(std::make_unique<StateStore>(*automaton_)) {}

  /// How many bytes of `text` may come.
  std::size_t prefix(std::string_view text) { return walk(text).second; }
  bool whole(std::string_view text) {
    const auto [node, length] = walk(text);
    return length == text.size() && store_->may_end(node);
  }
  /// True if `text` may come and more must.
  bool open(std::string_view text) {
    const auto [node, length] = walk(text);
    return length == text.size() && !store_->may_end(node);
  }
  StateStore& store() { return *store_; }
  const Automaton& automaton() const { return *automaton_; }

 private:
  std::pair<NodeId, std::size_t> walk(std::string_view text) {
    NodeId node = store_->start();
    for (std::size_t i = 0; i < text.size(); ++i) {
      const NodeId next = store_->next(node, static_cast<std::uint8_t>(text[i]));
      if (next == StateStore::kDead) return {node, i};
      node = next;
    }
    return {node, text.size()};
  }

  std::unique_ptr<const Automaton> automaton_;
  std::unique_ptr<StateStore> store_;
};

inline Acceptor gbnf(std::string_view text) {
  return Acceptor(parse_gbnf(text));
}
inline Acceptor schema(std::string_view text, bool compact = false) {
  return Acceptor(schema_grammar(text, {.compact = compact}));
}

/// What a text that is no grammar or schema is refused with; empty if it is taken.
template <typename Function>
std::string refusal(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.kind() == ErrorKind::kUsage ? error.what()
                                             : std::string("another kind: ") + error.what();
  }
  return {};
}

}  // namespace lemma::text::constraint
