// SPDX-License-Identifier: Apache-2.0
#include "cli/subcommands.hpp"

#include <fmt/format.h>

#include <limits>
#include <string>
#include <utility>

namespace lemma::cli {

CommandLine parse_tokenize(Arguments arguments) {
  Parser parser("tokenize", "MODEL [TEXT|-] [options]",
                "Prints the token ids of a text, separated by blanks. An absent text is the empty "
                "one.\nWith --json: {\"ids\":[...],\"pieces\":[...]}; a piece is the text of its "
                "token (control tokens as they are\nspelt), or an array of byte values where that "
                "is no valid UTF-8.\nMODEL may be a tokenizer.json, or a folder with one.",
                "lemma tokenize model.gguf \"Once upon a time\" --json");
  TokenizeOptions options;
  std::string text;
  parser.model(options.model);
  parser.text("TEXT", text, "", "the text; - reads standard input to its end");
  bool no_special = false;
  parser.flag("--no-special", no_special, "add no BOS or EOS, whatever the model says");
  parser.flag("--parse-special", options.parse_special,
              "text that spells a control token, such as <s>, becomes that token");
  parser.flag("--json", options.json, "ids and pieces as JSON");
  parser.pre_tokenizer(options.pre);
  ModelOptions idle;
  parser.machine(idle);
  return parser.parse(std::move(arguments), [&]() -> Command {
    parser.report_idle_machine_options();
    options.add_special = !no_special;
    options.text = text_argument(std::move(text));
    return std::move(options);
  });
}

CommandLine parse_detokenize(Arguments arguments) {
  Parser parser("detokenize", "MODEL IDS... [options]",
                "Prints the text of token ids, byte for byte; a line break is added only on a "
                "terminal.",
                "lemma detokenize model.gguf 1 403 407 261 378");
  DetokenizeOptions options;
  Arguments ids;
  parser.model(options.model);
  parser.rest("IDS", ids, "", "token ids; - reads them from standard input");
  parser.require("IDS");
  parser.flag("--special", options.show_special, "show control tokens as they are spelt");
  parser.pre_tokenizer(options.pre);
  ModelOptions idle;
  parser.machine(idle);
  return parser.parse(std::move(arguments), [&]() -> Command {
    parser.report_idle_machine_options();
    options.from_stdin = ids.size() == 1 && ids[0] == "-";
    if (options.from_stdin) ids.clear();
    for (const std::string& id : ids)
      options.ids.push_back(
          parse_number<TokenId>("IDS", id, 0, std::numeric_limits<TokenId>::max() - 1));
    return std::move(options);
  });
}

}  // namespace lemma::cli
