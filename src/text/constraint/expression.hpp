// SPDX-License-Identifier: Apache-2.0
// Expression and Grammar: what a text may be, as a tree of bytes, characters, sequences, choices,
// repeats and named rules. GBNF (gbnf.hpp) and JSON schemas (json_schema.hpp) are read into one;
// Automaton (automaton.hpp) is made of one. Characters are code points and stand for their UTF-8
// bytes. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "text/regex/char_set.hpp"

namespace lemma::text::constraint {

inline constexpr std::uint32_t kUnbounded = 0xffffffff;

struct Expression {
  enum class Kind : std::uint8_t {
    kBytes,     ///< exactly `bytes`
    kChars,     ///< one code point of `chars`
    kSequence,  ///< the children one after the other; none: the empty text
    kChoice,    ///< one of the children; none: no text at all
    kRepeat,    ///< the child `least` to `most` times
    kRule,      ///< what rule `rule` says
    kGraph,     ///< a way from node 0 to node 1 of a graph whose edges are children
  };
  /// From node to node of a graph by child `label`, or by nothing (kSilent).
  struct Edge {
    std::uint32_t from, to, label;
  };
  static constexpr std::uint32_t kSilent = 0xffffffff;

  Kind kind = Kind::kSequence;
  std::uint32_t least = 1, most = 1;
  std::uint32_t rule = 0;
  std::uint32_t nodes = 0;  ///< of a graph
  std::string bytes;
  regex::CharSet chars;
  std::vector<Expression> children;
  std::vector<Edge> edges;
};

Expression literal(std::string bytes);
Expression one_of(regex::CharSet chars);
Expression sequence(std::vector<Expression> parts);
Expression choice(std::vector<Expression> parts);
Expression repeat(Expression part, std::uint32_t least, std::uint32_t most);
Expression optional(Expression part);
Expression rule_of(std::uint32_t rule);
inline Expression nothing() {
  return choice({});
}

/// Collects a graph: node 0 is its start, node 1 its end.
class GraphBuilder {
 public:
  static constexpr std::uint32_t kStart = 0, kEnd = 1;

  GraphBuilder() {
    graph_.kind = Expression::Kind::kGraph;
    graph_.nodes = 2;
  }
  std::uint32_t node() { return graph_.nodes++; }
  void silent(std::uint32_t from, std::uint32_t to) {
    graph_.edges.push_back({from, to, Expression::kSilent});
  }
  void edge(std::uint32_t from, std::uint32_t to, Expression label) {
    edge(from, to, add(std::move(label)));
  }
  /// A label that several edges share.
  std::uint32_t add(Expression label) {
    graph_.children.push_back(std::move(label));
    return static_cast<std::uint32_t>(graph_.children.size() - 1);
  }
  void edge(std::uint32_t from, std::uint32_t to, std::uint32_t label) {
    graph_.edges.push_back({from, to, label});
  }
  Expression take() { return std::move(graph_); }

 private:
  Expression graph_;
};

struct Rule {
  std::string name;  ///< for messages
  Expression body;
};

struct Grammar {
  std::vector<Rule> rules;
  std::uint32_t root = 0;
};

}  // namespace lemma::text::constraint
