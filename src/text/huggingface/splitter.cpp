// SPDX-License-Identifier: Apache-2.0
#include "text/huggingface/splitter.hpp"

#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/raise.hpp"
#include "text/blanks.hpp"
#include "text/byte_alphabet.hpp"
#include "text/huggingface/json_fields.hpp"
#include "text/huggingface/pattern.hpp"
#include "text/unicode.hpp"

namespace lemma::text::huggingface {
namespace {

constexpr std::string_view kWhere = "pre_tokenizer";
constexpr int kDeepest = 20;
constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// \w+|[^\w\s]+ where \w is what the reference's other expression engine means by it.
constexpr std::string_view kWordsAndSigns =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}]+)"
    R"(|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}\s]+)";

/// What becomes of the matches at which a text is cut.
enum class Behavior : std::uint8_t {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,  ///< neighbouring matches make one piece
};

Behavior behavior_of(const std::string& name) {
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  unknown_type(name, "a Split behavior",
               "Contiguous, Isolated, MergedWithNext, MergedWithPrevious, Removed");
}

/// A stretch between or at matches, and whether it was a match.
struct Part {
  std::uint32_t begin, end;
  bool match;
};

std::vector<Part> merge_parts(const std::vector<Part>& parts, Behavior behavior) {
  std::vector<Part> out;
  switch (behavior) {
    case Behavior::kIsolated:
      return parts;
    case Behavior::kRemoved:
      for (const Part& part : parts) {
        if (!part.match) out.push_back(part);
      }
      return out;
    case Behavior::kContiguous:
      for (const Part& part : parts) {
        if (!out.empty() && out.back().match == part.match) {
          out.back().end = part.end;
        } else {
          out.push_back(part);
        }
      }
      return out;
    case Behavior::kMergedWithPrevious:
      for (std::size_t i = 0; i < parts.size(); ++i) {
        if (i > 0 && parts[i].match && !parts[i - 1].match) {
          out.back().end = parts[i].end;
        } else {
          out.push_back(parts[i]);
        }
      }
      return out;
    case Behavior::kMergedWithNext:
      for (std::size_t i = 0; i < parts.size(); ++i) {
        if (i > 0 && parts[i - 1].match && !parts[i].match) {
          out.back().end = parts[i].end;
        } else {
          out.push_back(parts[i]);
        }
      }
      return out;
  }
  return out;
}

/// Appends all matches in a text, ascending, none overlapping.
using Finder = std::function<void(std::string_view, regex::Scratch&, std::vector<regex::Match>&)>;

/// Cuts every piece at what `find` finds.
class Cut final : public SplitStep {
 public:
  Cut(Finder find, Behavior behavior, bool invert = false)
      : find_(std::move(find)), behavior_(behavior), invert_(invert) {}

  void run(Pieces& pieces) const override {
    std::vector<Piece> finer;
    std::vector<Part> parts;
    for (const Piece& piece : pieces.list) {
      std::vector<regex::Match>& matches = pieces.scratch->matches;
      matches.clear();
      find_(pieces.text.substr(piece.begin, piece.end - piece.begin), pieces.scratch->regex,
            matches);
      parts.clear();
      std::uint32_t last = piece.begin;
      for (const regex::Match& match : matches) {
        if (piece.begin + match.begin > last) {
          parts.push_back({last, piece.begin + match.begin, invert_});
        }
        parts.push_back({piece.begin + match.begin, piece.begin + match.end, !invert_});
        last = piece.begin + match.end;
      }
      if (last < piece.end) parts.push_back({last, piece.end, invert_});
      const auto append = [&](const std::vector<Part>& all) {
        for (const Part& part : all) {
          if (part.begin == part.end) continue;
          finer.push_back({part.begin, part.end, piece.at_start && part.begin == piece.begin});
        }
      };
      if (behavior_ == Behavior::kIsolated) {
        append(parts);
      } else {
        append(merge_parts(parts, behavior_));
      }
    }
    pieces.list = std::move(finer);
  }

 private:
  Finder find_;
  Behavior behavior_;
  bool invert_;
};

/// Matches every single character for which `holds`.
template <typename Predicate>
Finder each_character(Predicate holds) {
  return [holds](std::string_view text, regex::Scratch& scratch, std::vector<regex::Match>& out) {
    scratch.steps += text.size();
    std::uint32_t at = 0;
    for_each_character(text, [&](char32_t c, std::string_view bytes) {
      const auto end = static_cast<std::uint32_t>(at + bytes.size());
      if (holds(c)) out.push_back({at, end});
      at = end;
    });
  };
}

Finder pattern_finder(const Json& json, std::string_view name) {
  const auto pattern = std::make_shared<const Pattern>(member(json, name, kWhere), kWhere);
  return [pattern](std::string_view text, regex::Scratch& scratch, std::vector<regex::Match>& out) {
    pattern->find_all(text, scratch, out);
  };
}

Finder expression_finder(std::string_view expression) {
  const auto compiled = std::make_shared<const regex::Regex>(regex::Regex::compile(expression));
  return [compiled](std::string_view text, regex::Scratch& scratch,
                    std::vector<regex::Match>& out) { compiled->find_all(text, scratch, out); };
}

/// Rewrites every piece by itself: `rewrite(piece, at_start)` gives the new text.
template <typename Rewrite>
void rewrite_pieces(Pieces& pieces, const Rewrite& rewrite) {
  std::string text;
  text.reserve(pieces.text.size());
  for (Piece& piece : pieces.list) {
    const auto begin = static_cast<std::uint32_t>(text.size());
    rewrite(pieces.text.substr(piece.begin, piece.end - piece.begin), piece.at_start, text);
    piece.begin = begin;
    piece.end = static_cast<std::uint32_t>(text.size());
  }
  pieces.owned = std::move(text);
  pieces.text = pieces.owned;
}

/// A blank in front of every piece that has none.
class PrefixBlank final : public SplitStep {
 public:
  void run(Pieces& pieces) const override {
    rewrite_pieces(pieces, [](std::string_view piece, bool, std::string& out) {
      if (!piece.starts_with(' ')) out += ' ';
      out += piece;
    });
  }
};

class SpellBytes final : public SplitStep {
 public:
  void run(Pieces& pieces) const override {
    rewrite_pieces(pieces, [](std::string_view piece, bool, std::string& out) {
      out += spelling_of_bytes(piece);
    });
  }
};

/// Blanks become `replacement`, with one in front as the scheme says.
class Metaspace final : public SplitStep {
 public:
  explicit Metaspace(const Json& json) : replacement_(string_of(json, "replacement", kWhere)) {
    const bool prefix = boolean_or(json, "add_prefix_space", kWhere, true);
    const std::string scheme =
        optional_string(json, "prepend_scheme", kWhere).value_or(prefix ? "always" : "never");
    if (scheme != "always" && scheme != "never" && scheme != "first") {
      unknown_type(scheme, "a Metaspace prepend_scheme", "always, first, never");
    }
    always_ = scheme == "always";
    first_ = scheme == "first";
  }

  void run(Pieces& pieces) const override {
    rewrite_pieces(pieces, [&](std::string_view piece, bool at_start, std::string& out) {
      const bool has_one = piece.starts_with(' ') || piece.starts_with(replacement_);
      if (!has_one && (always_ || (first_ && at_start))) out += replacement_;
      for (const char c : piece) {
        if (c == ' ') {
          out += replacement_;
        } else {
          out += c;
        }
      }
    });
  }

  const std::string& replacement() const noexcept { return replacement_; }

 private:
  std::string replacement_;
  bool always_ = false, first_ = false;
};

Finder literal_finder(std::string literal) {
  Json json;
  json["pattern"] = {{"String", std::move(literal)}};
  return pattern_finder(json, "pattern");
}

using Steps = std::vector<std::unique_ptr<const SplitStep>>;

void add_cut(Steps& steps, Finder finder, Behavior behavior, bool invert = false) {
  steps.push_back(std::make_unique<const Cut>(std::move(finder), behavior, invert));
}

void add_byte_level(const Json& json, Steps& steps) {
  if (boolean_or(json, "add_prefix_space", kWhere, true)) {
    steps.push_back(std::make_unique<const PrefixBlank>());
  }
  if (boolean_or(json, "use_regex", kWhere, true)) {
    add_cut(steps, expression_finder(kGpt2Words), Behavior::kIsolated);
  }
  steps.push_back(std::make_unique<const SpellBytes>());
}

void add_metaspace(const Json& json, Steps& steps) {
  auto metaspace = std::make_unique<const Metaspace>(json);
  const std::string replacement = metaspace->replacement();
  steps.push_back(std::move(metaspace));
  if (boolean_or(json, "split", kWhere, true)) {
    add_cut(steps, literal_finder(replacement), Behavior::kMergedWithNext);
  }
}

void add_step(const Json& json, Steps& steps, int depth) {
  if (json.is_null()) return;
  if (depth > kDeepest) {
    base::raise(ErrorKind::kBadFile, "tokenizer.json: pre-tokenizers nest too deep");
  }
  const std::string type = string_of(json, "type", kWhere);
  const auto named_behavior = [&](const char* fallback) {
    return behavior_of(optional_string(json, "behavior", kWhere).value_or(fallback));
  };
  if (type == "Sequence") {
    for (const Json& step : array_of(json, "pretokenizers", kWhere)) {
      add_step(step, steps, depth + 1);
    }
  } else if (type == "ByteLevel") {
    add_byte_level(json, steps);
  } else if (type == "Split") {
    add_cut(steps, pattern_finder(json, "pattern"), named_behavior("Isolated"),
            boolean_or(json, "invert", kWhere, false));
  } else if (type == "Metaspace") {
    add_metaspace(json, steps);
  } else if (type == "Digits") {
    add_cut(steps, each_character(is_number),
            boolean_or(json, "individual_digits", kWhere, false) ? Behavior::kIsolated
                                                                 : Behavior::kContiguous);
  } else if (type == "Whitespace") {
    add_cut(steps, expression_finder(kWordsAndSigns), Behavior::kRemoved, true);
  } else if (type == "WhitespaceSplit") {
    add_cut(steps, each_character(is_white_space), Behavior::kRemoved);
  } else if (type == "Punctuation") {
    add_cut(steps, each_character(is_punctuation), named_behavior("Isolated"));
  } else if (type == "BertPreTokenizer") {
    add_cut(steps, each_character(is_white_space), Behavior::kRemoved);
    add_cut(steps, each_character(is_punctuation), Behavior::kIsolated);
  } else if (type == "CharDelimiterSplit") {
    add_cut(steps, literal_finder(string_of(json, "delimiter", kWhere)), Behavior::kRemoved);
  } else {
    unknown_type(type, kWhere,
                 "BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits, Metaspace, Punctuation, "
                 "Sequence, Split, Whitespace, WhitespaceSplit");
  }
}

}  // namespace

Splitter::Splitter(const Json& json, bool bytes_last) {
  add_step(json, steps_, 0);
  if (bytes_last && !steps_.empty() &&
      dynamic_cast<const SpellBytes*>(steps_.back().get()) != nullptr) {
    steps_.pop_back();
    ends_in_bytes_ = true;
  }
}

}  // namespace lemma::text::huggingface
