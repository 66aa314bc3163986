// SPDX-License-Identifier: Apache-2.0
// The program `lemma`: parse, dispatch, and turn what went wrong into a message and an exit status:
// 0 done, 1 the work failed, 2 wrong usage. The only place that ends the process.
#include <fmt/format.h>
#include <signal.h>

#include <exception>
#include <new>
#include <string_view>
#include <variant>

#include "base/log.hpp"
#include "cli/commands.hpp"
#include "cli/options.hpp"
#include "cli/output.hpp"
#include "lemma/error.hpp"

namespace {

using namespace lemma;

struct Dispatch {
  int operator()(const cli::RunOptions& options) const { return cli::run(options); }
  int operator()(const cli::ChatOptions& options) const { return cli::run_chat(options); }
  int operator()(const cli::RenderOptions& options) const { return cli::render(options); }
  int operator()(const cli::TokenizeOptions& options) const { return cli::tokenize(options); }
  int operator()(const cli::DetokenizeOptions& options) const { return cli::detokenize(options); }
  int operator()(const cli::LogitsOptions& options) const { return cli::logits(options); }
  int operator()(const cli::ShowOptions& options) const { return cli::show(options); }
  int operator()(const cli::ShowFilesOptions& options) const { return cli::show_files(options); }
  int operator()(const cli::CheckOptions& options) const { return cli::check(options); }
  int operator()(const cli::BenchOptions& options) const { return cli::bench(options); }
  int operator()(const cli::EvalOptions& options) const { return cli::eval(options); }
  int operator()(const cli::CaptureOptions& options) const { return cli::capture(options); }
  int operator()(const cli::ExplainOptions& options) const { return cli::explain(options); }
  int operator()(const cli::ImatrixOptions& options) const { return cli::imatrix(options); }
  int operator()(const cli::QuantizeOptions& options) const { return cli::quantize(options); }
  int operator()(const cli::PullOptions& options) const { return cli::pull(options); }
  int operator()(const cli::ListOptions& options) const { return cli::list(options); }
  int operator()(const cli::RemoveOptions& options) const { return cli::remove(options); }
};

int print(const cli::CommandLine& line) {
  if (line.status == cli::kDone)
    cli::write_out(line.text);
  else
    cli::write_err(line.text);
  return line.status;
}

int fail(int status, std::string_view message) {
  cli::write_err(fmt::format("lemma: {}\n", message));
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  // A closed pipe shows as a failed write, which ends the run in order (cli/output.hpp).
  ::signal(SIGPIPE, SIG_IGN);
  base::set_log_sink(
      [](base::LogLevel level, std::string_view message) {
        cli::write_err(fmt::format("{}: {}\n", base::to_string(level), message));
      },
      base::LogLevel::kWarning);
  try {
    const cli::CommandLine line = cli::parse_command_line(argc, argv);
    if (!line.command) return print(line);
    cli::write_err(line.text);
    return std::visit(Dispatch{}, *line.command);
  } catch (const cli::OutputClosed&) {
    return cli::kDone;
  } catch (const Error& error) {
    return fail(error.kind() == ErrorKind::kUsage ? cli::kWrongUsage : cli::kFailed, error.what());
  } catch (const std::bad_alloc&) {
    return fail(cli::kFailed, "out of memory");
  } catch (const std::exception& error) {
    return fail(cli::kFailed, error.what());
  }
}
