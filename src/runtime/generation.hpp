// SPDX-License-Identifier: Apache-2.0
// GenerationJob: one request from its prompt to its last event. It prefills, then chooses a token,
// emits it and feeds it, until something ends it:
//   - an end-of-generation token is neither emitted nor fed;
//   - the last token that max_tokens or the context allows is emitted but not fed;
//   - a stop string ends it after the token that completed the string;
//   - so does a constraint whose text is complete.
// Sampling and text belong to the loop's thread, the queue of events to both sides.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "algorithm/sampling.hpp"
#include "lemma/engine.hpp"
#include "runtime/job.hpp"
#include "runtime/model_facts.hpp"
#include "runtime/text_stop.hpp"
#include "text/constraint/matcher.hpp"
#include "text/detokenizer.hpp"

namespace lemma::runtime {

class GenerationJob final : public Job {
 public:
  /// Throws kUsage for parameters out of range and ids outside the vocabulary, kContextFull for a
  /// prompt that does not fit.
  GenerationJob(Request request, std::shared_ptr<const ModelFacts> facts);

  // The client's side, from any thread.

  /// Waits for the next event; nothing after the last one. Throws the request's error, once.
  std::optional<Event> next();
  void request_cancel() noexcept { cancel_requested_.store(true, std::memory_order_relaxed); }

  // The loop's side.

  bool start(state::PagePool& pool) override;
  bool cancel_requested() const noexcept override {
    return cancel_requested_.load(std::memory_order_relaxed);
  }
  Task task() const noexcept override;
  state::Sequence& sequence() noexcept override { return *sequence_; }
  bool advance(std::size_t rows, std::span<const float> logits) override;
  void fail(Failure failure) noexcept override { failure_ = std::move(failure); }
  void cancel() noexcept override { finish_ = FinishReason::kCancelled; }
  void release() noexcept override { sequence_.reset(); }
  void report() noexcept override;

 private:
  using Clock = std::chrono::steady_clock;

  bool choose(std::span<const float> logits);
  TokenId sample(std::span<const float> logits);
  void push(Event event);
  Event last_event();
  void note_times(Clock::time_point now);

  const Request request_;
  const std::shared_ptr<const ModelFacts> facts_;

  // Owned by the loop's thread from start() on.
  std::unique_ptr<state::Sequence> sequence_;
  algorithm::Random random_;
  std::vector<std::uint8_t> fence_;  ///< excludes ids that the tokenizer cannot spell; or empty
  std::unique_ptr<text::constraint::Matcher> constraint_;  ///< or null; sets the fence each turn
  text::Detokenizer text_;
  TextStop stop_;
  std::vector<TokenId> history_;  ///< prompt and emitted tokens
  std::optional<FinishReason> finish_;
  std::optional<Failure> failure_;
  Usage usage_;
  Clock::time_point submitted_;
  std::optional<Clock::time_point> started_, prefilled_;

  std::atomic<bool> cancel_requested_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Event> events_;                 // under mutex_
  std::optional<Failure> reported_failure_;  // under mutex_
  bool over_ = false;                        // under mutex_: no event will follow
};

}  // namespace lemma::runtime
