// SPDX-License-Identifier: Apache-2.0
#include "cli/subcommands.hpp"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

namespace lemma::cli {
namespace {

void check_capture(const Parser& parser, const CaptureOptions& options) {
  for (const char* other : {"--steer-from", "--text", "--tokens", "--out"})
    parser.refuse_together(other, "--list", "nothing is run");
  for (const char* other : {"--text", "--tokens"})
    parser.refuse_together(other, "--steer-from", "the prompts are what is run");
  for (const char* other : {"--sites", "--list", "--steer-from"})
    parser.refuse_together(other, "--routes", "the routes are what is written");
  parser.refuse_together("--text", "--tokens", "the tokens are what is run");
  if (parser.given("--rows") && options.steer_from.empty())
    refuse("--rows has no effect without --steer-from: all rows are written");
  if (options.list) return;
  if (!parser.given("--out")) refuse("--out: say where the file goes");
  if (!options.steer_from.empty()) return;
  if (options.sites.empty() && !options.routes)
    refuse("--sites: say which sites (--list shows them)");
  if (!options.text && !options.tokens) refuse("give a --text or --tokens to run");
}

}  // namespace

CommandLine parse_logits(Arguments arguments) {
  Parser parser("logits", "MODEL --tokens FILE.json --out FILE.f32 [options]",
                "Evaluates known tokens and writes the logits of every position: raw little-endian "
                "f32 rows [T, V].\nThe ids are taken as they are; nothing is added.",
                "lemma logits model.gguf --tokens tokens.json --out logits.f32 --cut 20,28");
  LogitsOptions options;
  std::string cuts;
  parser.model(options.model.path);
  parser.path("--tokens", options.tokens, "FILE", "a JSON array of token ids");
  parser.path("--out", options.out, "FILE", "where the rows go; replaced when all is written");
  parser.require("--tokens");
  parser.require("--out");
  parser.text("--cut", cuts, "N,N...", "evaluate in chunks that end before these positions");
  parser.flag("--stepwise", options.stepwise, "evaluate token by token");
  parser.number<std::uint32_t>("--generated-from", options.generated_from, {0, kMaxU32 - 1}, "N",
                               "tokens from position N on count as generated, not as entered");
  parser.flag("--hidden", options.hidden,
              "write the last hidden state, [T, D], instead of the logits");
  parser.path("--draft-out", options.draft_out, "FILE",
              "run the model's draft block too and write its logits here, [T - 1, V]: row i read "
              "token i + 1 and predicts the one after it (further blocks: FILE.1, ...)");
  parser.model_option("--draft", options.draft, "FILE", "take the draft block from this file");
  parser.loading(options.model);
  parser.machine(options.model);
  return parser.parse(std::move(arguments), [&]() -> Command {
    parser.refuse_together("--cut", "--stepwise", "every position is cut already");
    parser.refuse_together("--draft-out", "--hidden", "a draft block is run for its logits");
    if (parser.given("--draft") && !parser.given("--draft-out"))
      refuse("--draft has no effect without --draft-out");
    if (parser.given("--cut")) options.cuts = parse_numbers("--cut", cuts, 1, kMaxU32 - 1);
    parser.report_idle_machine_options(options.model);
    return std::move(options);
  });
}

CommandLine parse_show(Arguments arguments) {
  Parser parser("show", "MODEL [options]",
                "Describes a model: metadata, plan, what it needs in memory, and which "
                "implementation runs each operation here.\nWith --verify or --diff it reads the "
                "files instead and runs nothing; status 1 means that numbers are not finite,\nor "
                "that the two differ.",
                "lemma show model.gguf --ctx 8192");
  ShowOptions options;
  std::optional<std::filesystem::path> other;
  bool verify = false;
  parser.model(options.model.path);
  parser.flag("--json", options.json, "everything as one JSON object");
  parser.model_option("--draft", options.draft, "FILE", "with the draft block of this file");
  parser.flag("--verify", verify,
              "read every tensor: its checksum, its size, and whether its numbers are finite");
  parser.model_option("--diff", other, "MODEL",
                      "keys and tensors in which this model differs, and by how much");
  parser.loading(options.model);
  parser.machine(options.model);
  return parser.parse(std::move(arguments), [&]() -> Command {
    parser.refuse_together("--verify", "--diff", "one at a time");
    parser.refuse_together("--draft", "--verify", "verify its file by itself");
    parser.refuse_together("--draft", "--diff", "compare its file by itself");
    if (verify || other)
      return ShowFilesOptions{options.model.path, other, options.model.threads, options.json};
    parser.report_idle_machine_options(options.model);
    return std::move(options);
  });
}

CommandLine parse_capture(Arguments arguments) {
  Parser parser(
      "capture", "MODEL --sites PATTERN[,PATTERN] --out FILE [--text TEXT | --tokens FILE]",
      "Writes what stands at named sites of the forward pass: a safetensors file with an F32 "
      "tensor [T, width] for each\nsite, under its name, and the token ids as the I32 tensor "
      "'tokens'. In a pattern '*' is any run of characters,\n'?' any one.\nWith --steer-from it "
      "writes steering vectors [width] for 'lemma run --steer' instead: the mean row over the\n"
      "first file's prompts minus that over the second's; --sites then defaults to what each site "
      "adds to the stream.\nWith --routes it writes which experts each token chose in each layer, "
      "and "
      "says how many of them a predictor names\nbefore they are chosen.",
      "lemma capture model.gguf --text \"Once upon\" --sites 'layers.*.ffn.output' --out "
      "x.safetensors");
  CaptureOptions options;
  std::string sites;
  parser.model(options.model.path);
  parser.flag("--list", options.list, "print the sites with their widths, and run nothing");
  parser.flag("--routes", options.routes, "write the experts' routes, as a route trace");
  parser.text("--sites", sites, "PATTERNS", "which sites, for example layers.*.attention.output");
  parser.path("--text", options.text, "TEXT", "the text to run");
  parser.path("--tokens", options.tokens, "FILE", "a JSON array of token ids to run instead");
  parser.path("--out", options.out, "FILE|DIR",
              "the file; a folder, there already or ending in '/', gets a file for each site");
  parser.several("--steer-from", options.steer_from, 2, "FILE FILE",
                 "two files of prompts, one a line: towards the first, away from the second");
  parser.word<bool>("--rows", options.all_rows, {{"last", false}, {"all", true}},
                    "of each prompt: its last token's row, or the mean over all (default last)");
  parser.loading(options.model);
  parser.machine(options.model);
  return parser.parse(std::move(arguments), [&]() -> Command {
    if (parser.given("--sites")) options.sites = parse_list("--sites", sites);
    check_capture(parser, options);
    parser.report_idle_machine_options(options.model);
    return std::move(options);
  });
}

}  // namespace lemma::cli
