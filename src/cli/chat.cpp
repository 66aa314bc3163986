// SPDX-License-Identifier: Apache-2.0
// `lemma chat`: a conversation in a terminal or a pipe. Uses the engine as an outsider would; the
// parts are in chat/.
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "base/raise.hpp"
#include "cli/chat/dialogue.hpp"
#include "cli/commands.hpp"
#include "cli/engine_options.hpp"
#include "cli/interruption.hpp"
#include "cli/output.hpp"
#include "cli/progress_bar.hpp"
#include "lemma/engine.hpp"

namespace lemma::cli {
namespace {

ChatTemplate open_template(const ChatOptions& options, const Tokenizer& tokenizer) {
  const auto spelt = [&](std::optional<TokenId> id) {
    return id ? tokenizer.token_text(*id) : std::string();
  };
  if (options.template_file) {
    try {
      return ChatTemplate::parse(read_file(*options.template_file), spelt(tokenizer.bos()),
                                 spelt(tokenizer.eos()));
    } catch (const Error& error) {
      throw error.within(options.template_file->string());
    }
  }
  try {
    return ChatTemplate::open(options.model.path, options.template_name);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kNotFound || !options.template_name.empty()) throw;
    base::raise(ErrorKind::kNotFound,
                "{}; --template FILE.jinja gives one, and 'lemma run' continues plain text",
                error.what());
  }
}

bool may_use_colours() {
  const char* const term = std::getenv("TERM");
  const char* const none = std::getenv("NO_COLOR");
  return stdout_is_terminal() && stderr_is_terminal() && term && std::string_view(term) != "dumb" &&
         (!none || !*none);
}

/// Whether a person types at a terminal and sees what is asked.
bool person_is_there() {
  return ::isatty(STDIN_FILENO) == 1 && stderr_is_terminal();
}

std::unique_ptr<chat::LineReader> make_reader() {
  const char* const term = std::getenv("TERM");
  const bool can_edit = person_is_there() && term && std::string_view(term) != "dumb";
  if (can_edit)
    if (auto reader = chat::editing_reader()) return reader;
  return chat::plain_reader();
}

/// How turns end from outside, and what is remembered of it.
struct Stops {
  std::atomic<bool> signalled = false, output_closed = false;

  chat::Stoppable runner(ProgressBar& progress) {
    return [this, &progress](const std::function<void(std::stop_token)>& turn) {
      std::stop_source source;
      const Interruption interruption(
          [&](Interruption::Cause cause) {
            (cause == Interruption::Cause::kSignal ? signalled : output_closed) = true;
            source.request_stop();
          },
          Interruption::Again::kIgnored);
      turn(source.get_token());
      progress.clear();
      if (output_closed) throw OutputClosed{};
    };
  }
};

/// How wide the terminal is now; 0 where it does not say.
std::size_t columns_of_terminal() {
  winsize size = {};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::string greeting(const ModelInfo& info) {
  const std::string name = info.name.empty() ? info.architecture : info.name;
  return name + ", context of " + std::to_string(info.context) +
         " tokens. /help lists the commands.";
}

int status_of(bool done) {
  return done ? kDone : kFailed;
}

}  // namespace

int run_chat(const ChatOptions& options) {
  ProgressBar progress;
  const auto engine =
      Engine::open(options.model.path, engine_options(options.model, progress.callback()));
  const auto speaker =
      chat::engine_speaker(engine, open_template(options, engine->tokenizer()),
                           [&](double fraction) { progress.update("reading", fraction); });
  progress.clear();
  const bool person = person_is_there();
  const std::unique_ptr<chat::LineReader> lines = make_reader();
  chat::Look look{.terminal = stdout_is_terminal(), .colours = may_use_colours()};
  if (look.terminal) look.columns = columns_of_terminal;
  chat::View view(
      look,
      [&](std::string_view text) {
        progress.clear();
        write_out(text);
      },
      [&](std::string_view text) {
        progress.clear();
        write_err(text);
      });
  Stops stops;
  chat::Settings settings = options.settings;
  settings.reasoning = options.show_reasoning.value_or(stdout_is_terminal());
  chat::Dialogue dialogue({.lines = *lines,
                           .view = view,
                           .speaker = *speaker,
                           .stoppable = stops.runner(progress),
                           .interactive = person,
                           .trust_tools = options.allow_tools},
                          settings);
  if (options.load) dialogue.load(options.load->string());
  if (!options.system.empty()) dialogue.set_system(options.system);
  if (options.tools) dialogue.set_tools(options.tools->string());
  if (settings.thinking && !speaker->capabilities().thinking_switch)
    base::raise(ErrorKind::kUsage, "--thinking: this model's template has no switch for it");
  if (options.whole) return status_of(dialogue.run_one(read_stdin()));
  if (person) view.note(greeting(engine->info()));
  const bool done = dialogue.run();
  // A person has seen what went wrong; a script asks for the status.
  return person ? kDone : status_of(done && !stops.signalled);
}

}  // namespace lemma::cli
