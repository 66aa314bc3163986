// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>

#include "base/raise.hpp"
#include "lemma/chat.hpp"
#include "text/chat/capabilities.hpp"
#include "text/chat/conversation.hpp"
#include "text/chat/syntax.hpp"
#include "text/jinja/json.hpp"
#include "text/jinja/template.hpp"

namespace lemma {
namespace {

using text::jinja::Span;
using text::jinja::Text;

text::jinja::RenderOptions options_at(const std::optional<ChatTime>& now) {
  text::jinja::RenderOptions options;
  if (now)
    options.now = text::jinja::CivilTime{now->year, now->month,  now->day,
                                         now->hour, now->minute, now->second};
  return options;
}

std::vector<PromptPiece> pieces_of(const Text& text) {
  std::vector<PromptPiece> pieces;
  std::size_t at = 0;
  const auto add = [&](std::size_t end, bool from_template) {
    if (end > at) pieces.push_back({text.bytes.substr(at, end - at), from_template});
    at = end;
  };
  for (const Span& span : text.input) {
    add(span.begin, true);
    add(span.end, false);
  }
  add(text.bytes.size(), true);
  return pieces;
}

/// A word that occurs nowhere in the conversation, so that its place in the prompt is known.
std::string end_mark(const Conversation& conversation) {
  std::string all = conversation.tools + conversation.variables;
  for (const Message& message : conversation.messages) {
    for (const std::string& part : message.parts) all += part;
    all += message.reasoning;
    for (const ToolCall& call : message.tool_calls) all += call.name + call.arguments;
  }
  std::string mark = "Qzendqz";
  while (all.find(mark) != std::string::npos) mark += "q";
  return mark;
}

/// The end of `text` without white space.
std::string_view solid(std::string_view text) {
  return text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
}

}  // namespace

struct ChatTemplate::Impl {
  text::jinja::Template parsed;
  std::string source, bos, eos;
  ChatSyntax syntax;
  ChatCapabilities capabilities;
  text::chat::Form form;

  Text render(const Conversation& conversation, bool add_generation_prompt,
              const std::optional<ChatTime>& now) const {
    return parsed.render(
        text::chat::variables_of(conversation, form, bos, eos, add_generation_prompt),
        options_at(now));
  }

  /// Whether an answer that follows `text` starts inside the reasoning.
  bool opens_reasoning(std::string_view text) const {
    if (syntax.tools == ToolSyntax::kHarmony)
      return solid(text).ends_with("<|channel|>analysis<|message|>");
    return !syntax.reasoning_begin.empty() && solid(text).ends_with(syntax.reasoning_begin);
  }

  Prompt continued(Conversation conversation, const std::optional<ChatTime>& now) const;
};

/// The last message with a mark at its end, cut there: no end of turn stands behind it.
Prompt ChatTemplate::Impl::continued(Conversation conversation,
                                     const std::optional<ChatTime>& now) const {
  if (conversation.messages.empty() || conversation.messages.back().role != Role::kAssistant)
    base::raise(ErrorKind::kUsage, "only an assistant's message can be continued");
  Message& last = conversation.messages.back();
  if (!last.tool_calls.empty())
    base::raise(ErrorKind::kUsage, "a message with tool calls cannot be continued");
  const std::string mark = end_mark(conversation);
  const bool in_reasoning = last.parts.empty() && !last.reasoning.empty();
  std::string written;
  for (const std::string& part : last.parts) written += part;
  if (in_reasoning)
    last.reasoning += mark;
  else if (last.parts.empty())
    last.parts = {mark};
  else
    last.parts.back() += mark;
  const Text whole = render(conversation, false, now);
  const std::size_t at = whole.bytes.rfind(mark);
  if (at == std::string::npos)
    base::raise(ErrorKind::kTemplate,
                "the template does not print the end of the last message, so "
                "it cannot be continued");
  Prompt prompt{pieces_of(text::jinja::slice(whole, 0, at)), in_reasoning};
  const std::size_t begin =
      syntax.reasoning_begin.empty() ? std::string::npos : written.rfind(syntax.reasoning_begin);
  if (begin != std::string::npos && written.find(syntax.reasoning_end, begin) == std::string::npos)
    prompt.in_reasoning = true;
  if (written.empty() && opens_reasoning(std::string_view(whole.bytes).substr(0, at)))
    prompt.in_reasoning = true;
  return prompt;
}

ChatTemplate::ChatTemplate(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

ChatTemplate ChatTemplate::parse(std::string_view source, std::string bos, std::string eos) {
  text::jinja::Template parsed = text::jinja::Template::parse(source);
  const ChatCapabilities capabilities = text::chat::probe(parsed, bos, eos);
  return ChatTemplate(std::make_shared<const Impl>(
      Impl{std::move(parsed), std::string(source), std::move(bos), std::move(eos),
           text::chat::syntax_of(source), capabilities, text::chat::form_of(capabilities)}));
}

std::string ChatTemplate::render_json(std::string_view variables,
                                      std::optional<ChatTime> now) const {
  const auto given = text::jinja::read_json(variables);
  return impl_->parsed
      .render(text::chat::with_tokens(given, impl_->bos, impl_->eos), options_at(now))
      .bytes;
}

Prompt ChatTemplate::render(const Conversation& conversation, std::optional<ChatTime> now) const {
  if (conversation.continue_last) return impl_->continued(conversation, now);
  const Text text = impl_->render(conversation, true, now);
  return {pieces_of(text), impl_->opens_reasoning(text.bytes)};
}

const ChatCapabilities& ChatTemplate::capabilities() const noexcept {
  return impl_->capabilities;
}
const ChatSyntax& ChatTemplate::syntax() const noexcept {
  return impl_->syntax;
}
std::string_view ChatTemplate::source() const noexcept {
  return impl_->source;
}

std::string Prompt::text() const {
  std::string all;
  for (const PromptPiece& piece : pieces) all += piece.text;
  return all;
}

}  // namespace lemma
