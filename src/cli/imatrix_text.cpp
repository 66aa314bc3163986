// SPDX-License-Identifier: Apache-2.0
#include "cli/imatrix_text.hpp"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "base/checksum.hpp"
#include "base/log.hpp"
#include "base/raise.hpp"
#include "base/utf8.hpp"
#include "cli/output.hpp"
#include "eval/windows.hpp"

namespace lemma::cli {
namespace {

constexpr std::uint32_t kWindow = 512;

std::vector<std::int32_t> encode(const CalibrationText& text, const text::Tokenizer& tokenizer) {
  const std::string bytes = read_file(text.path);
  if (!base::is_valid_utf8(bytes))
    base::log(base::LogLevel::kWarning, "{}: not valid UTF-8", text.path.string());
  std::vector<std::int32_t> ids = tokenizer.encode(bytes);
  if (tokenizer.adds_eos() && !ids.empty()) ids.pop_back();  // the text goes on
  if (text.tokens && *text.tokens < ids.size()) ids.resize(*text.tokens);
  return ids;
}

}  // namespace

CalibrationTokens calibration_tokens(const CalibrationText& text, const runtime::LoadedModel& model,
                                     ProgressCallback progress) {
  if (model.tokenizer() == nullptr)
    base::raise(ErrorKind::kUnsupported, "this model has no tokenizer for the text");
  const text::Tokenizer& tokenizer = *model.tokenizer();
  CalibrationTokens result;
  result.ids = encode(text, tokenizer);
  const std::uint32_t window = text.window.value_or(std::min(kWindow, model.context()));
  result.options.window = window;
  eval::PerplexityOptions cut{.window = window, .progress = std::move(progress)};
  if (tokenizer.adds_bos()) cut.bos = tokenizer.bos();
  base::Digest digest;
  digest.add(std::as_bytes(std::span(result.ids)));
  digest.add(std::as_bytes(std::span(&window, 1)));
  result.digest = digest.hex();
  // The windows own a copy of the ids: the result may be moved.
  result.windows = [ids = std::make_shared<const std::vector<std::int32_t>>(result.ids), cut,
                    context = model.context()](const auto& body) {
    eval::for_each_window(*ids, cut, context, [&](const eval::Window& part) { body(part.ids); });
  };
  return result;
}

}  // namespace lemma::cli
