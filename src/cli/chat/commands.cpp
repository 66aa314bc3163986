// SPDX-License-Identifier: Apache-2.0
#include "cli/chat/commands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "base/raise.hpp"
#include "base/utf8.hpp"
#include "cli/chat/transcript.hpp"
#include "cli/output.hpp"

namespace lemma::cli::chat {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::uintmax_t kLargestFile = 16u << 20;

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

/// The first word, which is taken off, and what follows it.
std::string_view take_word(std::string_view& text) {
  text = trimmed(text);
  const std::string_view word = text.substr(0, text.find_first_of(kBlanks));
  text = trimmed(text.substr(word.size()));
  return word;
}

std::string required(std::string_view argument, std::string_view what) {
  if (argument.empty()) base::raise(ErrorKind::kUsage, "expected {}", what);
  return std::string(argument);
}

/// Written beside and renamed, so that no failure leaves half a file.
void write_whole(const std::filesystem::path& path, std::string_view text) {
  const std::filesystem::path partial = path.string() + ".partial";
  std::ofstream file(partial, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(partial, path, error);
  if (file && !error) return;
  std::filesystem::remove(partial, error);
  base::raise(ErrorKind::kIo, "{}: cannot be written", path.string());
}

std::size_t last_user(const std::vector<Message>& messages) {
  std::size_t at = messages.size();
  while (at > 0 && messages[at - 1].role != Role::kUser) --at;
  if (at == 0) base::raise(ErrorKind::kUsage, "there is no turn to go back to");
  return at - 1;
}

}  // namespace

namespace {

using Argument = std::string_view;

struct Command {
  std::string_view name, arguments, about;
  void (*run)(Dialogue&, Argument);
};

}  // namespace

/// The bodies, a friend of Dialogue.
struct CommandBodies {
  static void help(Dialogue& d, Argument);

  static void system(Dialogue& d, Argument text) {
    if (!text.empty()) {
      d.set_system(text == "none" ? std::string() : std::string(text));
      return d.parts_.view.note("(it counts from the next message on)");
    }
    const bool has = !d.messages_.empty() && d.messages_[0].role == Role::kSystem;
    std::string all;
    if (has)
      for (const std::string& part : d.messages_[0].parts) all += part;
    d.parts_.view.say(has ? all : "there is no system message");
  }

  static void clear(Dialogue& d, Argument) {
    std::erase_if(d.messages_, [](const Message& m) { return m.role != Role::kSystem; });
    d.files_.clear();
    d.context_used_ = 0;
    d.parts_.view.note(d.messages_.empty() ? "(a new conversation)"
                                           : "(a new conversation; the system message stays)");
  }

  static void undo(Dialogue& d, Argument) {
    const std::size_t at = last_user(d.messages_);
    std::string text;
    for (const std::string& part : d.messages_[at].parts) text += part;
    const std::string start = text.substr(0, base::settled_utf8_prefix(text.substr(0, 60)));
    d.messages_.resize(at);
    d.parts_.view.note(
        fmt::format("(taken back: {}{})", start, start.size() < text.size() ? "..." : ""));
  }

  static void retry(Dialogue& d, Argument) {
    std::vector<Message> before = d.messages_;
    d.messages_.resize(last_user(d.messages_) + 1);
    d.turn(std::move(before));
  }

  static void save(Dialogue& d, Argument file) {
    const std::string path = required(file, "a file to save to");
    write_whole(path, to_json(d.messages_));
    d.parts_.view.note(fmt::format("({} messages saved to {})", d.messages_.size(), path));
  }

  static void load(Dialogue& d, Argument file) {
    d.load(required(file, "a file to load"));
    d.parts_.view.note(fmt::format("({} messages)", d.messages_.size()));
  }

  static void set(Dialogue& d, Argument arguments) {
    if (arguments.empty()) {
      std::string text = list(d.settings_);
      if (d.last_seed_ != 0) text += fmt::format("the last answer's seed was {}\n", d.last_seed_);
      return d.parts_.view.say(text);
    }
    const std::string_view name = take_word(arguments);
    Settings changed = d.settings_;
    chat::set(changed, name, arguments);
    if (name == "thinking" && changed.thinking && !d.parts_.speaker.capabilities().thinking_switch)
      base::raise(ErrorKind::kUsage, "this model's template has no switch for thinking");
    d.settings_ = std::move(changed);
    d.parts_.view.look.reasoning = d.settings_.reasoning;
    d.parts_.view.look.wraps = d.settings_.wrap;
  }

  static void file(Dialogue& d, Argument argument) {
    const std::string path =
        required(argument, "a file whose text goes in front of the next message");
    std::error_code error;
    if (std::filesystem::file_size(path, error) > kLargestFile && !error)
      base::raise(ErrorKind::kUsage, "{}: larger than {}", path, format_bytes(kLargestFile));
    const std::string text = read_file(path);
    if (!base::is_valid_utf8(text)) base::raise(ErrorKind::kBadFile, "{}: is no UTF-8 text", path);
    d.files_ += fmt::format("{}:\n\n{}{}\n", std::filesystem::path(path).filename().string(), text,
                            text.ends_with('\n') ? "" : "\n");
    d.parts_.view.note(fmt::format("({}, {} tokens, goes in front of the next message)",
                                   format_bytes(text.size()), d.parts_.speaker.count_tokens(text)));
  }

  static void tools(Dialogue& d, Argument file) {
    if (file == "none") {
      d.tools_ = {};
    } else if (!file.empty()) {
      d.set_tools(std::string(file));
    }
    std::string text;
    for (const Tool& tool : d.tools_.all())
      text += fmt::format("  {:<20}{}{}\n", tool.name, fmt::join(tool.command, " "),
                          tool.always || d.parts_.trust_tools ? "  (without asking)" : "");
    d.parts_.view.say(text.empty() ? "there are no tools" : text);
  }

  static void leave(Dialogue& d, Argument) { d.leaving_ = true; }
};

namespace {

constexpr Command kCommands[] = {
    {"help", "", "this list", CommandBodies::help},
    {"system", "[TEXT|none]", "show, set or drop the system message", CommandBodies::system},
    {"clear", "", "a new conversation; the system message stays", CommandBodies::clear},
    {"undo", "", "take back the last message and what came of it", CommandBodies::undo},
    {"retry", "", "answer the last message anew", CommandBodies::retry},
    {"save", "FILE", "write the conversation as JSON", CommandBodies::save},
    {"load", "FILE", "go on with a saved conversation", CommandBodies::load},
    {"set", "[NAME VALUE]", "show or change settings", CommandBodies::set},
    {"file", "FILE", "put a file's text in front of the next message", CommandBodies::file},
    {"tools", "[FILE|none]", "show, take or drop tools", CommandBodies::tools},
    {"exit", "", "leave (also Ctrl-D, or Ctrl-C twice)", CommandBodies::leave},
};

}  // namespace

void CommandBodies::help(Dialogue& d, Argument) {
  std::string text;
  for (const Command& command : kCommands)
    text += fmt::format("  /{:<22}{}\n", fmt::format("{} {}", command.name, command.arguments),
                        command.about);
  text +=
      "A line that ends in \\ goes on in the next one, and a message that begins with \"\"\" to "
      "the "
      "next\n\"\"\". A message may begin with // for a /. Ctrl-C stops an answer.\n";
  d.parts_.view.say(text);
}

void run_command(Dialogue& dialogue, std::string_view line) {
  const std::string_view name = take_word(line);
  for (const Command& command : kCommands) {
    if (command.name != name && !(name == "quit" && command.name == "exit")) continue;
    if (command.arguments.empty() && !line.empty())
      base::raise(ErrorKind::kUsage, "/{} takes no arguments", name);
    return command.run(dialogue, line);
  }
  base::raise(ErrorKind::kUsage,
              "there is no /{}; /help lists the commands, and // begins a message with /", name);
}

}  // namespace lemma::cli::chat
