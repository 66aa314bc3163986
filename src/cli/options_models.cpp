// SPDX-License-Identifier: Apache-2.0
#include "cli/subcommands.hpp"

#include <string>
#include <utility>

namespace lemma::cli {

CommandLine parse_pull(Arguments arguments) {
  Parser parser(
      "pull", "hf:OWNER/NAME[@REVISION][:FILE] | URL [options]",
      "Fetches a model into the cache folder ($LEMMA_CACHE, else $XDG_CACHE_HOME/lemma, "
      "else ~/.cache/lemma) and prints\nits path. FILE is a GGUF file of the repository "
      "or a part of its name, Q4_K_M say. Without one the repository\nmust have a single "
      "GGUF model, or safetensors files. A transfer that breaks goes on where it "
      "stopped.\n$HF_TOKEN is sent to the hub, $HF_ENDPOINT names another one. Afterwards "
      "the name can stand wherever a model\nis asked for; no other command uses the "
      "network.",
      "lemma pull hf:ggml-org/gemma-3-270m-it-GGUF:Q8_0");
  PullOptions options;
  parser.text("NAME", options.model, "", "the model's name, or the URL of a file");
  parser.require("NAME");
  parser.path("--sha256", options.sha256, "HEX", "what the digest of a URL's file must be");
  return parser.parse(std::move(arguments), [&]() -> Command {
    if (options.sha256 &&
        (options.sha256->size() != 64 ||
         options.sha256->find_first_not_of("0123456789abcdef") != std::string::npos))
      refuse("--sha256: expected 64 hexadecimal digits in lower case, found '" + *options.sha256 +
             "'");
    return std::move(options);
  });
}

CommandLine parse_list(Arguments arguments) {
  Parser parser("list", "", "Lists the models in the cache folder, with their sizes.",
                "lemma list");
  return parser.parse(std::move(arguments), []() -> Command { return ListOptions{}; });
}

CommandLine parse_rm(Arguments arguments) {
  Parser parser("rm", "NAME", "Removes a model from the cache folder.",
                "lemma rm hf:ggml-org/gemma-3-270m-it-GGUF:Q8_0");
  RemoveOptions options;
  parser.text("NAME", options.model, "", "the model's name, as 'lemma list' shows it");
  parser.require("NAME");
  return parser.parse(std::move(arguments), [&]() -> Command { return std::move(options); });
}

}  // namespace lemma::cli
