// SPDX-License-Identifier: Apache-2.0
// ModelFacts: what generations and sessions must know about a model to check requests and to read
// its tokens; nothing with which they could run it. Immutable and shared.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lemma/tokenizer.hpp"
#include "text/constraint/program_cache.hpp"
#include "text/tokenizer.hpp"

namespace lemma::runtime {

struct ModelFacts {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::uint32_t vocabulary = 0;  ///< V: logits of a row
  std::uint32_t context = 0;     ///< positions of a sequence
  /// True where entered and generated tokens are computed by one definition, so that a prefix may
  /// be reused whatever its tokens' classes are.
  bool class_ignored = false;
  bool has_head = true;        ///< false: the model ends in hidden states
  bool whole_prompts = false;  ///< rows look ahead, so that no history can be continued
  /// Of constraints that requests came with; null: each is compiled for itself.
  std::shared_ptr<text::constraint::ProgramCache> constraints = nullptr;
};

/// Throws kUnsupported where the model cannot continue a text; `what` names who asks.
void check_continues(const char* what, const ModelFacts& facts);

/// Throws kUsage, naming index, id and range, if a token is outside the vocabulary; `what` names
/// the list.
void check_tokens(const char* what, std::span<const TokenId> tokens, const ModelFacts& facts);

/// Throws kContextFull naming both numbers if `tokens` tokens exceed the context.
void check_context(const char* what, std::size_t tokens, const ModelFacts& facts);

}  // namespace lemma::runtime
