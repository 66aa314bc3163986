// SPDX-License-Identifier: Apache-2.0
// The harmony format: an answer is a row of messages, each with a header (role, channel, recipient)
// and a body. Analysis is reasoning; what has a recipient is a tool call; the rest is content.
#include <algorithm>
#include <array>
#include <string>

#include "text/chat/answer_parser.hpp"
#include "text/chat/tool_blocks.hpp"

namespace lemma::text::chat {
namespace {

constexpr std::string_view kStart = "<|start|>", kChannel = "<|channel|>", kMessage = "<|message|>",
                           kConstrain = "<|constrain|>", kFunctions = "functions.";
/// What ends a body. The last one opens the next message without an end in between.
constexpr std::array<std::string_view, 4> kEnds = {"<|end|>", "<|call|>", "<|return|>", kStart};
constexpr std::size_t kLongestHeader = 512;

class HarmonyParser : public AnswerParser {
 public:
  explicit HarmonyParser(const ChatParserOptions& options) {
    if (!options.in_reasoning) return;
    place_ = Place::kBody;
    kind_ = ChatEvent::Kind::kReasoning;
  }

  void take(std::string_view text, bool final) override {
    buffer_ += text;
    while (place_ == Place::kHeader ? header(final) : body(final)) {
    }
  }

 private:
  enum class Place : std::uint8_t { kHeader, kBody };

  /// Whether the buffer can be a header: it begins as one, as far as it goes.
  bool begins_as_header() const {
    const std::string_view text = std::string_view(buffer_).substr(
        std::min(buffer_.find_first_not_of(" \n"), buffer_.size()));
    for (const std::string_view begin : {kStart, kChannel, kMessage, kConstrain,
                                         std::string_view("to="), std::string_view("assistant")}) {
      const std::size_t size = std::min(text.size(), begin.size());
      if (text.substr(0, size) == begin.substr(0, size)) return true;
    }
    return false;
  }

  bool header(bool final) {
    if (buffer_.empty()) return false;
    const std::size_t end = buffer_.find(kMessage);
    const bool possible = begins_as_header() && std::min(end, buffer_.size()) <= kLongestHeader;
    if (possible && end == std::string::npos) {
      if (final) emit(ChatEvent::Kind::kContent, std::exchange(buffer_, {}));
      return false;
    }
    raw_.clear();
    recipient_.clear();
    kind_ = ChatEvent::Kind::kContent;
    if (possible) {
      raw_ = buffer_.substr(0, end + kMessage.size());
      read_header(std::string_view(buffer_).substr(0, end));
      buffer_.erase(0, raw_.size());
    }
    place_ = Place::kBody;
    return true;
  }

  void read_header(std::string_view header) {
    const auto word_behind = [&](std::string_view mark) {
      const std::size_t at = header.find(mark);
      if (at == std::string_view::npos) return std::string_view();
      const std::string_view rest = header.substr(at + mark.size());
      return rest.substr(0, rest.find_first_of(" <\n"));
    };
    const std::string_view channel = word_behind(kChannel), recipient = word_behind("to=");
    if (channel == "analysis") kind_ = ChatEvent::Kind::kReasoning;
    if (recipient.empty() || recipient == "user" || recipient == "assistant" || recipient == "all")
      return;
    const std::string_view name =
        recipient.starts_with(kFunctions) ? recipient.substr(kFunctions.size()) : recipient;
    if (name.empty()) return;  // no function of the namespace: what follows is content
    kind_ = ChatEvent::Kind::kToolCall;
    recipient_ = name;
  }

  bool body(bool final) {
    std::size_t end = std::string::npos, marker = 0, held = 0;
    for (const std::string_view each : kEnds) {
      const std::size_t at = buffer_.find(each);
      held = std::max(held, partial_marker(buffer_, each));
      if (at >= end) continue;
      end = at;
      marker = each.size();
    }
    const bool ends = end != std::string::npos;
    if (kind_ == ChatEvent::Kind::kToolCall) {
      if (!ends && !final) return false;
      call(buffer_.substr(0, end));
    } else {
      emit(kind_,
           std::string_view(buffer_).substr(0, ends ? end : buffer_.size() - (final ? 0 : held)));
    }
    if (!ends) {
      buffer_.erase(0, final ? buffer_.size() : buffer_.size() - held);
      return false;
    }
    // A start marker belongs to the next header.
    const bool keeps = std::string_view(buffer_).substr(end).starts_with(kStart);
    buffer_.erase(0, keeps ? end : end + marker);
    place_ = Place::kHeader;
    return true;
  }

  void call(const std::string& text) {
    const std::size_t begin = std::min(text.find_first_not_of(" \n"), text.size());
    const std::size_t size = text.find_last_not_of(" \n") + 1 - begin;
    const std::string arguments = begin < text.size() ? text.substr(begin, size) : "{}";
    if (is_arguments(arguments))
      emit(ToolCall{"", recipient_, arguments});
    else
      emit(ChatEvent::Kind::kContent, raw_ + text);
  }

  std::string buffer_, raw_, recipient_;
  Place place_ = Place::kHeader;
  ChatEvent::Kind kind_ = ChatEvent::Kind::kContent;
};

}  // namespace

std::unique_ptr<AnswerParser> make_harmony_parser(ChatParserOptions options) {
  return std::make_unique<HarmonyParser>(options);
}

}  // namespace lemma::text::chat
