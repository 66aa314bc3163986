// SPDX-License-Identifier: Apache-2.0
#include "runtime/generation.hpp"

#include <random>
#include <string>
#include <utility>

#include "base/raise.hpp"
#include "runtime/log_probabilities.hpp"

namespace lemma::runtime {
namespace {

constexpr int kMaxTop = 20;

Request checked(Request request, const ModelFacts& facts) {
  check_continues("generation", facts);
  if (request.prompt.empty()) base::raise(ErrorKind::kUsage, "the prompt has no tokens");
  check_tokens("prompt", request.prompt, facts);
  check_context("the prompt", request.prompt.size(), facts);
  algorithm::validate(request.sampling);
  for (const auto& bias : request.sampling.logit_bias) {
    check_tokens("logit_bias", std::span(&bias.first, 1), facts);
  }
  if (request.constraint && !request.stop_at_end)
    base::raise(ErrorKind::kUsage, "a constrained text ends with an end token: stop_at_end is off");
  if (request.log_probabilities < -1 || request.log_probabilities > kMaxTop) {
    base::raise(ErrorKind::kUsage,
                "log_probabilities: expected -1 (none) or a number from 0 to {}, found {}", kMaxTop,
                request.log_probabilities);
  }
  return request;
}

std::uint64_t fresh_seed() {
  std::random_device device;
  return (std::uint64_t(device()) << 32) | device();
}

/// A model may have more output rows than its tokenizer has tokens (padding); those are no choice.
std::vector<std::uint8_t> fence_of(const ModelFacts& facts) {
  const std::size_t spelt = facts.tokenizer->vocabulary_size();
  if (spelt >= facts.vocabulary) return {};
  std::vector<std::uint8_t> fence(facts.vocabulary, 0);
  for (std::size_t i = 0; i < spelt; ++i) fence[i] = 1;
  return fence;
}

std::unique_ptr<text::constraint::Matcher> matcher_of(const Request& request,
                                                      const ModelFacts& facts) {
  if (!request.constraint) return nullptr;
  if (facts.constraints) return facts.constraints->matcher(*request.constraint);
  return text::constraint::ProgramCache(facts.tokenizer).matcher(*request.constraint);
}

}  // namespace

GenerationJob::GenerationJob(Request request, std::shared_ptr<const ModelFacts> facts)
    : request_(checked(std::move(request), *facts)),
      facts_(std::move(facts)),
      random_(0),
      fence_(fence_of(*facts_)),
      constraint_(matcher_of(request_, *facts_)),
      text_(*facts_->tokenizer),
      stop_(request_.stop),
      history_(request_.prompt),
      submitted_(Clock::now()) {
  usage_.prompt_tokens = request_.prompt.size();
  usage_.seed = request_.seed ? *request_.seed : fresh_seed();
  random_ = algorithm::Random(usage_.seed);
}

std::optional<Event> GenerationJob::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return over_ || !events_.empty(); });
  if (!events_.empty()) {
    Event event = std::move(events_.front());
    events_.pop_front();
    return event;
  }
  if (reported_failure_) {
    const Failure failure = *std::exchange(reported_failure_, std::nullopt);
    throw Error(failure.kind, failure.message);
  }
  return std::nullopt;
}

bool GenerationJob::start(state::PagePool& pool) {
  started_ = Clock::now();
  if (request_.max_tokens == 0) {
    finish_ = FinishReason::kLength;
    return false;
  }
  sequence_ = std::make_unique<state::Sequence>(pool);
  return true;
}

Task GenerationJob::task() const noexcept {
  const std::size_t done = sequence_->length();
  const std::size_t prompt = request_.prompt.size();
  if (done >= prompt) return {TaskKind::kDecodeRound, std::span(history_).subspan(done)};
  return {done == 0 ? TaskKind::kNewPrefill : TaskKind::kAppendPrefill,
          std::span(request_.prompt).subspan(done)};
}

bool GenerationJob::advance(std::size_t, std::span<const float> logits) {
  const std::size_t done = sequence_->length();
  const std::size_t prompt = request_.prompt.size();
  if (done > prompt) {
    ++usage_.decode_rounds;
  } else {
    if (!logits.empty()) prefilled_ = Clock::now();
    if (request_.progress) request_.progress("prefill", double(done) / double(prompt));
  }
  return logits.empty() || choose(logits);
}

/// A token that the constraint, if there is one, allows, and the constraint goes on by it.
TokenId GenerationJob::sample(std::span<const float> logits) {
  const auto draw = [&] {
    return algorithm::sample(request_.sampling, logits, history_, fence_, random_);
  };
  if (!constraint_) return draw();
  fence_.resize(facts_->vocabulary);
  if (!constraint_->mask(fence_)) {
    base::raise(ErrorKind::kUnsupported,
                "the constraint leaves nothing to choose behind {} tokens: no token of this "
                "vocabulary goes on, and the text may not end here",
                usage_.generated_tokens);
  }
  // Before the constrained text begins, only the token itself shows that it begins wrongly.
  for (;;) {
    const TokenId id = draw();
    if (constraint_->take(id)) return id;
    fence_[std::size_t(id)] = 0;
  }
}

/// One turn: choose, emit, and decide whether the token is fed.
bool GenerationJob::choose(std::span<const float> logits) {
  const TokenId id = sample(logits);
  if (request_.stop_at_end && facts_->tokenizer->is_end_of_generation(id)) {
    finish_ = FinishReason::kStop;
    return false;
  }
  Event event;
  event.token = id;
  if (request_.log_probabilities >= 0) {
    RowProbabilities row = log_probabilities(logits, id, std::size_t(request_.log_probabilities));
    event.log_probability = row.chosen;
    event.top = std::move(row.top);
  }
  event.text = stop_.push(text_.push(id));
  history_.push_back(id);
  ++usage_.generated_tokens;
  push(std::move(event));

  if (stop_.matched() || (constraint_ && constraint_->finished())) {
    finish_ = FinishReason::kStop;
  } else if (usage_.generated_tokens == request_.max_tokens || history_.size() > facts_->context) {
    finish_ = FinishReason::kLength;
  }
  return !finish_;
}

void GenerationJob::push(Event event) {
  std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
  changed_.notify_all();
}

Event GenerationJob::last_event() {
  Event event;
  event.text = stop_.push(text_.finish());
  if (stop_.matched()) {
    // Bytes that never became a character can complete a stop string that holds U+FFFD.
    event.stop = *stop_.matched();
    finish_ = finish_ == FinishReason::kCancelled ? finish_ : FinishReason::kStop;
  } else {
    event.text += stop_.finish();
  }
  event.finish = finish_;
  note_times(Clock::now());
  event.usage = usage_;
  return event;
}

/// A phase that was never left lasts until `now`; one that was never reached took no time.
void GenerationJob::note_times(Clock::time_point now) {
  usage_.queued = started_.value_or(now) - submitted_;
  if (started_) usage_.prefill = prefilled_.value_or(now) - *started_;
  if (prefilled_) usage_.decode = now - *prefilled_;
}

void GenerationJob::report() noexcept {
  try {
    if (!failure_) push(last_event());
  } catch (...) {
    failure_ = current_failure();
  }
  std::lock_guard lock(mutex_);
  reported_failure_ = std::move(failure_);
  over_ = true;
  changed_.notify_all();
}

}  // namespace lemma::runtime
