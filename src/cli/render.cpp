// SPDX-License-Identifier: Apache-2.0
// `lemma render`: a chat template and its variables become the prompt, byte for byte. A template
// that fails, or refuses the conversation, is a failure with its own words.
#include "base/raise.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "lemma/chat.hpp"

namespace lemma::cli {
namespace {

std::string rendered(const ChatTemplate& chat, const RenderOptions& options) {
  const bool from_stdin = options.input == "-";
  const std::string variables = from_stdin ? read_stdin() : read_file(options.input);
  try {
    return chat.render_json(variables, options.now);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kTemplate) throw error.within(options.model.string());
    // The command line is right; the file is not.
    const std::string name = from_stdin ? "standard input" : options.input.string();
    throw Error(ErrorKind::kBadFile, error.within(name).what());
  }
}

}  // namespace

int render(const RenderOptions& options) {
  write_out(rendered(ChatTemplate::open(options.model, options.template_name), options));
  return kDone;
}

}  // namespace lemma::cli
