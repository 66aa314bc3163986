// SPDX-License-Identifier: Apache-2.0
// TextStop: finds stop strings in a text that arrives in pieces. Text is passed on as soon as it
// can no longer be part of a stop string, so nothing of one is ever sent. The match that is
// complete first wins; of several that end at the same byte the longest one, so that nothing of it
// leaks. How the text was cut into pieces makes no difference. Only text that was pushed counts:
// what stands in the prompt is never seen here.
//
//   TextStop stop({"\n\n", "User:"});
//   out << stop.push(piece);
//   if (stop.matched()) ...            // what followed the match is dropped
//   out << stop.finish();              // otherwise: what was held back
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lemma::runtime {

class TextStop {
 public:
  /// Throws kUsage for a stop string that is empty or not UTF-8: neither could ever match.
  explicit TextStop(const std::vector<std::string>& stops);

  /// Takes a piece of text and returns what is certain now.
  std::string push(std::string_view piece);
  /// Returns what was held back; the text is at its end.
  std::string finish();
  /// The stop string that was found.
  const std::optional<std::string>& matched() const noexcept { return matched_; }

 private:
  /// Knuth, Morris, Pratt: `fallback[i]` is the length of the longest proper suffix of the first i
  /// bytes that is a prefix of the text as well; `length` bytes match at the moment.
  struct Pattern {
    std::string text;
    std::vector<std::size_t> fallback;
    std::size_t length = 0;
  };
  static bool advance(Pattern& pattern, char byte) noexcept;

  std::vector<Pattern> patterns_;
  std::string held_;  ///< the longest run at the end of the text that a stop string begins with
  std::optional<std::string> matched_;
};

}  // namespace lemma::runtime
