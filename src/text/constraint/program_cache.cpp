// SPDX-License-Identifier: Apache-2.0
#include "text/constraint/program_cache.hpp"

#include <algorithm>

#include "base/raise.hpp"
#include "text/constraint/gbnf.hpp"
#include "text/constraint/json_schema.hpp"

namespace lemma::text::constraint {
namespace {

constexpr std::uint32_t kMostBlanksBehindMarker = 4;

/// All that a program depends on, as one text.
std::string key_of(const Constraint& constraint) {
  std::string key;
  key += constraint.kind == Constraint::Kind::kGrammar ? 'g' : constraint.compact ? 'c' : 's';
  key += constraint.after.empty() ? '0' : '1';
  return key + constraint.text;
}

Grammar grammar_of(const Constraint& constraint) {
  const bool is_grammar = constraint.kind == Constraint::Kind::kGrammar;
  if (is_grammar && constraint.compact)
    base::raise(ErrorKind::kUsage, "constraint: 'compact' has no effect on a grammar");
  Grammar grammar = is_grammar ? parse_gbnf(constraint.text)
                               : schema_grammar(constraint.text, {.compact = constraint.compact});
  if (!constraint.after.empty()) {
    const regex::CharSet blanks = {{'\t', '\n'}, {'\r', '\r'}, {' ', ' '}};
    grammar.rules.push_back(
        {"behind the marker",
         sequence({repeat(one_of(blanks), 0, kMostBlanksBehindMarker), rule_of(grammar.root)})});
    grammar.root = static_cast<std::uint32_t>(grammar.rules.size() - 1);
  }
  return grammar;
}

}  // namespace

std::shared_ptr<const TokenTrie> ProgramCache::trie() {
  const std::lock_guard lock(mutex_);
  if (!trie_) trie_ = std::make_shared<const TokenTrie>(*tokenizer_);
  return trie_;
}

std::shared_ptr<const Program> ProgramCache::get(const Constraint& constraint) {
  std::string key = key_of(constraint);
  const auto is_same = [&](const Entry& entry) { return entry.first == key; };
  {
    const std::lock_guard lock(mutex_);
    const auto known = std::find_if(entries_.begin(), entries_.end(), is_same);
    if (known != entries_.end()) {
      entries_.splice(entries_.begin(), entries_, known);
      return entries_.front().second;
    }
  }
  auto made = std::make_shared<const Program>(grammar_of(constraint), trie());
  const std::lock_guard lock(mutex_);
  const auto other = std::find_if(entries_.begin(), entries_.end(), is_same);
  if (other != entries_.end()) return other->second;  // someone else was as quick
  entries_.emplace_front(std::move(key), made);
  std::size_t bytes = 0;
  std::size_t count = 0;
  for (auto entry = entries_.begin(); entry != entries_.end(); ++count) {
    bytes += entry->first.size() + entry->second->bytes();
    const bool keep = count == 0 || (count < kMostPrograms && bytes <= kMostBytes);
    entry = keep ? std::next(entry) : entries_.erase(entry);
  }
  return made;
}

std::unique_ptr<Matcher> ProgramCache::matcher(const Constraint& constraint) {
  for (const std::string& trigger : constraint.triggers) {
    if (trigger.empty())
      base::raise(ErrorKind::kUsage, "constraint: an empty trigger would come at once");
  }
  return std::make_unique<Matcher>(get(constraint), tokenizer_,
                                   Beginning{constraint.after, constraint.triggers});
}

std::size_t ProgramCache::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace lemma::text::constraint
