// SPDX-License-Identifier: Apache-2.0
// The subcommands. Each carries out one parsed command line and returns the exit status; results go
// to stdout and everything else to stderr. Failures are thrown as lemma::Error.
#pragma once

#include "cli/options.hpp"

namespace lemma::cli {

int run(const RunOptions& options);
int run_chat(const ChatOptions& options);
int render(const RenderOptions& options);
int tokenize(const TokenizeOptions& options);
int detokenize(const DetokenizeOptions& options);
int logits(const LogitsOptions& options);
int show(const ShowOptions& options);
int show_files(const ShowFilesOptions& options);
int check(const CheckOptions& options);
int bench(const BenchOptions& options);
int eval(const EvalOptions& options);
int capture(const CaptureOptions& options);
int explain(const ExplainOptions& options);
int imatrix(const ImatrixOptions& options);
int quantize(const QuantizeOptions& options);
int pull(const PullOptions& options);
int list(const ListOptions& options);
int remove(const RemoveOptions& options);

}  // namespace lemma::cli
