// SPDX-License-Identifier: Apache-2.0
#include "text/constraint/char_dfa.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/raise.hpp"
#include "base/utf8.hpp"
#include "text/constraint/json_value.hpp"

namespace lemma::text::constraint {

using regex::CharSet;

bool CharDfa::accepts_text(std::string_view utf8) const {
  std::uint32_t state = 0;
  while (!utf8.empty()) {
    const base::Decoded c = base::decode_utf8(utf8);
    utf8.remove_prefix(c.length);
    std::size_t index = 0;
    while (index < classes.size() && !classes[index].contains(c.code_point)) ++index;
    if (index == classes.size()) return false;
    state = next[state * classes.size() + index];
    if (state == kNone) return false;
  }
  return accepts[state] != 0;
}

Expression json_chars(const CharSet& chars) {
  static const CharSet plain = {{0x20, 0x21}, {0x23, 0x5b}, {0x5d, regex::kLastCodePoint}};
  std::vector<Expression> forms;
  const CharSet raw = chars.intersection(plain);
  if (!raw.empty()) forms.push_back(one_of(raw));
  for (char32_t c = 0; c <= '\\'; ++c) {
    if (plain.contains(c) || !chars.contains(c)) continue;
    const std::string quoted = quoted_json(std::string(1, static_cast<char>(c)));
    forms.push_back(literal(quoted.substr(1, quoted.size() - 2)));
  }
  return forms.size() == 1 ? std::move(forms.front()) : choice(std::move(forms));
}

Expression CharDfa::in_json() const {
  GraphBuilder graph;
  std::vector<std::uint32_t> nodes = {GraphBuilder::kStart};
  while (nodes.size() < state_count()) nodes.push_back(graph.node());
  // Sets repeat from state to state; the label of each is made once.
  std::map<std::vector<std::size_t>, std::uint32_t> labels;
  for (std::size_t state = 0; state < state_count(); ++state) {
    std::map<std::uint32_t, std::vector<std::size_t>> by_target;
    for (std::size_t c = 0; c < classes.size(); ++c) {
      const std::uint32_t target = next[state * classes.size() + c];
      if (target != kNone) by_target[target].push_back(c);
    }
    for (auto& [target, members] : by_target) {
      const auto [at, fresh] = labels.try_emplace(members, 0);
      if (fresh) {
        CharSet chars;
        for (const std::size_t c : members) chars.add(classes[c]);
        at->second = graph.add(json_chars(chars));
      }
      graph.edge(nodes[state], nodes[target], at->second);
    }
    if (accepts[state] != 0) graph.silent(nodes[state], GraphBuilder::kEnd);
  }
  return graph.take();
}

CharDfa length_dfa(std::uint32_t least, std::uint32_t most) {
  const std::uint32_t last = most == kUnbounded ? least : most;
  if (last >= CharDfa::kMostStates)
    base::raise(ErrorKind::kUsage, "a length beside a pattern: expected less than {}, found {}",
                CharDfa::kMostStates, last);
  CharDfa dfa;
  dfa.classes = {CharSet::all()};
  for (std::uint32_t i = 0; i <= last; ++i) {
    dfa.accepts.push_back(i >= least ? 1 : 0);
    dfa.next.push_back(i < last ? i + 1 : most == kUnbounded ? i : CharDfa::kNone);
  }
  return dfa;
}

/// States are told apart by whether they accept, then by the groups that they lead to, until no
/// round parts a group (E. F. Moore, "Gedanken-experiments on sequential machines", 1956).
CharDfa reduced(const CharDfa& dfa) {
  constexpr int kMostRounds = 64;
  const std::size_t width = dfa.classes.size();
  std::vector<std::uint32_t> groups(dfa.accepts.begin(), dfa.accepts.end());
  std::size_t count = 0;
  for (int round = 0;; ++round) {
    if (round == kMostRounds) return dfa;
    std::map<std::vector<std::uint32_t>, std::uint32_t> ids;
    std::vector<std::uint32_t> parted;
    for (std::size_t state = 0; state < groups.size(); ++state) {
      std::vector<std::uint32_t> signature = {groups[state]};
      for (std::size_t c = 0; c < width; ++c) {
        const std::uint32_t to = dfa.next[state * width + c];
        signature.push_back(to == CharDfa::kNone ? CharDfa::kNone : groups[to]);
      }
      const auto id = static_cast<std::uint32_t>(ids.size());
      parted.push_back(ids.try_emplace(std::move(signature), id).first->second);
    }
    groups = std::move(parted);
    if (ids.size() == count) break;
    count = ids.size();
  }
  CharDfa made;
  made.classes = dfa.classes;
  made.accepts.resize(count);
  made.next.resize(count * width);
  for (std::size_t state = 0; state < groups.size(); ++state) {  // the start's group is the first
    made.accepts[groups[state]] = dfa.accepts[state];
    for (std::size_t c = 0; c < width; ++c) {
      const std::uint32_t to = dfa.next[state * width + c];
      made.next[groups[state] * width + c] = to == CharDfa::kNone ? to : groups[to];
    }
  }
  return made;
}

CharDfa both_of(const CharDfa& a, const CharDfa& b) {
  CharDfa both;
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  for (std::size_t i = 0; i < a.classes.size(); ++i) {
    for (std::size_t j = 0; j < b.classes.size(); ++j) {
      CharSet common = a.classes[i].intersection(b.classes[j]);
      if (common.empty()) continue;
      both.classes.push_back(std::move(common));
      pairs.emplace_back(i, j);
    }
  }
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> ids;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> todo;
  const auto id = [&](std::uint32_t x, std::uint32_t y) {
    if (x == CharDfa::kNone || y == CharDfa::kNone) return CharDfa::kNone;
    const auto [at, fresh] = ids.try_emplace({x, y}, static_cast<std::uint32_t>(ids.size()));
    if (fresh) todo.emplace_back(x, y);
    return at->second;
  };
  id(0, 0);
  for (std::size_t k = 0; k < todo.size(); ++k) {
    if (todo.size() > CharDfa::kMostStates)
      base::raise(ErrorKind::kUsage, "pattern, format and length together need more than {} states",
                  CharDfa::kMostStates);
    const auto [x, y] = todo[k];
    both.accepts.push_back(a.accepts[x] & b.accepts[y]);
    for (const auto& [i, j] : pairs)
      both.next.push_back(id(a.next[x * a.classes.size() + i], b.next[y * b.classes.size() + j]));
  }
  return both;
}

}  // namespace lemma::text::constraint
