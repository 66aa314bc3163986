// SPDX-License-Identifier: Apache-2.0
#include "cli/subcommands.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace lemma::cli {
namespace {

/// A number says how many tokens of the text; anything else is a file ("./12" is one, too).
void take_tokens(const std::string& value, CheckOptions& options) {
  if (!value.empty() && value.find_first_not_of("0123456789") == std::string::npos)
    options.most_tokens = parse_number<std::uint32_t>("--tokens", value, 1, kMaxU32);
  else
    options.tokens = value;
}

/// "3..5" or "3".
std::pair<std::uint32_t, std::uint32_t> parse_layers(std::string_view value) {
  const std::size_t dots = value.find("..");
  const auto number = [](std::string_view text) {
    return parse_number<std::uint32_t>("--layers", text, 0, kMaxU32 - 1);
  };
  if (dots == std::string_view::npos) return {number(value), number(value)};
  const std::pair range(number(value.substr(0, dots)), number(value.substr(dots + 2)));
  if (range.second < range.first)
    refuse(fmt::format("--layers: expected A..B with A at most B, found '{}'", value));
  return range;
}

}  // namespace

CommandLine parse_check(Arguments arguments) {
  Parser parser("check", "MODEL [options]",
                "Runs a backend beside the reference on the same tokens and compares every site of "
                "the forward pass:\nembeddings, norms, queries, keys, attention, router, experts, "
                "residual stream, logits. Names the first site\npast its tolerance and then exits "
                "with status 1. The reference is slow: some seconds for a token and a\nbillion "
                "weights. Sites are compared as they are computed, so that beyond the two runs "
                "themselves about\n16 MiB of rows are held, however deep the model and long the "
                "text.",
                "lemma check model.gguf --teacher-forced");
  CheckOptions options;
  parser.model(options.model.path);
  parser.path("--text", options.text, "TEXT", "the text to run (default: a built-in paragraph)");
  std::string tokens, layers;
  parser.text("--tokens", tokens, "N|FILE",
              "N: the first N tokens of the text alone; FILE: a JSON array of token ids to run "
              "instead");
  parser.text("--layers", layers, "A..B",
              "compare the sites of layers A to B alone, counted from 0 (and the logits)");
  parser.number<std::uint32_t>("--generated-from", options.generated_from, {0, kMaxU32 - 1}, "N",
                               "tokens from position N on run as generated ones, the others as "
                               "prompt (default: the last quarter)");
  parser.flag("--teacher-forced", options.teacher_forced,
              "feed each site the reference's rows, so that an error shows where it is made");
  parser.flag("--sites", options.sites, "list every site of every layer, not only the worst ones");
  parser.flag("--json", options.json, "the report as JSON, with every site");
  parser.loading(options.model);
  parser.machine(options.model);
  return parser.parse(std::move(arguments), [&]() -> Command {
    if (parser.given("--tokens")) take_tokens(tokens, options);
    if (options.tokens)
      parser.refuse_together("--text", "--tokens", "the tokens of the file are what is run");
    if (parser.given("--layers")) options.layers = parse_layers(layers);
    parser.refuse_together("--sites", "--json", "JSON always lists every site");
    parser.report_idle_machine_options(options.model);
    return std::move(options);
  });
}

CommandLine parse_bench(Arguments arguments) {
  Parser parser("bench", "MODEL [options]",
                "Measures tokens per second of prefill and decode. The logits of a short prompt "
                "are compared with the\nreference first: a fast wrong answer is a failure.",
                "lemma bench model.gguf --prompt 512 --generate 64 --reps 3");
  BenchOptions options;
  bool no_check = false;
  parser.model(options.model.path);
  parser.number<std::uint32_t>("--prompt", options.prompt, {1, kMaxU32 / 2}, "N",
                               "tokens of prefill (default 512, or what the context leaves)");
  parser.number<std::uint32_t>("--generate", options.generate, {0, kMaxU32 / 2}, "N",
                               "tokens to decode after it (default 64)");
  parser.number<std::uint32_t>("--sequences", options.sequences, {1, 512}, "N",
                               "sequences of so many tokens each, decoded together (default 1)");
  parser.number<std::uint32_t>("--reps", options.repetitions, {1, 10000}, "N",
                               "repetitions; median and best are printed (default 3)");
  parser.flag("--no-check", no_check, "do not compare with the reference");
  parser.flag("--json", options.json, "the result as JSON");
  parser.loading(options.model);
  parser.machine(options.model);
  return parser.parse(std::move(arguments), [&]() -> Command {
    options.check = !no_check;
    parser.report_idle_machine_options(options.model);
    return std::move(options);
  });
}

CommandLine parse_eval(Arguments arguments) {
  Parser parser(
      "eval", "MODEL TEXTFILE [options]",
      "Perplexity of a text, and how far a model's predictions are from another's. The text "
      "becomes one row of tokens (with BOS in front where "
      "the model adds one) and is cut\ninto windows of --window tokens. In each, the "
      "first token is replaced by BOS where the model adds one.\n--score all: every "
      "token but a window's first is predicted from those before it in the window; the "
      "last window may be short.\n--score half: only tokens in the second half of whole "
      "windows count, so that each has half a window of\ncontext (the rule of llama.cpp's "
      "perplexity program, for comparison with its numbers).",
      "lemma eval model.gguf text.txt --window 512 --score half");
  EvalOptions options;
  parser.model(options.model.path);
  parser.path("TEXTFILE", options.text, "", "the text, as UTF-8");
  parser.require("TEXTFILE");
  parser.number<std::uint32_t>("--window", options.window, {4, kMaxU32 - 1}, "N",
                               "tokens of a window (default 512, or the context if that is less)");
  parser.word<bool>("--score", options.score_half, {{"all", false}, {"half", true}},
                    "which tokens count (default all)");
  parser.model_option(
      "--against", options.against, "MODEL",
      "compare with this model, which must have the same tokens: KL divergence of the "
      "model from it, and how often their likeliest tokens agree");
  parser.path("--against-logits", options.against_logits, "FILE",
              "compare with logits that --save-logits wrote");
  parser.path("--per-token", options.per_token, "FILE",
              "with either: a line for each token, as tab-separated values");
  parser.path("--save-logits", options.save_logits, "FILE",
              "write the logits of every token, 4 bytes for each word of the vocabulary");
  parser.flag("--json", options.json, "the result as JSON");
  parser.loading(options.model);
  parser.machine(options.model);
  return parser.parse(std::move(arguments), [&]() -> Command {
    parser.refuse_together("--against", "--against-logits", "one comparison at a time");
    parser.refuse_together("--save-logits", "--against", "they are two runs");
    parser.refuse_together("--save-logits", "--against-logits", "they are two runs");
    if (options.per_token && !options.against && !options.against_logits)
      refuse("--per-token needs --against or --against-logits");
    parser.report_idle_machine_options(options.model);
    return std::move(options);
  });
}

}  // namespace lemma::cli
