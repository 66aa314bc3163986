// SPDX-License-Identifier: Apache-2.0
#include "text/constraint/automaton.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/raise.hpp"
#include "text/constraint/nfa.hpp"

namespace lemma::text::constraint {
namespace {

using StateSet = std::vector<std::uint32_t>;  // ascending states of the Nfa

struct StateSetHash {
  std::size_t operator()(const StateSet& set) const noexcept {
    std::uint64_t hash = 0x9e3779b97f4a7c15u;
    for (const std::uint32_t state : set)
      hash = (hash ^ state) * 0x2545f4914f6cdd1du + (hash >> 29);
    return static_cast<std::size_t>(hash);
  }
};

/// Makes each rule deterministic: the states of an automaton are sets of states of the Nfa, and a
/// call counts as a letter. Where the sets become too many for a rule, its states stay those of the
/// Nfa: StateStore follows several at a time as well.
class Determiner {
 public:
  explicit Determiner(const Nfa& nfa) : nfa_(nfa), marks_(nfa.state_count, 0) {
    const std::size_t rules = nfa.rules.size();
    made_.starts.resize(rules);
    made_.states.resize(Automaton::kFirstLoop + rules);
    for (std::uint32_t rule = 0; rule < rules; ++rule) {
      const Size before = size();
      budget_ = std::min(pool_, kBudgetOfRule + 20 * own_states(rule));
      const std::size_t given = budget_;
      const bool done = determine(rule);
      pool_ -= given - budget_;
      if (!done) {
        restore(before);
        keep(rule);
      }
      if (made_.states.size() > Automaton::kMostStates ||
          made_.byte_edges.size() + made_.call_edges.size() > 4 * Automaton::kMostStates) {
        too_large();
      }
    }
    made_.root = nfa.root;
  }
  Automaton take() { return std::move(made_); }

 private:
  /// Steps that making one rule deterministic may take besides those of its size, and all together.
  static constexpr std::size_t kBudgetOfRule = 20'000, kBudgetOfAll = 30'000'000;
  static constexpr std::size_t kMostWork = 200'000'000;

  [[noreturn]] static void too_large() {
    base::raise(ErrorKind::kUsage,
                "the grammar is too large: more than {} states, {} edges or {} steps",
                Automaton::kMostStates, 4 * Automaton::kMostStates, kMostWork);
  }

  std::size_t own_states(std::uint32_t rule) {
    ++mark_;
    std::vector<std::uint32_t> work = {nfa_.rules[rule].start};
    std::size_t count = 0;
    while (!work.empty()) {
      const std::uint32_t state = work.back();
      work.pop_back();
      if (!visit(state)) continue;
      ++count;
      for (const NfaEdge& edge : edges(state)) work.push_back(edge.to);
    }
    return count;
  }

  struct Size {
    std::size_t states, bytes, calls;
  };
  Size size() const {
    return {made_.states.size(), made_.byte_edges.size(), made_.call_edges.size()};
  }
  void restore(const Size& size) {
    made_.states.resize(size.states);
    made_.byte_edges.resize(size.bytes);
    made_.call_edges.resize(size.calls);
  }

  /// All that `set` reaches silently and that leads to an end; only states from which something is
  /// read or where the rule ends are kept.
  StateSet closure(std::vector<std::uint32_t> work) {
    ++mark_;
    StateSet set;
    std::erase_if(work, [&](std::uint32_t s) { return !visit(s); });
    std::size_t visited = 0;
    while (!work.empty()) {
      ++visited;
      const std::uint32_t state = work.back();
      work.pop_back();
      bool matters = nfa_.first_edge[state] == nfa_.first_edge[state + 1];  // an end
      for (const NfaEdge& edge : edges(state)) {
        matters = matters || nfa_.reads(edge);
        if (nfa_.passes(edge) && visit(edge.to)) work.push_back(edge.to);
      }
      if (matters) set.push_back(state);
    }
    std::sort(set.begin(), set.end());
    budget_ -= std::min(budget_, visited / 4);
    work_ += visited;
    if (work_ > kMostWork) too_large();
    return set;
  }
  bool visit(std::uint32_t state) {
    if (nfa_.leads[state] == 0 || marks_[state] == mark_) return false;
    marks_[state] = mark_;
    return true;
  }
  std::span<const NfaEdge> edges(std::uint32_t state) const {
    return std::span(nfa_.edges)
        .subspan(nfa_.first_edge[state], nfa_.first_edge[state + 1] - nfa_.first_edge[state]);
  }

  std::uint32_t state_of(StateSet set) {
    const auto [at, fresh] = ids_.try_emplace(std::move(set), made_.states.size());
    if (fresh) {
      made_.states.emplace_back();
      todo_.push_back(&at->first);
      budget_ -= std::min(budget_, 1 + at->first.size());
    }
    return at->second;
  }

  /// False if the rule's sets are too many.
  bool determine(std::uint32_t rule) {
    ids_.clear();
    todo_.clear();
    made_.starts[rule] = state_of(closure({nfa_.rules[rule].start}));
    const std::uint32_t first = made_.starts[rule];
    for (std::size_t i = 0; i < todo_.size(); ++i) {
      if (budget_ == 0) return false;
      expand(rule, static_cast<std::uint32_t>(first + i), *todo_[i]);
    }
    return true;
  }

  /// One letter of a set: a range of bytes or a call, and what it leads to.
  struct Letters {
    std::vector<NfaEdge> bytes;
    std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::vector<std::uint32_t>>
        calls;
  };

  Letters letters_of(const StateSet& set) {
    Letters letters;
    for (const std::uint32_t state : set) {
      for (const NfaEdge& edge : edges(state)) {
        if (!nfa_.reads(edge) || nfa_.leads[edge.to] == 0) continue;
        if (edge.kind == NfaEdge::Kind::kBytes) {
          letters.bytes.push_back(edge);
        } else {
          const NfaCall call = counted(nfa_.calls[edge.call]);
          letters.calls[{call.rule, call.least, call.most}].push_back(edge.to);
        }
      }
    }
    return letters;
  }

  /// Repeats of what may be empty need no least number of texts that are not.
  NfaCall counted(NfaCall call) const {
    if (nfa_.nullable[call.rule] != 0) call.least = 1;
    return call;
  }

  void expand(std::uint32_t rule, std::uint32_t index, const StateSet& set) {
    const bool accepts = std::binary_search(set.begin(), set.end(), nfa_.rules[rule].end);
    const Letters letters = letters_of(set);
    std::set<int> borders;
    for (const NfaEdge& edge : letters.bytes) {
      borders.insert(edge.first);
      borders.insert(edge.last + 1);
    }
    std::vector<ByteEdge> bytes;
    for (auto border = borders.begin(); border != borders.end(); ++border) {
      std::vector<std::uint32_t> targets;
      for (const NfaEdge& edge : letters.bytes) {
        if (edge.first <= *border && *border <= edge.last) targets.push_back(edge.to);
      }
      if (targets.empty()) continue;
      const std::uint32_t target = state_of(closure(std::move(targets)));
      const int last = *std::next(border) - 1;
      if (!bytes.empty() && bytes.back().target == target && bytes.back().last + 1 == *border) {
        bytes.back().last = static_cast<std::uint8_t>(last);
      } else {
        bytes.push_back(
            {static_cast<std::uint8_t>(*border), static_cast<std::uint8_t>(last), target});
      }
    }
    std::vector<CallEdge> calls;
    for (const auto& [call, targets] : letters.calls) {
      const auto [callee, least, most] = call;
      calls.push_back({callee, state_of(closure(targets)), least, most});
    }
    put(index, accepts, bytes, calls);
  }

  void put(std::uint32_t index, bool accepts, const std::vector<ByteEdge>& bytes,
           const std::vector<CallEdge>& calls) {
    AutomatonState& state = made_.states[index];
    state.accepts = accepts;
    state.bytes_begin = static_cast<std::uint32_t>(made_.byte_edges.size());
    made_.byte_edges.insert(made_.byte_edges.end(), bytes.begin(), bytes.end());
    state.bytes_end = static_cast<std::uint32_t>(made_.byte_edges.size());
    state.calls_begin = static_cast<std::uint32_t>(made_.call_edges.size());
    made_.call_edges.insert(made_.call_edges.end(), calls.begin(), calls.end());
    state.calls_end = static_cast<std::uint32_t>(made_.call_edges.size());
  }

  /// The rule without silent edges, state by state.
  void keep(std::uint32_t rule) {
    std::unordered_map<std::uint32_t, std::uint32_t> ids;
    std::vector<std::uint32_t> todo;
    const auto id = [&](std::uint32_t state) {
      const auto [at, fresh] = ids.try_emplace(state, made_.states.size());
      if (fresh) {
        made_.states.emplace_back();
        todo.push_back(state);
      }
      return at->second;
    };
    made_.starts[rule] = id(nfa_.rules[rule].start);
    for (std::size_t i = 0; i < todo.size(); ++i) {
      const StateSet set = closure({todo[i]});
      const bool accepts = std::binary_search(set.begin(), set.end(), nfa_.rules[rule].end);
      const Letters letters = letters_of(set);
      std::vector<ByteEdge> bytes;
      for (const NfaEdge& edge : letters.bytes)
        bytes.push_back({edge.first, edge.last, id(edge.to)});
      std::vector<CallEdge> calls;
      for (const auto& [call, targets] : letters.calls) {
        const auto [callee, least, most] = call;
        for (const std::uint32_t target : targets)
          calls.push_back({callee, id(target), least, most});
      }
      put(ids.at(todo[i]), accepts, bytes, calls);
      if (made_.byte_edges.size() + made_.call_edges.size() > 4 * Automaton::kMostStates) return;
    }
  }

  const Nfa& nfa_;
  Automaton made_;
  std::vector<std::uint32_t> marks_;
  std::uint32_t mark_ = 0;
  std::unordered_map<StateSet, std::uint32_t, StateSetHash> ids_;
  std::vector<const StateSet*> todo_;  // nodes of ids_ stay where they are
  std::size_t budget_ = 0, pool_ = kBudgetOfAll, work_ = 0;
};

void find_classes(Automaton& automaton) {
  std::array<bool, 257> border{};
  for (const ByteEdge& edge : automaton.byte_edges)
    border[edge.first] = border[std::size_t{edge.last} + 1] = true;
  std::uint32_t index = 0;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (byte > 0 && border[byte]) ++index;
    automaton.classes[byte] = static_cast<std::uint8_t>(index);
  }
  automaton.class_count = index + 1;
}

/// Orders the rules by who calls whom at its start, depth first without recursion; a cycle is left
/// recursion.
class Ranker {
 public:
  Ranker(Automaton& automaton, const Nfa& nfa, const Grammar& grammar)
      : automaton_(automaton), nfa_(nfa), grammar_(grammar) {
    const std::size_t rules = automaton.starts.size();
    automaton.ranks.assign(rules, 0);
    visits_.assign(rules, Visit::kNone);
    next_rank_ = static_cast<std::uint32_t>(rules);
    for (std::uint32_t rule = 0; rule < rules; ++rule) {
      if (visits_[rule] == Visit::kNone) visit_from(rule);
    }
  }

 private:
  enum class Visit : std::uint8_t { kNone, kOpen, kDone };

  void visit_from(std::uint32_t rule) {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> path = {{rule, 0}};
    visits_[rule] = Visit::kOpen;
    while (!path.empty()) {
      auto& [current, done] = path.back();
      const AutomatonState& start = automaton_.states[automaton_.starts[current]];
      if (start.calls_begin + done == start.calls_end) {
        visits_[current] = Visit::kDone;
        automaton_.ranks[current] = --next_rank_;
        path.pop_back();
        continue;
      }
      const std::uint32_t callee = automaton_.call_edges[start.calls_begin + done++].rule;
      if (visits_[callee] == Visit::kOpen) refuse(path, callee);
      if (visits_[callee] == Visit::kNone) {
        visits_[callee] = Visit::kOpen;
        path.emplace_back(callee, 0);
      }
    }
  }

  [[noreturn]] void refuse(const std::vector<std::pair<std::uint32_t, std::uint32_t>>& path,
                           std::uint32_t callee) const {
    std::string cycle;
    std::string before;
    bool inside = false;
    for (const auto& [rule, done] : path) {
      inside = inside || rule == callee;
      const std::string& name = grammar_.rules[nfa_.names[rule]].name;
      if (!inside || name == before) continue;
      cycle += name + " -> ";
      before = name;
      if (cycle.size() > 300) {
        cycle += "... -> ";
        break;
      }
    }
    const std::string& name = grammar_.rules[nfa_.names[callee]].name;
    base::raise(ErrorKind::kUsage,
                "rule '{}' is left-recursive: it begins with itself before anything is read "
                "({}{}); put what repeats behind what it repeats",
                name, cycle, name);
  }

  Automaton& automaton_;
  const Nfa& nfa_;
  const Grammar& grammar_;
  std::vector<Visit> visits_;
  std::uint32_t next_rank_ = 0;
};

}  // namespace

std::size_t Automaton::bytes() const noexcept {
  return states.size() * sizeof(AutomatonState) + byte_edges.size() * sizeof(ByteEdge) +
         call_edges.size() * sizeof(CallEdge) + (starts.size() + ranks.size()) * 4;
}

Automaton Automaton::compile(const Grammar& grammar) {
  const Nfa nfa = make_nfa(grammar);
  if (nfa.leads[nfa.rules[nfa.root].start] == 0) {
    base::raise(ErrorKind::kUsage,
                "rule '{}' has no text at all: every way through it needs another one, without end",
                grammar.rules[grammar.root].name);
  }
  Automaton automaton = Determiner(nfa).take();
  find_classes(automaton);
  Ranker(automaton, nfa, grammar);
  return automaton;
}

}  // namespace lemma::text::constraint
