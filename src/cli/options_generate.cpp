// SPDX-License-Identifier: Apache-2.0
#include "cli/subcommands.hpp"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "cli/output.hpp"

namespace lemma::cli {

void add_sampling(Parser& parser, Sampling& s, std::optional<std::uint64_t>& seed) {
  parser.number<float>("--temp", s.temperature, {0.f, 100.f}, "T",
                       "temperature; 0 always takes the likeliest token (default 0.8)");
  parser.number<std::int64_t>("--top-k", s.top_k, {0, std::numeric_limits<std::int64_t>::max()},
                              "K", "draw from the K likeliest tokens; 0: off (default 40)");
  parser.number<float>("--top-p", s.top_p, {0.f, 1.f}, "P",
                       "draw from the likeliest tokens that hold P of the probability; 1: off "
                       "(default 0.95)");
  parser.number<float>("--min-p", s.min_p, {0.f, 1.f}, "P",
                       "leave out tokens below P times the best one's probability; 0: off (default "
                       "0.05)");
  parser.number<float>("--repetition-penalty", s.repetition_penalty, {0.01f, 100.f}, "R",
                       "divides the logits of tokens that occurred (default 1: off)");
  parser.number<float>("--presence-penalty", s.presence_penalty, {-100.f, 100.f}, "X",
                       "subtracted once from the logit of each token that occurred (default 0)");
  parser.number<float>("--frequency-penalty", s.frequency_penalty, {-100.f, 100.f}, "X",
                       "subtracted for each time that it occurred (default 0)");
  parser.number<std::uint64_t>("--seed", seed, {0, std::numeric_limits<std::uint64_t>::max()}, "S",
                               "of the draws; the same seed gives the same text (default: a fresh "
                               "one)");
}

void refuse_idle_sampling(const Parser& parser, const Sampling& sampling) {
  if (sampling.temperature != 0.f) return;
  for (const char* option : {"--top-k", "--top-p", "--min-p", "--seed"})
    if (parser.given(option))
      refuse(fmt::format("{} has no effect with --temp 0: nothing is drawn", option));
}

namespace {

void add_steering(Parser& parser, Steering& steering) {
  constexpr float kMost = std::numeric_limits<float>::max();
  parser.path("--steer", steering.file, "FILE",
              "add vectors to the rows of sites (lemma capture --steer-from makes such a file)");
  parser.number<float>("--steer-ffn", steering.ffn, {-kMost, kMost}, "X",
                       "times the vectors of feed-forward sites (default 1, or 0 beside "
                       "--steer-attn)");
  parser.number<float>("--steer-attn", steering.attention, {-kMost, kMost}, "Y",
                       "times the vectors of attention sites (default 1, or 0 beside --steer-ffn)");
}

std::optional<Steering> steering_of(const Parser& parser, Steering steering) {
  if (parser.given("--steer")) return steering;
  for (const char* option : {"--steer-ffn", "--steer-attn"})
    if (parser.given(option)) refuse(fmt::format("{} has no effect without --steer", option));
  return std::nullopt;
}

/// What --json, --json-schema and --grammar were given.
struct ConstraintWords {
  bool json = false, compact = false;
  std::string schema, after;
  std::filesystem::path grammar;
};

void add_constraint(Parser& parser, ConstraintWords& words) {
  parser.flag("--json", words.json, "the text is a JSON object");
  parser.text("--json-schema", words.schema, "SCHEMA",
              "the text is JSON that satisfies SCHEMA: a file, or the schema itself, which begins "
              "with '{'");
  parser.path("--grammar", words.grammar, "FILE",
              "the text is one of the GBNF grammar in FILE (docs/constraints.md)");
  parser.flag("--json-compact", words.compact, "JSON without blanks between its tokens");
  parser.text("--constrain-after", words.after, "TEXT",
              "leaves the text free until TEXT comes, such as the end of a reasoning");
}

std::optional<Constraint> constraint_of(const Parser& parser, const ConstraintWords& words) {
  const bool schema = parser.given("--json-schema");
  const bool grammar = parser.given("--grammar");
  if (int{words.json} + int{schema} + int{grammar} > 1)
    refuse("--json, --json-schema and --grammar exclude each other");
  if (words.compact && !words.json && !schema)
    refuse("--json-compact has no effect without --json or --json-schema");
  if (!words.json && !schema && !grammar) {
    if (parser.given("--constrain-after"))
      refuse("--constrain-after has no effect without --json, --json-schema or --grammar");
    return std::nullopt;
  }
  Constraint made = Constraint::json_object();
  if (schema) {
    const bool is_text = words.schema.find_first_not_of(" \t\r\n") != std::string::npos &&
                         words.schema[words.schema.find_first_not_of(" \t\r\n")] == '{';
    made.text = is_text ? words.schema : read_file(words.schema);
  }
  if (grammar) made = Constraint::grammar(read_file(words.grammar));
  made.compact = words.compact;
  made.after = words.after;
  return made;
}

}  // namespace

CommandLine parse_run(Arguments arguments) {
  Parser parser("run", "[-m MODEL | MODEL.gguf | DIR] [PROMPT] [options]",
                "Continues a prompt. Stdout gets the generated text alone, as it comes; statistics "
                "go to stderr.\nThe text is what the tokens add to the prompt's; an absent prompt "
                "is the empty one (BOS alone).\nEnds at the model's end of text, at a stop text, "
                "after --max-tokens or when the context is full.\nA reader that closes the pipe "
                "ends the run with status 0, Ctrl-C with status 1.",
                "lemma run model.gguf \"Once upon a time\" --temp 0 --max-tokens 100");
  RunOptions options;
  std::string first, second;
  parser.text("MODEL", first, "",
              "a GGUF file, the first of a split one, a folder, or the name of a pulled one");
  parser.text("PROMPT", second, "",
              "the text to continue; - reads standard input; if it begins with '-', put it last, "
              "behind --");
  parser.model_option("-m,--model", options.model.path, "MODEL",
                      "names the model, so that the only argument is the prompt");
  add_sampling(parser, options.sampling, options.seed);
  Steering steering;
  add_steering(parser, steering);
  parser.number<std::uint32_t>(
      "--prefetch-experts", options.prefetch_experts, {0, 65536}, "N",
      "experts of a layer to read from the file ahead of their use, by a "
      "guess at the router's choice (default: as many as it chooses, where "
      "experts do not fit in memory and while half of the guesses are right)");
  ConstraintWords constraint;
  add_constraint(parser, constraint);
  parser.number<std::size_t>("--max-tokens", options.max_tokens,
                             {1, std::numeric_limits<std::size_t>::max()}, "N",
                             "tokens to generate at most (default: until the context is full)");
  parser.repeated("--stop", options.stop, "TEXT",
                  "ends the run where the text contains TEXT, which is not printed; repeatable");
  parser.loading(options.model);
  parser.flag("--parse-special", options.parse_special,
              "text that spells a control token, such as <s>, becomes that token");
  parser.machine(options.model);
  return parser.parse(std::move(arguments), [&]() -> Command {
    const bool named = parser.given("-m");
    if (named && parser.given("PROMPT"))
      refuse(fmt::format("one model too many: '{}' beside -m", first));
    if (!named && !parser.given("MODEL")) refuse("no model: give a GGUF file or a folder");
    if (!named) options.model.path = resolve_model(first);
    options.prompt = text_argument(std::move(named ? first : second));
    refuse_idle_sampling(parser, options.sampling);
    options.steering = steering_of(parser, std::move(steering));
    for (const std::string& stop : options.stop)
      if (stop.empty()) refuse("--stop: an empty text would end every run at once");
    options.constraint = constraint_of(parser, constraint);
    parser.report_idle_machine_options(options.model);
    return std::move(options);
  });
}

CommandLine parse_explain(Arguments arguments) {
  Parser parser("explain", "MODEL [PROMPT|-] [options]",
                "Shows the way of a prompt through the model, with the numbers that were really "
                "computed: tokens, shapes, what\nattention reads, which experts are chosen, the "
                "candidates at each sampling stage, state and time.",
                "lemma explain model.gguf \"Once upon a time\" --max-tokens 8 --html way.html");
  ExplainOptions options;
  std::string prompt;
  parser.model(options.model.path);
  parser.text("PROMPT", prompt, "", "the text; - reads standard input; absent: the empty one");
  parser.number<std::uint32_t>("--max-tokens", options.max_tokens, {1, 256}, "N",
                               "tokens to generate at most (default 8)");
  add_sampling(parser, options.sampling, options.seed);
  parser.flag("--parse-special", options.parse_special,
              "text that spells a control token, such as <s>, becomes that token");
  parser.path("--html", options.html, "FILE",
              "also write one page with pictures, which needs nothing else");
  parser.flag("--json", options.json, "all of it as JSON");
  parser.loading(options.model);
  parser.machine(options.model);
  return parser.parse(std::move(arguments), [&]() -> Command {
    options.prompt = text_argument(std::move(prompt));
    refuse_idle_sampling(parser, options.sampling);
    parser.report_idle_machine_options(options.model);
    return std::move(options);
  });
}

}  // namespace lemma::cli
