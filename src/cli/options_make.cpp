// SPDX-License-Identifier: Apache-2.0
#include "cli/subcommands.hpp"

#include <utility>

namespace lemma::cli {

CommandLine parse_quantize(Arguments arguments) {
  Parser parser(
      "quantize", "IN OUT FORMAT [options]",
      "Writes a model as a GGUF file with its matrices in another format. FORMAT is a block format "
      "(Q8_0, Q4_K, IQ2_XXS,\n...) or a mixed recipe (Q4_K_M, Q2_K, IQ3_M, ..., MOE_2BIT), which "
      "gives more bits to the matrices that matter\nmost; a wrong name lists all. Vectors and "
      "routers keep their values. OUT appears when it is whole; an interrupted\nrun goes on where "
      "it stopped.",
      "lemma quantize model-f16.gguf model-q4.gguf Q4_K_M --type 'blk.0.*=Q6_K'");
  QuantizeOptions options;
  std::string in;
  parser.model(options.in, "IN");
  parser.path("OUT", options.out, "", "the GGUF file to write");
  parser.text("FORMAT", options.format, "", "a block format or a recipe");
  parser.require("OUT");
  parser.require("FORMAT");
  parser.path("--imatrix", options.importance, "FILE",
              "importance of each input (a GGUF importance matrix, or the older .dat form); below "
              "4 bits it "
              "matters much");
  parser.repeated("--type", options.rules, "PATTERN=FORMAT",
                  "the format of tensors whose name matches ('*' any text, '?' one character); the "
                  "first rule that matches decides");
  parser.number<int>("--threads", options.threads, {1, 1024}, "N",
                     "threads (default: one for each processor)");
  return parser.parse(std::move(arguments), [&]() -> Command { return std::move(options); });
}

}  // namespace lemma::cli
