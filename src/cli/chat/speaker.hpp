// SPDX-License-Identifier: Apache-2.0
// Speaker: who answers in a conversation. The engine's one keeps the conversation in the state of
// one session and runs only what is new; tests script their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "lemma/chat.hpp"
#include "lemma/engine.hpp"

namespace lemma::cli::chat {

struct Question {
  const Conversation& conversation;
  Sampling sampling{};
  std::optional<std::uint64_t> seed{};
  std::optional<std::size_t> max_tokens{};
};

enum class Ending : std::uint8_t {
  kEndOfTurn,
  kMaxTokens,
  kContextFull,  ///< no room for more of the answer
  kStopped,      ///< as asked
};

struct Answer {
  Message message{};
  Ending ending = Ending::kEndOfTurn;
  std::size_t kept = 0;     ///< tokens of the prompt whose state was there
  std::size_t entered = 0;  ///< tokens of the prompt that were run
  std::size_t generated = 0;
  std::size_t context_used = 0;
  double prefill_seconds = 0, decode_seconds = 0;
  std::uint64_t seed = 0;
  std::string rerun;  ///< why a part of the conversation so far was run again; empty: it was not
};

class Speaker {
 public:
  using Show = std::function<void(const ChatEvent&)>;
  virtual ~Speaker() = default;
  /// Throws kTemplate for a conversation that the template refuses, kContextFull for one that does
  /// not fit.
  virtual Answer answer(const Question& question, const Show& show, std::stop_token stop) = 0;
  virtual std::size_t count_tokens(std::string_view text) const = 0;
  virtual const ChatCapabilities& capabilities() const noexcept = 0;
  virtual ModelInfo info() const = 0;
};

/// Called with the fraction of a prompt that has been run.
using PromptProgress = std::function<void(double)>;

std::unique_ptr<Speaker> engine_speaker(std::shared_ptr<Engine> engine, ChatTemplate chat,
                                        PromptProgress progress);

}  // namespace lemma::cli::chat
