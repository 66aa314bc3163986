// SPDX-License-Identifier: Apache-2.0
// PreTokenizer: cuts text into the words inside which byte-pair encoding merges. The published
// rules are lists of regular expressions; each in turn cuts the pieces of the one before into its
// matches and what lies between them. The expressions are data (pretokenizer_rules.cpp), run by
// text/regex in linear time and constant stack. Immutable and thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/regex/regex.hpp"

namespace lemma::text {

/// Buffers that are reused between texts.
struct SplitScratch {
  regex::Scratch regex;
  std::vector<regex::Match> matches;
  std::vector<std::uint32_t> pieces, finer;
};

/// What `tokenizer.ggml.pre` stands for.
struct PreTokenizerRules {
  std::string_view name;
  std::span<const std::string_view> expressions;
  /// A word that is a token as it stands becomes that token, whatever the merges say.
  bool ignores_merges = false;
  bool adds_bos = false;  ///< files of this kind want BOS unless they say otherwise
  bool adds_separator = false;
  /// Blanks become U+2581 and characters merge, as in SentencePiece; else bytes merge.
  bool spells_blanks = false;
};

class PreTokenizer {
 public:
  /// The rules of that name. Throws kUnsupported listing the known ones.
  static const PreTokenizerRules& rules_named(std::string_view name);
  /// All names, in alphabetical order.
  static std::vector<std::string_view> names();

  /// Compiled rules; those of one name are compiled once and shared by all.
  static const PreTokenizer& named(std::string_view name);
  explicit PreTokenizer(const PreTokenizerRules& rules);

  /// Appends to `ends` the byte offset at which each word of `text` ends, ascending; the last one
  /// is the text's end. Nothing is dropped, and an empty text gives no words.
  void split(std::string_view text, SplitScratch& scratch, std::vector<std::uint32_t>& ends) const;

  const PreTokenizerRules& rules() const noexcept { return *rules_; }

 private:
  const PreTokenizerRules* rules_;
  std::vector<regex::Regex> stages_;
};

/// All rules, sorted by name.
std::span<const PreTokenizerRules> pre_tokenizer_rules() noexcept;

}  // namespace lemma::text
