// SPDX-License-Identifier: Apache-2.0
#include "runtime/model_facts.hpp"

#include "base/raise.hpp"

namespace lemma::runtime {

void check_tokens(const char* what, std::span<const TokenId> tokens, const ModelFacts& facts) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || std::uint32_t(tokens[i]) >= facts.vocabulary) {
      base::raise(ErrorKind::kUsage, "{}: token {} of {}: expected an id from 0 to {}, found {}",
                  what, i, tokens.size(), facts.vocabulary - 1, tokens[i]);
    }
  }
}

void check_continues(const char* what, const ModelFacts& facts) {
  if (!facts.has_head) {
    base::raise(ErrorKind::kUnsupported,
                "{}: this model ends in hidden states; it has no logits to choose a token from",
                what);
  }
  if (facts.whole_prompts) {
    base::raise(ErrorKind::kUnsupported,
                "{}: the rows of this model see the whole prompt, so that no text can be continued",
                what);
  }
}

void check_context(const char* what, std::size_t tokens, const ModelFacts& facts) {
  if (tokens > facts.context) {
    base::raise(ErrorKind::kContextFull, "{} has {} tokens, but the context holds {}", what, tokens,
                facts.context);
  }
}

}  // namespace lemma::runtime
