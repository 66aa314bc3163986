// SPDX-License-Identifier: Apache-2.0
#include "cli/chat/dialogue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/raise.hpp"
#include "base/utf8.hpp"
#include "cli/chat/commands.hpp"
#include "cli/chat/transcript.hpp"
#include "cli/output.hpp"

namespace lemma::cli::chat {
namespace {

/// Answers of one turn at most: a model may call tools for ever.
constexpr int kMostRounds = 32;

bool only_blanks(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

bool empty(const Message& message) {
  return message.parts.empty() && message.reasoning.empty() && message.tool_calls.empty();
}

double per_second(std::size_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0.0;
}

}  // namespace

bool Dialogue::run() {
  MessageReader reader(parts_.lines);
  while (!leaving_) {
    Input input = reader.read();
    if (input.kind == Input::Kind::kInterrupted) {
      if (interrupted(input)) return !failed_;
      continue;
    }
    warned_ = false;
    switch (input.kind) {
      case Input::Kind::kMessage:
        parts_.lines.remember(input.text);
        ask(std::move(input.text));
        break;
      case Input::Kind::kCommand:
        parts_.lines.remember("/" + input.text);
        command(input.text);
        break;
      case Input::Kind::kUnfinished:
        fail("the input ended inside a message; it was not sent");
        return false;
      case Input::Kind::kInterrupted:
      case Input::Kind::kEnd:
        return !failed_;
    }
  }
  return !failed_;
}

bool Dialogue::run_one(const std::string& message) {
  ask(message);
  return !failed_;
}

/// Ctrl-C at the prompt gives up what was typed; at an empty prompt, twice, it leaves.
bool Dialogue::interrupted(const Input& input) {
  if (!only_blanks(input.text)) {
    warned_ = false;
    return false;
  }
  if (warned_) return true;
  warned_ = true;
  parts_.view.note("(Ctrl-C again, Ctrl-D or /exit to leave)");
  return false;
}

void Dialogue::command(const std::string& line) {
  try {
    run_command(*this, line);
  } catch (const Error& error) {
    fail(error.what());
  }
}

void Dialogue::fail(std::string_view message) {
  failed_ = true;
  parts_.view.error(message);
}

void Dialogue::set_system(std::string text) {
  const bool has = !messages_.empty() && messages_[0].role == Role::kSystem;
  if (text.empty()) {
    if (has) messages_.erase(messages_.begin());
    return;
  }
  if (!parts_.speaker.capabilities().system)
    base::raise(ErrorKind::kUsage, "this model's template has no place for a system message");
  if (!has) messages_.insert(messages_.begin(), Message{});
  messages_[0].role = Role::kSystem;
  messages_[0].parts = {std::move(text)};
}

void Dialogue::set_tools(const std::string& file) {
  if (!parts_.speaker.capabilities().tools)
    base::raise(ErrorKind::kUsage, "this model's template has no place for tools");
  const std::string json = read_file(file);
  try {
    tools_ = Tools::parse(json);
  } catch (const Error& error) {
    throw error.within(file);
  }
}

void Dialogue::load(const std::string& file) {
  const std::string json = read_file(file);
  try {
    messages_ = messages_from_json(json);
  } catch (const Error& error) {
    throw error.within(file);
  }
}

void Dialogue::ask(std::string text) {
  if (only_blanks(text) && files_.empty()) return;
  std::vector<Message> before = messages_;
  const std::size_t had = before.size();
  Message message;
  message.parts = {files_.empty() ? std::move(text) : files_ + text};
  messages_.push_back(std::move(message));
  const std::string files = std::exchange(files_, {});
  turn(std::move(before));
  // A message that was not sent keeps its files for the next try.
  if (messages_.size() <= had) files_ = files;
}

/// Answers the last message; where that fails the history is `before`.
void Dialogue::turn(std::vector<Message> before) {
  try {
    parts_.stoppable([&](std::stop_token stop) { rounds(before, std::move(stop)); });
  } catch (const Error& error) {
    parts_.view.end_answer();
    messages_ = std::move(before);
    if (error.kind() == ErrorKind::kContextFull)
      explain_full(error);
    else
      fail(fmt::format("{} (the message was not sent; the conversation is as it was before)",
                       error.what()));
  } catch (...) {
    messages_ = std::move(before);
    throw;
  }
}

void Dialogue::rounds(const std::vector<Message>& before, std::stop_token stop) {
  calls_refused_ = false;
  for (int round = 0; round < kMostRounds; ++round) {
    const Conversation conversation{
        .messages = messages_, .tools = tools_.definitions(), .thinking = settings_.thinking};
    Answer answer = parts_.speaker.answer(
        {.conversation = conversation,
         .sampling = settings_.sampling,
         .seed = settings_.seed,
         .max_tokens = settings_.max_tokens},
        [this](const ChatEvent& event) { parts_.view.show(event); }, stop);
    parts_.view.end_answer();
    context_used_ = answer.context_used;
    last_seed_ = answer.seed;
    const bool stopped = answer.ending == Ending::kStopped;
    if (stopped && !parts_.interactive) leaving_ = failed_ = true;  // a script is over
    if (empty(answer.message) && stopped) {
      if (round == 0) messages_ = before;
      parts_.view.note(round == 0 ? "(stopped before an answer; the conversation is as it was)"
                                  : "(stopped before an answer)");
      return;
    }
    for (ToolCall& call : answer.message.tool_calls)
      if (call.id.empty()) call.id = fmt::format("call{:05}", ++calls_);
    messages_.push_back(answer.message);
    report(answer);
    if (answer.message.tool_calls.empty() || stopped) return;
    if (!call_tools(messages_[messages_.size() - 1], stop)) return;
  }
  fail(fmt::format("the turn ended after {} answers with calls of tools", kMostRounds));
}

/// False: the turn is over.
bool Dialogue::call_tools(Message& asked, std::stop_token stop) {
  if (tools_.all().empty()) {
    // Templates want a result for each call, and there is none to give.
    if (asked.parts.empty()) asked.parts.emplace_back();
    for (const ToolCall& call : asked.tool_calls) {
      const std::string text = fmt::format("{}({})", call.name, call.arguments);
      asked.parts[0] += (asked.parts[0].empty() ? "" : "\n") + text;
      parts_.view.note("(a call without tools: " + text + ")");
    }
    asked.tool_calls.clear();
    return false;
  }
  std::vector<Message> results;
  for (const ToolCall& call : asked.tool_calls) {
    Message result;
    result.role = Role::kTool;
    result.tool_call_id = call.id;
    result.name = call.name;
    result.parts = {run_call(call, stop)};
    results.push_back(std::move(result));
  }
  messages_.insert(messages_.end(), results.begin(), results.end());
  return !stop.stop_requested() && !calls_refused_;
}

std::string Dialogue::run_call(const ToolCall& call, std::stop_token stop) {
  if (stop.stop_requested() || calls_refused_) return "error: stopped by the user";
  Tool* const tool = tools_.find(call.name);
  if (!tool) {
    parts_.view.note(fmt::format("(it calls '{}', which is no tool here)", call.name));
    return fmt::format("error: there is no tool '{}'", call.name);
  }
  if (!allowed(*tool, call)) return "error: the user did not allow this call";
  const ToolResult result = run_tool(tool->command, call.arguments, stop);
  const std::string start =
      result.text.substr(0, base::settled_utf8_prefix(result.text.substr(0, 400)));
  parts_.view.note(start.size() < result.text.size()
                       ? fmt::format("{}... ({} bytes)", start, result.text.size())
                       : start);
  return result.text;
}

bool Dialogue::allowed(Tool& tool, const ToolCall& call) {
  parts_.view.say(fmt::format("tool {} {}", call.name, call.arguments));
  if (tool.always || parts_.trust_tools) return true;
  if (!parts_.interactive) {
    fail("a tool needs a person who allows it, or --allow-tools");
    return false;
  }
  for (;;) {
    const Line line =
        parts_.lines.read(fmt::format("run {}? [y]es, [n]o, [a]lways: ", tool.command[0]));
    if (line.kind != Line::Kind::kText) {
      calls_refused_ = true;
      return false;
    }
    if (line.text == "y" || line.text == "yes") return true;
    if (line.text == "n" || line.text == "no") return false;
    if (line.text != "a" && line.text != "always") continue;
    tool.always = true;
    return true;
  }
}

void Dialogue::explain_full(const Error& error) {
  const ModelInfo info = parts_.speaker.info();
  const std::size_t room = info.context > context_used_ ? info.context - context_used_ : 0;
  std::string text = fmt::format(
      "{}. The message was not sent, and nothing was left out. The conversation without it holds "
      "{} "
      "tokens, so that about {} fit, the answer included. /undo takes back the last turn, /clear "
      "begins anew",
      error.what(), context_used_, room);
  if (info.trained_context > info.context)
    text +=
        fmt::format("; --ctx makes more room (this model was made for {})", info.trained_context);
  fail(text);
}

void Dialogue::report(const Answer& answer) {
  View& view = parts_.view;
  if (!answer.rerun.empty())
    view.note(fmt::format("({} tokens kept, {} run again or new: {})", answer.kept, answer.entered,
                          answer.rerun));
  switch (answer.ending) {
    case Ending::kEndOfTurn:
      break;
    case Ending::kStopped:
      view.note("(stopped; what was said so far stays in the conversation)");
      break;
    case Ending::kMaxTokens:
      view.note("(ended by max_tokens)");
      break;
    case Ending::kContextFull:
      fail(
          "the context is full: the answer is not complete. /undo takes back the turn, /clear "
          "begins anew");
      break;
  }
  if (!settings_.statistics) return;
  const std::uint32_t context = std::max(parts_.speaker.info().context, 1u);
  view.note(
      fmt::format("({} tokens, {:.1f}/s; prompt {} new, {:.1f}/s, {} kept; context {} of {}, {}%)",
                  answer.generated, per_second(answer.generated, answer.decode_seconds),
                  answer.entered, per_second(answer.entered, answer.prefill_seconds), answer.kept,
                  answer.context_used, context, answer.context_used * 100 / context));
}

}  // namespace lemma::cli::chat
