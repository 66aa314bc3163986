// SPDX-License-Identifier: Apache-2.0
#include "cli/subcommands.hpp"

#include <utility>

namespace lemma::cli {

namespace {

void calibration(Parser& parser, CalibrationText& text) {
  parser.number<std::uint32_t>("--window", text.window, {4, kMaxU32 - 1}, "N",
                               "tokens of a window, which is run by itself (default 512, or the "
                               "context if that is less)");
  parser.number<std::uint32_t>("--tokens", text.tokens, {4, kMaxU32 - 1}, "N",
                               "run the first N tokens of the text alone");
}

}  // namespace

CommandLine parse_imatrix(Arguments arguments) {
  Parser parser(
      "imatrix", "MODEL TEXTFILE -o FILE [options]",
      "Runs a text through a model and writes how much each input of its matrices matters: the "
      "sum of the squares of\nwhat each column meets, for each expert by itself, in the GGUF form "
      "that `lemma quantize --imatrix` and\nllama.cpp read. Says which experts the text never "
      "reached and of which matrices nothing is known.",
      "lemma imatrix model.gguf text.txt -o importance.gguf");
  ImatrixOptions options;
  parser.model(options.model.path);
  parser.path("TEXTFILE", options.text.path, "", "the text, as UTF-8");
  parser.require("TEXTFILE");
  parser.path("-o,--out", options.out, "FILE", "the file to write");
  parser.require("--out");
  parser.repeated("--in", options.in, "FILE",
                  "add the sums of this file, of the same model, to those of the text");
  calibration(parser, options.text);
  parser.loading(options.model);
  parser.machine(options.model);
  return parser.parse(std::move(arguments), [&]() -> Command {
    parser.report_idle_machine_options(options.model);
    return std::move(options);
  });
}

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
  parser.flag("--gptq", options.gptq,
              "choose codes by what they do to the outputs on a calibration text, which runs "
              "through IN (GPTQ); for the formats Q2_K to Q6_K, Q4_0 to Q5_1 and Q8_0");
  parser.path("--calibration", options.calibration.path, "TEXTFILE",
              "with --gptq: the text, as UTF-8");
  calibration(parser, options.calibration);
  parser.number<float>("--damping", options.damping, {1e-6f, 1.f}, "F",
                       "with --gptq: this part of its diagonal's mean is added to the diagonal of "
                       "each Hessian (default 0.01)");
  parser.number<int>("--threads", options.threads, {1, 1024}, "N",
                     "threads (default: one for each processor)");
  return parser.parse(std::move(arguments), [&]() -> Command {
    if (options.gptq && !parser.given("--calibration")) refuse("--gptq needs --calibration");
    for (const char* name : {"--calibration", "--window", "--tokens", "--damping"})
      if (!options.gptq && parser.given(name))
        refuse(std::string(name) + " has no effect without --gptq");
    return std::move(options);
  });
}

}  // namespace lemma::cli
