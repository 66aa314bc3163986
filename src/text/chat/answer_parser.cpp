// SPDX-License-Identifier: Apache-2.0
#include "text/chat/answer_parser.hpp"

#include <algorithm>
#include <utility>

#include "text/chat/tool_blocks.hpp"

namespace lemma::text::chat {

void AnswerParser::emit(ChatEvent::Kind kind, std::string_view text) {
  if (text.empty()) return;
  if (events_.empty() || events_.back().kind != kind) events_.push_back({kind, {}, {}});
  events_.back().text += text;
}

void AnswerParser::emit(ToolCall call) {
  events_.push_back({ChatEvent::Kind::kToolCall, {}, std::move(call)});
}

std::size_t partial_marker(std::string_view text, std::string_view marker) {
  for (std::size_t size = std::min(text.size(), marker.size() - 1); size > 0; --size)
    if (marker.starts_with(text.substr(text.size() - size))) return size;
  return 0;
}

namespace {

constexpr std::string_view kBlanks = " \t\r\n";

/// Reasoning between two markers at the start, then content and blocks of tool calls.
class BlockParser : public AnswerParser {
 public:
  BlockParser(ChatSyntax syntax, ChatParserOptions options)
      : syntax_(std::move(syntax)),
        types_(options.tools),
        blocks_(blocks_of(syntax_.tools)),
        place_(options.in_reasoning && !syntax_.reasoning_end.empty() ? Place::kReasoningStart
                                                                      : Place::kStart) {}

  void take(std::string_view text, bool final) override {
    buffer_ += text;
    // A block that waits for its end cannot have found it in text without a closing sign.
    if (waiting_ && !final && text.find_first_of("}>])`") == std::string_view::npos) return;
    waiting_ = false;
    while (step(final)) {
    }
    if (final) emit(ChatEvent::Kind::kContent, std::exchange(blanks_, {}));
  }

 private:
  enum class Place : std::uint8_t {
    kStart,           ///< nothing but white space so far
    kReasoningStart,  ///< inside the reasoning, nothing but white space so far
    kReasoning,
    kLayout,   ///< behind reasoning or a call: white space is layout
    kContent,  ///< behind content
  };

  /// One step; false where more text is needed.
  bool step(bool final) {
    switch (place_) {
      case Place::kStart:
        return start(final);
      case Place::kReasoningStart:
        return reasoning_start(final);
      case Place::kReasoning:
        return reasoning(final);
      default:
        return content(final);
    }
  }

  void drop_blanks() { buffer_.erase(0, buffer_.find_first_not_of(kBlanks)); }

  /// True if `marker` stands at `at`; nothing if it may yet.
  std::optional<bool> stands(std::string_view marker, std::size_t at, bool final) const {
    const std::string_view here = std::string_view(buffer_).substr(at, marker.size());
    if (here == marker) return true;
    if (!final && marker.starts_with(here)) return std::nullopt;
    return false;
  }

  bool start(bool final) {
    const std::size_t at = std::min(buffer_.find_first_not_of(kBlanks), buffer_.size());
    const std::string& begin = syntax_.reasoning_begin;
    if (!begin.empty()) {
      const auto found = stands(begin, at, final);
      if (!found) return false;
      if (*found) {
        buffer_.erase(0, at + begin.size());
        blanks_.clear();
        opened_ = true;
        place_ = Place::kReasoningStart;
        return true;
      }
    }
    return content(final);
  }

  bool reasoning_start(bool final) {
    drop_blanks();
    if (buffer_.empty()) return false;
    if (!opened_) {
      // Some models repeat the marker that the prompt ended with.
      const auto found = stands(syntax_.reasoning_begin, 0, final);
      if (!found) return false;
      opened_ = true;
      if (*found) {
        buffer_.erase(0, syntax_.reasoning_begin.size());
        return true;
      }
    }
    place_ = Place::kReasoning;
    return true;
  }

  bool reasoning(bool final) {
    const std::size_t end = buffer_.find(syntax_.reasoning_end);
    if (end != std::string::npos) {
      pass(ChatEvent::Kind::kReasoning, end);
      blanks_.clear();
      buffer_.erase(0, syntax_.reasoning_end.size());
      place_ = Place::kLayout;
      return true;
    }
    const std::size_t held = final ? 0 : partial_marker(buffer_, syntax_.reasoning_end);
    pass(ChatEvent::Kind::kReasoning, buffer_.size() - held);
    if (final) blanks_.clear();
    return false;
  }

  /// Passes the first `size` bytes on, but holds back the white space at their end.
  void pass(ChatEvent::Kind kind, std::size_t size) {
    const std::string text = blanks_ + buffer_.substr(0, size);
    buffer_.erase(0, size);
    const std::size_t last = text.find_last_not_of(kBlanks);
    const std::size_t solid = last == std::string::npos ? 0 : last + 1;
    emit(kind, std::string_view(text).substr(0, solid));
    blanks_ = text.substr(solid);
  }

  void pass_content(std::size_t size) {
    if (place_ == Place::kLayout) {
      const std::size_t blank = std::min(buffer_.find_first_not_of(kBlanks), size);
      buffer_.erase(0, blank);
      size -= blank;
    }
    const bool solid = std::string_view(buffer_).substr(0, size).find_first_not_of(kBlanks) !=
                       std::string_view::npos;
    pass(ChatEvent::Kind::kContent, size);
    if (solid) place_ = Place::kContent;
  }

  /// The first block that opens in the buffer, and where.
  std::pair<const Block*, std::size_t> find_block() const {
    std::pair<const Block*, std::size_t> first = {nullptr, buffer_.size()};
    for (const Block& block : blocks_) {
      const std::size_t at = buffer_.find(block.open);
      if (at >= first.second) continue;
      if (block.at_start && !only_blanks_before(at)) continue;
      first = {&block, at};
    }
    return first;
  }

  bool only_blanks_before(std::size_t at) const {
    return place_ != Place::kContent && buffer_.find_first_not_of(kBlanks) >= at;
  }

  std::size_t held_for_markers() const {
    std::size_t held = 0;
    for (const Block& block : blocks_) held = std::max(held, partial_marker(buffer_, block.open));
    return held;
  }

  bool content(bool final) {
    const auto [block, at] = find_block();
    if (!block) {
      pass_content(buffer_.size() - (final ? 0 : held_for_markers()));
      return false;
    }
    BlockResult result = block->read(std::string_view(buffer_).substr(at), types_, final);
    // What stands in front is content whatever becomes of the block, but not its last blanks.
    if (at > 0) pass_content(at);
    switch (result.scan) {
      case Scan::kMore:
        waiting_ = true;
        return false;
      case Scan::kMalformed:
        pass_content(block->open.size());
        return true;
      case Scan::kDone:
        break;
    }
    blanks_.clear();
    buffer_.erase(0, result.end);
    for (ToolCall& call : result.calls) emit(std::move(call));
    place_ = Place::kLayout;
    return true;
  }

  ChatSyntax syntax_;
  ToolTypes types_;
  std::vector<Block> blocks_;
  std::string buffer_;
  std::string blanks_;  ///< white space behind content or reasoning, not passed on yet
  Place place_;
  bool opened_ = false;   ///< the marker in front of the reasoning was seen, or cannot come
  bool waiting_ = false;  ///< the buffer is a block whose end has not come
};

}  // namespace

std::unique_ptr<AnswerParser> make_block_parser(ChatSyntax syntax, ChatParserOptions options) {
  return std::make_unique<BlockParser>(std::move(syntax), std::move(options));
}

}  // namespace lemma::text::chat

namespace lemma {

struct ChatParser::Impl {
  std::unique_ptr<text::chat::AnswerParser> parser;
};

ChatParser::ChatParser(ChatSyntax syntax, ChatParserOptions options)
    : impl_(std::make_unique<Impl>()) {
  impl_->parser = syntax.tools == ToolSyntax::kHarmony
                      ? text::chat::make_harmony_parser(std::move(options))
                      : text::chat::make_block_parser(std::move(syntax), std::move(options));
}

ChatParser::ChatParser(ChatParser&&) noexcept = default;
ChatParser& ChatParser::operator=(ChatParser&&) noexcept = default;
ChatParser::~ChatParser() = default;

std::vector<ChatEvent> ChatParser::push(std::string_view text) {
  impl_->parser->take(text, false);
  return impl_->parser->events();
}

std::vector<ChatEvent> ChatParser::finish() {
  impl_->parser->take({}, true);
  return impl_->parser->events();
}

}  // namespace lemma
