// SPDX-License-Identifier: Apache-2.0
#include "text/constraint/nfa.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include "base/raise.hpp"
#include "base/utf8.hpp"

namespace lemma::text::constraint {
namespace {

using Kind = Expression::Kind;

/// Up to so many leaves a repeat is written out, so that it can become deterministic with its
/// neighbours; beyond, it is counted.
constexpr std::size_t kWrittenOut = 24;

/// A set of more ranges than this, such as the letters of all scripts, is a rule of its own:
/// written out at each of its places it would be most of the automaton.
constexpr std::size_t kRangesInPlace = 40;

std::size_t utf8_length(char32_t c) {
  return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
}

/// The leaves of an expression, at most `limit`.
std::size_t leaves(const Expression& e, std::size_t limit) {
  if (e.kind == Kind::kBytes) return std::min(limit, e.bytes.size());
  if (e.kind == Kind::kChars || e.kind == Kind::kRule) return 1;
  std::size_t sum = 0;
  for (const Expression& child : e.children) {
    if (sum >= limit) return limit;
    sum += leaves(child, limit - sum);
  }
  if (e.kind == Kind::kRepeat) sum *= e.most == kUnbounded ? e.least + 1 : e.most;
  return std::min(limit, sum);
}

class NfaMaker {
 public:
  explicit NfaMaker(const Grammar& grammar) {
    nfa_.root = grammar.root;
    for (std::size_t i = 0; i < grammar.rules.size(); ++i) {
      nfa_.rules.push_back({state(), state()});
      nfa_.names.push_back(static_cast<std::uint32_t>(i));
    }
    for (std::size_t i = 0; i < grammar.rules.size(); ++i) {
      name_ = static_cast<std::uint32_t>(i);
      emit(grammar.rules[i].body, nfa_.rules[i].start, nfa_.rules[i].end);
    }
  }

  Nfa take() {
    // Edges by state, in order: a counting sort.
    nfa_.first_edge.assign(nfa_.state_count + 1, 0);
    for (const NfaEdge& edge : nfa_.edges) ++nfa_.first_edge[edge.from + 1];
    for (std::size_t i = 0; i < nfa_.state_count; ++i) nfa_.first_edge[i + 1] += nfa_.first_edge[i];
    std::vector<NfaEdge> sorted(nfa_.edges.size());
    std::vector<std::uint32_t> next = nfa_.first_edge;
    for (const NfaEdge& edge : nfa_.edges) sorted[next[edge.from]++] = edge;
    nfa_.edges = std::move(sorted);
    return std::move(nfa_);
  }

 private:
  std::uint32_t state() {
    if (nfa_.state_count >= Automaton::kMostStates ||
        nfa_.edges.size() >= 4 * Automaton::kMostStates)
      base::raise(ErrorKind::kUsage, "the grammar is too large: more than {} states",
                  Automaton::kMostStates);
    return nfa_.state_count++;
  }
  void silent(std::uint32_t from, std::uint32_t to) {
    nfa_.edges.push_back({NfaEdge::Kind::kSilent, 0, 0, from, to, 0});
  }
  void bytes(std::uint32_t from, std::uint32_t to, std::uint8_t first, std::uint8_t last) {
    nfa_.edges.push_back({NfaEdge::Kind::kBytes, first, last, from, to, 0});
  }
  void call(std::uint32_t from, std::uint32_t to, NfaCall what) {
    const auto key = std::tuple(what.rule, what.least, what.most);
    const auto [at, fresh] = call_ids_.try_emplace(key, nfa_.calls.size());
    if (fresh) nfa_.calls.push_back(what);
    nfa_.edges.push_back({NfaEdge::Kind::kCall, 0, 0, from, to, at->second});
  }

  void emit(const Expression& e, std::uint32_t from, std::uint32_t to) {
    switch (e.kind) {
      case Kind::kBytes:
        return emit_bytes(e.bytes, from, to);
      case Kind::kChars:
        return emit_chars(e.chars, from, to);
      case Kind::kSequence:
        return emit_sequence(e, from, to);
      case Kind::kChoice:
        return emit_choice(e, from, to);
      case Kind::kRepeat:
        return emit_repeat(e, from, to);
      case Kind::kRule:
        return call(from, to, {e.rule, 1, 1});
      case Kind::kGraph:
        return emit_graph(e, from, to);
    }
  }

  void emit_bytes(const std::string& text, std::uint32_t from, std::uint32_t to) {
    if (text.empty()) return silent(from, to);
    for (std::size_t i = 0; i < text.size(); ++i) {
      const std::uint32_t next = i + 1 == text.size() ? to : state();
      const auto byte = static_cast<std::uint8_t>(text[i]);
      bytes(from, next, byte, byte);
      from = next;
    }
  }

  void emit_sequence(const Expression& e, std::uint32_t from, std::uint32_t to) {
    if (e.children.empty()) return silent(from, to);
    for (std::size_t i = 0; i < e.children.size(); ++i) {
      const std::uint32_t next = i + 1 == e.children.size() ? to : state();
      emit(e.children[i], from, next);
      from = next;
    }
  }

  /// Literals share their beginnings, so that a list of many thousand stays small.
  void emit_choice(const Expression& e, std::uint32_t from, std::uint32_t to) {
    std::vector<const std::string*> literals;
    for (const Expression& child : e.children) {
      if (child.kind == Kind::kBytes && !child.bytes.empty()) {
        literals.push_back(&child.bytes);
      } else {
        emit(child, from, to);
      }
    }
    std::sort(literals.begin(), literals.end(), [](auto a, auto b) { return *a < *b; });
    std::vector<std::uint32_t> path = {from};  // the states along the literal before
    const std::string* before = nullptr;
    for (const std::string* text : literals) {
      if (before && *before == *text) continue;
      std::size_t common = 0;
      if (before) {
        const auto [a, b] =
            std::mismatch(before->begin(), before->end(), text->begin(), text->end());
        common =
            std::min<std::size_t>(static_cast<std::size_t>(a - before->begin()), path.size() - 1);
      }
      path.resize(common + 1);
      for (std::size_t i = common; i < text->size(); ++i) {
        const auto byte = static_cast<std::uint8_t>((*text)[i]);
        const bool last = i + 1 == text->size();
        const std::uint32_t next = state();
        bytes(path.back(), next, byte, byte);
        path.push_back(next);
        if (last) silent(next, to);
      }
      before = text;
    }
  }

  void emit_repeat(const Expression& e, std::uint32_t from, std::uint32_t to) {
    const Expression& child = e.children.front();
    if (e.least > e.most || e.most == 0) return silent(from, to);
    if (e.most == kUnbounded && e.least <= 1) {
      const std::uint32_t middle = state();
      if (e.least == 0) {
        silent(from, middle);
      } else {
        emit(child, from, middle);
      }
      const std::uint32_t again = state();
      silent(middle, again);
      emit(child, again, middle);
      return silent(middle, to);
    }
    if (e.most == 1) {
      emit(child, from, to);
      if (e.least == 0) silent(from, to);
      return;
    }
    const std::size_t size = leaves(e, kWrittenOut + 1);
    if (size == 0) {  // nothing is read, however often
      emit(child, from, to);
      if (e.least == 0) silent(from, to);
      return;
    }
    if (size <= kWrittenOut) return write_out(e, from, to);
    call(from, to, {repeated_rule(child), std::max(e.least, 1u), e.most});
    if (e.least == 0) silent(from, to);
  }

  void write_out(const Expression& e, std::uint32_t from, std::uint32_t to) {
    const Expression& child = e.children.front();
    const std::uint32_t copies = e.most == kUnbounded ? e.least : e.most;
    for (std::uint32_t i = 0; i < copies; ++i) {
      if (i >= e.least) silent(from, to);
      const std::uint32_t next = state();
      emit(child, from, next);
      from = next;
    }
    if (e.most == kUnbounded) emit(child, from, from);
    silent(from, to);
  }

  /// The rule that a counted repeat calls.
  std::uint32_t repeated_rule(const Expression& child) {
    if (child.kind == Kind::kRule) return child.rule;
    const auto index = static_cast<std::uint32_t>(nfa_.rules.size());
    const Nfa::RuleEnds ends = {state(), state()};
    nfa_.rules.push_back(ends);
    nfa_.names.push_back(name_);
    emit(child, ends.start, ends.end);
    return index;
  }

  void emit_graph(const Expression& e, std::uint32_t from, std::uint32_t to) {
    std::vector<std::uint32_t> nodes = {state(), state()};
    while (nodes.size() < e.nodes) nodes.push_back(state());
    silent(from, nodes[0]);
    silent(nodes[1], to);
    for (const Expression::Edge& edge : e.edges) {
      if (edge.label == Expression::kSilent) {
        silent(nodes[edge.from], nodes[edge.to]);
      } else {
        emit(e.children[edge.label], nodes[edge.from], nodes[edge.to]);
      }
    }
  }

  /// The UTF-8 forms of a set: ranges that agree in their bytes behind the first share states.
  void emit_chars(const regex::CharSet& chars, std::uint32_t from, std::uint32_t to) {
    if (chars.ranges().size() <= kRangesInPlace) return emit_utf8(chars, from, to);
    auto known = std::find_if(large_sets_.begin(), large_sets_.end(),
                              [&](const auto& entry) { return entry.first == chars; });
    if (known == large_sets_.end()) {
      known = large_sets_.insert(known, {chars, static_cast<std::uint32_t>(nfa_.rules.size())});
      const Nfa::RuleEnds ends = {state(), state()};
      nfa_.rules.push_back(ends);
      nfa_.names.push_back(name_);
      emit_utf8(chars, ends.start, ends.end);
    }
    call(from, to, {known->second, 1, 1});
  }

  void emit_utf8(const regex::CharSet& chars, std::uint32_t from, std::uint32_t to) {
    tails_.clear();
    for (const regex::CharRange& range : chars.ranges()) {
      // Surrogates are no characters.
      if (range.first < 0xd800)
        emit_range(range.first, std::min<char32_t>(range.last, 0xd7ff), from, to);
      if (range.last > 0xdfff)
        emit_range(std::max<char32_t>(range.first, 0xe000), range.last, from, to);
    }
  }

  void emit_range(char32_t first, char32_t last, std::uint32_t from, std::uint32_t to) {
    static constexpr std::array<char32_t, 4> kLastOfLength = {0x7f, 0x7ff, 0xffff, 0x10ffff};
    for (const char32_t limit : kLastOfLength) {
      if (first > last) return;
      if (first > limit) continue;
      emit_same_length(first, std::min(last, limit), from, to);
      first = limit + 1;
    }
  }

  /// Both ends have UTF-8 forms of the same length. Cut until each piece is a product of ranges.
  void emit_same_length(char32_t first, char32_t last, std::uint32_t from, std::uint32_t to) {
    const std::size_t length = utf8_length(first);
    for (std::size_t i = 1; i < length; ++i) {
      const char32_t mask = (char32_t{1} << (6 * i)) - 1;
      if ((first & ~mask) == (last & ~mask)) continue;
      if ((first & mask) != 0) {
        emit_same_length(first, first | mask, from, to);
        return emit_same_length((first | mask) + 1, last, from, to);
      }
      if ((last & mask) != mask) {
        emit_same_length(first, (last & ~mask) - 1, from, to);
        return emit_same_length(last & ~mask, last, from, to);
      }
    }
    std::string low, high;
    base::append_utf8(low, first);
    base::append_utf8(high, last);
    for (std::size_t i = length - 1; i > 0; --i)
      to = tail(to, static_cast<std::uint8_t>(low[i]), static_cast<std::uint8_t>(high[i]));
    bytes(from, to, static_cast<std::uint8_t>(low[0]), static_cast<std::uint8_t>(high[0]));
  }

  /// The state that reads one byte of a range and goes to `to`.
  std::uint32_t tail(std::uint32_t to, std::uint8_t first, std::uint8_t last) {
    const auto [at, fresh] = tails_.try_emplace(std::tuple(to, first, last), 0);
    if (fresh) {
      at->second = state();
      bytes(at->second, to, first, last);
    }
    return at->second;
  }

  Nfa nfa_;
  std::uint32_t name_ = 0;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::uint32_t> call_ids_;
  std::map<std::tuple<std::uint32_t, std::uint8_t, std::uint8_t>, std::uint32_t> tails_;
  std::vector<std::pair<regex::CharSet, std::uint32_t>> large_sets_;  ///< and their rules
};

/// Finds what rules can be by following all edges once: a state is reached with nothing read
/// (layer 0) or with something read (layer 1) since its rule's start.
class Analysis {
 public:
  explicit Analysis(Nfa& nfa) : nfa_(nfa), reached_(2 * std::size_t{nfa.state_count}) {
    const std::size_t rules = nfa.rules.size();
    nfa.nullable.assign(rules, 0);
    nfa.readable.assign(rules, 0);
    callers_.resize(rules);
    end_of_.assign(nfa.state_count, kNone);
    for (std::size_t i = 0; i < rules; ++i)
      end_of_[nfa.rules[i].end] = static_cast<std::uint32_t>(i);
    for (std::size_t i = 0; i < nfa.edges.size(); ++i) {
      if (nfa.edges[i].kind == NfaEdge::Kind::kCall)
        callers_[nfa.calls[nfa.edges[i].call].rule].push_back(static_cast<std::uint32_t>(i));
    }
    for (const Nfa::RuleEnds& rule : nfa.rules) reach(rule.start, 0);
    while (!work_.empty()) {
      const auto [state, layer] = work_.back();
      work_.pop_back();
      leave(state, layer);
    }
    find_leading();
  }

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;

  void reach(std::uint32_t state, int layer) {
    std::uint8_t& flag = reached_[2 * std::size_t{state} + std::size_t(layer)];
    if (flag != 0) return;
    flag = 1;
    work_.emplace_back(state, layer);
  }

  void leave(std::uint32_t state, int layer) {
    for (std::uint32_t i = nfa_.first_edge[state]; i < nfa_.first_edge[state + 1]; ++i)
      follow(nfa_.edges[i], layer);
    if (end_of_[state] == kNone) return;
    const std::uint32_t rule = end_of_[state];
    (layer == 0 ? nfa_.nullable : nfa_.readable)[rule] = 1;
    for (const std::uint32_t site : callers_[rule]) {
      const NfaEdge& edge = nfa_.edges[site];
      for (const int at : {0, 1}) {
        if (reached_[2 * std::size_t{edge.from} + std::size_t(at)] != 0) follow(edge, at);
      }
    }
  }

  void follow(const NfaEdge& edge, int layer) {
    if (nfa_.passes(edge)) reach(edge.to, layer);
    if (nfa_.reads(edge)) reach(edge.to, 1);
  }

  void find_leading() {
    std::vector<std::uint32_t> count(nfa_.state_count + 1, 0);
    for (const NfaEdge& edge : nfa_.edges) ++count[edge.to + 1];
    for (std::size_t i = 0; i < nfa_.state_count; ++i) count[i + 1] += count[i];
    std::vector<std::uint32_t> into(nfa_.edges.size()), next = count;
    for (std::size_t i = 0; i < nfa_.edges.size(); ++i)
      into[next[nfa_.edges[i].to]++] = static_cast<std::uint32_t>(i);
    nfa_.leads.assign(nfa_.state_count, 0);
    std::vector<std::uint32_t> work;
    for (const Nfa::RuleEnds& rule : nfa_.rules) {
      nfa_.leads[rule.end] = 1;
      work.push_back(rule.end);
    }
    while (!work.empty()) {
      const std::uint32_t state = work.back();
      work.pop_back();
      for (std::uint32_t i = count[state]; i < count[state + 1]; ++i) {
        const NfaEdge& edge = nfa_.edges[into[i]];
        if (nfa_.leads[edge.from] != 0 || !(nfa_.passes(edge) || nfa_.reads(edge))) continue;
        nfa_.leads[edge.from] = 1;
        work.push_back(edge.from);
      }
    }
  }

  Nfa& nfa_;
  std::vector<std::uint8_t> reached_;
  std::vector<std::uint32_t> end_of_;                ///< by state: the rule that ends there
  std::vector<std::vector<std::uint32_t>> callers_;  ///< by rule: edges
  std::vector<std::pair<std::uint32_t, int>> work_;
};

}  // namespace

Nfa make_nfa(const Grammar& grammar) {
  Nfa nfa = NfaMaker(grammar).take();
  Analysis{nfa};
  return nfa;
}

}  // namespace lemma::text::constraint
