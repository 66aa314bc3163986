// SPDX-License-Identifier: Apache-2.0
#include "cli/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "cli/subcommands.hpp"

namespace lemma::cli {
namespace {

struct Subcommand {
  std::string_view name, summary;
  CommandLine (*parse)(Arguments);
};
constexpr Subcommand kSubcommands[] = {
    {"run", "continue a prompt", parse_run},
    {"chat", "talk with a model", parse_chat},
    {"render", "a conversation as its prompt", parse_render},
    {"tokenize", "token ids of a text", parse_tokenize},
    {"detokenize", "text of token ids", parse_detokenize},
    {"logits", "logits of known tokens, to a file", parse_logits},
    {"show", "metadata, plan, memory and implementations of a model", parse_show},
    {"check", "compare a backend with the reference, site by site", parse_check},
    {"bench", "tokens per second", parse_bench},
    {"eval", "perplexity of a text", parse_eval},
    {"capture", "activations at named sites, and steering vectors", parse_capture},
    {"explain", "the way of a prompt through a model", parse_explain},
    {"imatrix", "how much each input of a model's matrices matters", parse_imatrix},
    {"quantize", "write a model in another format", parse_quantize},
    {"pull", "fetch a model by name", parse_pull},
    {"list", "the models that were pulled", parse_list},
    {"rm", "remove a pulled model", parse_rm},
};

std::string overview() {
  std::string text =
      "lemma runs large language models from GGUF files and Hugging Face folders.\n\nusage: lemma "
      "COMMAND [arguments]\n\n"
      "commands:\n";
  for (const Subcommand& subcommand : kSubcommands)
    text += fmt::format("  {:<12}{}\n", subcommand.name, subcommand.summary);
  text +=
      "\n'lemma COMMAND --help' explains a command; 'lemma --version' prints the version.\n"
      "Results go to stdout, everything else to stderr. Exit status: 0 done, 1 failed, 2 wrong "
      "usage.\n\nexample: lemma run model.gguf \"Once upon a time\"\n";
  return text;
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
  const Arguments arguments(argv + std::min(argc, 1), argv + argc);
  if (arguments.empty()) return {std::nullopt, overview(), kWrongUsage};
  const std::string& first = arguments[0];
  if (arguments.size() == 1) {
    if (first == "--help" || first == "-h" || first == "help")
      return {std::nullopt, overview(), kDone};
    if (first == "--version") return {std::nullopt, "lemma " LEMMA_VERSION "\n", kDone};
  }
  for (const Subcommand& subcommand : kSubcommands)
    if (subcommand.name == first)
      return subcommand.parse(Arguments(arguments.begin() + 1, arguments.end()));
  return {std::nullopt, fmt::format("lemma: '{}' is not a command\nSee 'lemma --help'.\n", first),
          kWrongUsage};
}

}  // namespace lemma::cli
