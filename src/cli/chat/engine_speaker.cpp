// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "base/raise.hpp"
#include "cli/chat/speaker.hpp"
#include "lemma/session.hpp"

namespace lemma::cli::chat {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// The same words; calls get their ids later.
bool same(const Message& a, const Message& b) {
  const auto same_call = [](const ToolCall& x, const ToolCall& y) {
    return x.name == y.name && x.arguments == y.arguments;
  };
  return a.role == b.role && a.parts == b.parts && a.reasoning == b.reasoning &&
         std::equal(a.tool_calls.begin(), a.tool_calls.end(), b.tool_calls.begin(),
                    b.tool_calls.end(), same_call) &&
         a.name == b.name;
}

class EngineSpeaker final : public Speaker {
 public:
  EngineSpeaker(std::shared_ptr<Engine> engine, ChatTemplate chat, PromptProgress progress)
      : engine_(std::move(engine)),
        chat_(std::move(chat)),
        progress_(std::move(progress)),
        session_(engine_->session()) {}

  Answer answer(const Question& question, const Show& show, std::stop_token stop) override {
    const Prompt prompt = chat_.render(question.conversation);
    const std::vector<TokenId> ids = engine_->tokenizer().encode(prompt);
    require_room(ids.size());
    Answer answer;
    answer.message.role = Role::kAssistant;
    const auto begin = Clock::now();
    try {
      enter(ids, question.conversation, prompt, answer, stop);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kCancelled) throw;
      answer.ending = Ending::kStopped;
      answer.context_used = session_.length();
      return answer;
    }
    answer.prefill_seconds = since(begin);
    asked_ = question.conversation.messages;
    written_ = prompt.text();
    const auto generating = Clock::now();
    generate(question, prompt.in_reasoning, show, stop, answer);
    answer.decode_seconds = since(generating);
    answer.context_used = session_.length();
    asked_.push_back(answer.message);
    return answer;
  }

  std::size_t count_tokens(std::string_view text) const override {
    return engine_->tokenizer().encode(text, {.add_special = false}).size();
  }
  const ChatCapabilities& capabilities() const noexcept override { return chat_.capabilities(); }
  ModelInfo info() const override { return engine_->info(); }

 private:
  void require_room(std::size_t tokens) const {
    const std::size_t context = engine_->info().context;
    if (tokens == 0) base::raise(ErrorKind::kTemplate, "the template made no prompt of this");
    if (tokens <= context) return;
    base::raise(ErrorKind::kContextFull,
                "the conversation takes {} tokens and the context holds {}", tokens, context);
  }

  /// Makes the session's timeline equal to `ids`. What it generated stays as it is where the prompt
  /// repeats it; nothing is entered twice that need not be.
  void enter(const std::vector<TokenId>& ids, const Conversation& conversation,
             const Prompt& prompt, Answer& answer, const std::stop_token& stop) {
    const auto past = session_.tokens();
    const std::size_t before = past.size();
    const auto differs = std::mismatch(past.begin(), past.end(), ids.begin(), ids.end());
    std::size_t wish = static_cast<std::size_t>(differs.second - ids.begin());
    const bool ready = wish == ids.size() && wish == before && !session_.logits().empty();
    if (!ready && wish == ids.size()) --wish;  // the last token's logits are wanted
    const RewindResult rewound = session_.rewind(wish);
    if (rewound.length < before && continues(conversation)) {
      if (rewound.length < wish)
        answer.rerun = rewound.reason;
      else if (prompt.text().starts_with(written_))
        answer.rerun = "the answer's text is cut into other tokens as a prompt";
      else
        answer.rerun = "the template writes what came before in another way";
    }
    answer.kept = session_.length();
    answer.entered = ids.size() - answer.kept;
    if (answer.entered == 0) return;
    session_.append(std::span(ids).subspan(answer.kept), {.stop = stop, .progress = progress_});
  }

  /// True if the conversation begins with all that this session has seen of one.
  bool continues(const Conversation& conversation) const {
    const auto& now = conversation.messages;
    return !asked_.empty() && now.size() >= asked_.size() &&
           std::equal(asked_.begin(), asked_.end(), now.begin(), same);
  }

  void generate(const Question& question, bool in_reasoning, const Show& show,
                const std::stop_token& stop, Answer& answer) {
    const Tokenizer& tokenizer = engine_->tokenizer();
    const std::size_t context = engine_->info().context;
    Sampler sampler(question.sampling, question.seed);
    answer.seed = sampler.seed();
    TextStream text = tokenizer.stream(true);
    ChatParser parser(chat_.syntax(),
                      {.in_reasoning = in_reasoning, .tools = question.conversation.tools});
    const auto take = [&](const std::vector<ChatEvent>& events) {
      for (const ChatEvent& event : events) {
        collect(event, answer.message);
        show(event);
      }
    };
    const auto write = [&](const std::string& piece) {
      written_ += piece;
      take(parser.push(piece));
    };
    for (;;) {
      if (stop.stop_requested()) {
        answer.ending = Ending::kStopped;
        break;
      }
      const TokenId id = session_.choose(sampler);
      if (tokenizer.is_end_of_generation(id)) break;
      ++answer.generated;
      write(text.push(id));
      if (answer.generated == question.max_tokens) {
        answer.ending = Ending::kMaxTokens;
        break;
      }
      if (session_.length() == context) {
        answer.ending = Ending::kContextFull;
        break;
      }
      session_.decode(id);
    }
    write(text.finish());
    take(parser.finish());
  }

  static void collect(const ChatEvent& event, Message& message) {
    switch (event.kind) {
      case ChatEvent::Kind::kReasoning:
        message.reasoning += event.text;
        return;
      case ChatEvent::Kind::kContent:
        if (message.parts.empty()) message.parts.emplace_back();
        message.parts[0] += event.text;
        return;
      case ChatEvent::Kind::kToolCall:
        message.tool_calls.push_back(event.call);
        return;
    }
  }

  const std::shared_ptr<Engine> engine_;
  const ChatTemplate chat_;
  const PromptProgress progress_;
  Session session_;
  std::vector<Message> asked_;  ///< the messages that the session holds
  std::string written_;         ///< their text, and the answer's
};

}  // namespace

std::unique_ptr<Speaker> engine_speaker(std::shared_ptr<Engine> engine, ChatTemplate chat,
                                        PromptProgress progress) {
  return std::make_unique<EngineSpeaker>(std::move(engine), std::move(chat), std::move(progress));
}

}  // namespace lemma::cli::chat
