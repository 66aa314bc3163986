// SPDX-License-Identifier: Apache-2.0
// `lemma run`: a prompt in, streamed text out. Uses the engine as an outsider would.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/commands.hpp"
#include "cli/engine_options.hpp"
#include "cli/interruption.hpp"
#include "cli/output.hpp"
#include "cli/progress_bar.hpp"
#include "lemma/engine.hpp"

namespace lemma::cli {
namespace {

/// The text of the generated tokens is what they add to the prompt's: decode(prompt + generated)
/// without its beginning decode(prompt). These agree piece by piece except in one place: where the
/// prompt holds no text, the first token stands at the start of the text, and there a SentencePiece
/// vocabulary's blank is not part of it.
class Continuation {
 public:
  Continuation(const Tokenizer& tokenizer, const std::vector<TokenId>& prompt)
      : tokenizer_(tokenizer), at_start_(tokenizer.decode(prompt).empty()) {}

  /// `text` of an event without what does not belong to the continuation.
  std::string_view take(const Event& event) {
    std::string_view text = event.text;
    if (at_start_ && event.token) {
      const std::string piece = tokenizer_.piece(*event.token);
      const std::string added = tokenizer_.decode({&*event.token, 1});
      if (!piece.empty()) at_start_ = false;
      surplus_ = piece.size() - added.size();
    }
    const std::size_t drop = std::min(surplus_, text.size());
    text.remove_prefix(drop);
    surplus_ -= drop;
    return text;
  }

 private:
  const Tokenizer& tokenizer_;
  bool at_start_;
  std::size_t surplus_ = 0;  ///< bytes at the front of the coming text that are not part of it
};

std::vector<TokenId> encode_prompt(const Tokenizer& tokenizer, const RunOptions& options) {
  const std::string text = options.prompt.from_stdin ? read_stdin() : options.prompt.text;
  std::vector<TokenId> ids = tokenizer.encode(text, {.parse_special = options.parse_special});
  if (ids.empty() && tokenizer.bos()) ids.push_back(*tokenizer.bos());
  if (ids.empty())
    throw Error(ErrorKind::kUsage, "the prompt is empty and this model has no BOS: give a prompt");
  if (tokenizer.starts_with_two_bos(ids))
    write_err("warning: the prompt begins with BOS twice: typed, and added by the model's rule\n");
  return ids;
}

double per_second(std::size_t count, std::chrono::duration<double> time) {
  return time.count() > 0 ? static_cast<double>(count) / time.count() : 0.0;
}

std::string_view reason_of(const Event& last) {
  switch (*last.finish) {
    case FinishReason::kStop:
      return last.stop.empty() ? "end of text" : "stop text";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  return "unknown";
}

void print_statistics(const Engine& engine, const RunOptions& options, const Event& last,
                      const MemoryUse& memory) {
  const Usage& usage = last.usage;
  std::string text = stdout_is_terminal() ? "\n\n" : "";
  text += fmt::format("prefill  {} tokens in {:.3f} s, {:.1f} tokens/s\n", usage.prompt_tokens,
                      usage.prefill.count(), per_second(usage.prompt_tokens, usage.prefill));
  text += fmt::format("decode   {} tokens, {} rounds in {:.3f} s, {:.1f} tokens/s; ended by {}\n",
                      usage.generated_tokens, usage.decode_rounds, usage.decode.count(),
                      per_second(usage.decode_rounds, usage.decode), reason_of(last));
  text += fmt::format("memory   weights {} mapped and {} packed, state {} of {} used, scratch {}\n",
                      format_bytes(memory.mapped), format_bytes(memory.weights),
                      format_bytes(memory.state_used), format_bytes(memory.state_allocated),
                      format_bytes(memory.scratch));
  if (memory.experts_in_file > 0)
    text += fmt::format("experts  {} in the file; {} of {} choices foreseen\n",
                        format_bytes(memory.experts_in_file), memory.experts_foreseen,
                        memory.experts_chosen);
  text += fmt::format("backend  {}\n", engine.info().backend);
  if (options.sampling.temperature > 0.f) text += fmt::format("seed     {}\n", usage.seed);
  write_err(text);
}

/// Prints what `generation` yields; the last event. `memory` is what was in use at most.
Event stream(Generation& generation, const Engine& engine, const std::vector<TokenId>& prompt,
             ProgressBar& progress, MemoryUse& memory) {
  Continuation continuation(engine.tokenizer(), prompt);
  while (std::optional<Event> event = generation.next()) {
    progress.clear();
    write_out(continuation.take(*event));
    const std::uint64_t state_used = memory.state_used;
    memory = engine.memory();
    memory.state_used = std::max(memory.state_used, state_used);
    if (event->finish) return std::move(*event);
  }
  throw Error(ErrorKind::kInternal, "the generation ended without saying so");
}

}  // namespace

int run(const RunOptions& options) {
  ProgressBar progress;
  EngineOptions machine = engine_options(options.model, progress.callback());
  machine.steering = options.steering;
  machine.prefetch_experts = options.prefetch_experts;
  const auto engine = Engine::open(options.model.path, std::move(machine));
  const std::vector<TokenId> prompt = encode_prompt(engine->tokenizer(), options);
  Generation generation = engine->submit({.prompt = prompt,
                                          .sampling = options.sampling,
                                          .seed = options.seed,
                                          .max_tokens = options.max_tokens,
                                          .stop = options.stop,
                                          .constraint = options.constraint,
                                          .progress = progress.callback()});
  std::atomic<bool> signalled = false, output_closed = false;
  const Interruption interruption([&](Interruption::Cause cause) {
    (cause == Interruption::Cause::kSignal ? signalled : output_closed) = true;
    generation.cancel();
  });
  MemoryUse memory;
  const Event last = stream(generation, *engine, prompt, progress, memory);
  print_statistics(*engine, options, last, memory);
  if (output_closed) return kDone;
  return signalled ? kFailed : kDone;
}

}  // namespace lemma::cli
