// SPDX-License-Identifier: Apache-2.0
#include "text/pretokenizer.hpp"

#include <fmt/ranges.h>

#include <map>
#include <memory>
#include <mutex>

#include "base/raise.hpp"

namespace lemma::text {

const PreTokenizerRules& PreTokenizer::rules_named(std::string_view name) {
  for (const PreTokenizerRules& rules : pre_tokenizer_rules()) {
    if (rules.name == name) return rules;
  }
  base::raise(ErrorKind::kUnsupported, "unknown pre-tokenizer '{}' (tokenizer.ggml.pre); known: {}",
              name, fmt::join(names(), ", "));
}

std::vector<std::string_view> PreTokenizer::names() {
  std::vector<std::string_view> all;
  for (const PreTokenizerRules& rules : pre_tokenizer_rules()) all.push_back(rules.name);
  return all;
}

const PreTokenizer& PreTokenizer::named(std::string_view name) {
  const PreTokenizerRules& rules = rules_named(name);
  // Names that share their expressions share the tables as well.
  static std::mutex mutex;
  static std::map<const PreTokenizerRules*, std::unique_ptr<const PreTokenizer>> compiled;
  const std::lock_guard lock(mutex);
  std::unique_ptr<const PreTokenizer>& entry = compiled[&rules];
  if (!entry) entry = std::make_unique<const PreTokenizer>(rules);
  return *entry;
}

PreTokenizer::PreTokenizer(const PreTokenizerRules& rules) : rules_(&rules) {
  for (const std::string_view expression : rules.expressions) {
    stages_.push_back(regex::Regex::compile(expression));
  }
}

void PreTokenizer::split(std::string_view text, SplitScratch& scratch,
                         std::vector<std::uint32_t>& ends) const {
  if (text.empty()) return;
  scratch.pieces.assign(1, static_cast<std::uint32_t>(text.size()));
  for (const regex::Regex& stage : stages_) {
    scratch.finer.clear();
    std::uint32_t begin = 0;
    for (const std::uint32_t end : scratch.pieces) {
      scratch.matches.clear();
      stage.find_all(text.substr(begin, end - begin), scratch.regex, scratch.matches);
      std::uint32_t last = begin;
      for (const regex::Match& match : scratch.matches) {
        if (begin + match.begin > last) scratch.finer.push_back(begin + match.begin);
        if (match.end > match.begin) scratch.finer.push_back(begin + match.end);
        last = begin + match.end;
      }
      if (last < end) scratch.finer.push_back(end);
      begin = end;
    }
    scratch.pieces.swap(scratch.finer);
  }
  ends.insert(ends.end(), scratch.pieces.begin(), scratch.pieces.end());
}

}  // namespace lemma::text
