// SPDX-License-Identifier: Apache-2.0
// Options of the commands around conversations.
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "cli/subcommands.hpp"

namespace lemma::cli {
namespace {

/// "2025-07-04T12:34:56", all of it.
ChatTime parse_time(const std::string& text) {
  ChatTime time;
  int size = 0;
  const int fields = std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d%n", &time.year, &time.month,
                                 &time.day, &time.hour, &time.minute, &time.second, &size);
  constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const bool leap = time.year % 4 == 0 && (time.year % 100 != 0 || time.year % 400 == 0);
  const bool valid = fields == 6 && size == 19 && text.size() == 19 && time.year >= 1 &&
                     time.month >= 1 && time.month <= 12 && time.day >= 1 &&
                     time.day <= kDays[time.month - 1] + (leap && time.month == 2 ? 1 : 0) &&
                     time.hour >= 0 && time.hour < 24 && time.minute >= 0 && time.minute < 60 &&
                     time.second >= 0 && time.second < 60;
  if (!valid) refuse("--now: expected a time such as 2025-07-04T12:34:56, found '" + text + "'");
  return time;
}

}  // namespace

CommandLine parse_render(Arguments arguments) {
  Parser parser(
      "render", "MODEL|TEMPLATE.jinja INPUT.json [options]",
      "Prints what a chat template makes of its variables, byte for byte. INPUT is a JSON object:\n"
      "messages, tools, documents, add_generation_prompt, enable_thinking, ...; bos_token and\n"
      "eos_token are the model's unless they are given. A template that refuses its input is a\n"
      "failure: its message goes to stderr, with line and column, and the exit status is 1.",
      "lemma render model.gguf conversation.json");
  RenderOptions options;
  std::string now;
  parser.model(options.model);
  parser.path("INPUT", options.input, "", "a JSON file; - reads standard input");
  parser.require("INPUT");
  parser.text("--template-name", options.template_name, "NAME",
              "one of the model's further templates; a wrong name lists them");
  parser.text("--now", now, "TIME",
              "the time that the template sees, such as 2025-07-04T12:34:56 (default: local time)");
  ModelOptions idle;
  parser.machine(idle);
  return parser.parse(std::move(arguments), [&]() -> Command {
    parser.report_idle_machine_options();
    if (!now.empty()) options.now = parse_time(now);
    return std::move(options);
  });
}

CommandLine parse_chat(Arguments arguments) {
  Parser parser(
      "chat", "MODEL [options]",
      "Talks with a model. On a terminal: lines are edited, answers stream, Ctrl-C stops an "
      "answer, "
      "/help lists the\ncommands. In a pipe: each line of standard input is a message (or a "
      "/command), answers alone go to stdout; status 1\nmeans that something was not done. A line "
      "that ends in \\ goes on in the next, and a message may stand between\n\"\"\" and \"\"\".",
      "lemma chat model.gguf --system \"Answer in one sentence.\"");
  ChatOptions options;
  chat::Settings& settings = options.settings;
  parser.model(options.model.path);
  parser.text("--system", options.system, "TEXT", "the system message");
  parser.path("--template", options.template_file, "FILE",
              "a chat template (.jinja) in place of the model's");
  parser.text("--template-name", options.template_name, "NAME",
              "one of the model's further templates; a wrong name lists them");
  parser.path("--load", options.load, "FILE", "go on with a conversation that /save wrote");
  parser.path("--tools", options.tools, "FILE",
              "tools that the model may call: OpenAI's list, and for each a \"command\"");
  parser.flag("--allow-tools", options.allow_tools, "run tools without asking");
  parser.flag("--whole", options.whole, "standard input, to its end, is one message");
  parser.word<std::optional<bool>>("--thinking", settings.thinking, {{"on", true}, {"off", false}},
                                   "for templates that have the switch (default: theirs)");
  parser.word<std::optional<bool>>("--reasoning", options.show_reasoning,
                                   {{"show", true}, {"hide", false}},
                                   "print the reasoning too (default: on a terminal)");
  parser.number<std::size_t>("--max-tokens", settings.max_tokens,
                             {1, std::numeric_limits<std::size_t>::max()}, "N",
                             "tokens of an answer at most (default: until the context is full)");
  add_sampling(parser, settings.sampling, settings.seed);
  parser.loading(options.model);
  parser.machine(options.model);
  return parser.parse(std::move(arguments), [&]() -> Command {
    parser.refuse_together("--template-name", "--template", "the file is the template");
    if (options.allow_tools && !options.tools)
      parser.report("--allow-tools has no effect until /tools names a file");
    refuse_idle_sampling(parser, settings.sampling);
    parser.report_idle_machine_options(options.model);
    return std::move(options);
  });
}

}  // namespace lemma::cli
