// SPDX-License-Identifier: Apache-2.0
// The subcommands' options, one function for each; options.cpp holds their table. They stand in
// options_generate.cpp and options_chat.cpp (what makes text), options_tokens.cpp (text and ids),
// options_inspect.cpp (what a model is and holds), options_measure.cpp (how right and how fast it
// is), options_make.cpp (models in other formats) and options_models.cpp (models by name).
#pragma once

#include "cli/parser.hpp"

namespace lemma::cli {

CommandLine parse_run(Arguments arguments);
CommandLine parse_chat(Arguments arguments);
CommandLine parse_explain(Arguments arguments);
CommandLine parse_render(Arguments arguments);
CommandLine parse_tokenize(Arguments arguments);
CommandLine parse_detokenize(Arguments arguments);
CommandLine parse_logits(Arguments arguments);
CommandLine parse_show(Arguments arguments);
CommandLine parse_capture(Arguments arguments);
CommandLine parse_check(Arguments arguments);
CommandLine parse_bench(Arguments arguments);
CommandLine parse_eval(Arguments arguments);
CommandLine parse_imatrix(Arguments arguments);
CommandLine parse_quantize(Arguments arguments);
CommandLine parse_pull(Arguments arguments);
CommandLine parse_list(Arguments arguments);
CommandLine parse_rm(Arguments arguments);

// Of commands that make text.
void add_sampling(Parser& parser, Sampling& s, std::optional<std::uint64_t>& seed);
void refuse_idle_sampling(const Parser& parser, const Sampling& sampling);

}  // namespace lemma::cli
