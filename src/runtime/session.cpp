// SPDX-License-Identifier: Apache-2.0
#include "lemma/session.hpp"

#include <algorithm>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "algorithm/sampling.hpp"
#include "base/raise.hpp"
#include "lemma/engine.hpp"
#include "runtime/engine_core.hpp"
#include "runtime/session_job.hpp"

namespace lemma {

using runtime::SessionJob;
using runtime::SessionState;

struct Sampler::Impl {
  Sampling sampling;
  std::uint64_t seed;
  algorithm::Random random{seed};
  std::vector<std::uint8_t> fence{};  // of the last choice: its memory is used again
};

Sampler::Sampler(Sampling sampling, std::optional<std::uint64_t> seed) {
  algorithm::validate(sampling);
  std::random_device device;
  const std::uint64_t chosen = seed ? *seed : (std::uint64_t(device()) << 32) | device();
  impl_ = std::make_unique<Impl>(Impl{std::move(sampling), chosen});
}

Sampler::Sampler(Sampler&&) noexcept = default;
Sampler& Sampler::operator=(Sampler&&) noexcept = default;
Sampler::~Sampler() = default;

std::uint64_t Sampler::seed() const noexcept {
  return impl_->seed;
}

struct SavedSession::Impl {
  Impl(std::shared_ptr<Engine> owner, runtime::StepLoop& step_loop)
      : engine(std::move(owner)), loop(step_loop) {}
  ~Impl() {
    loop.call([last = std::move(state)] { last->sequence.reset(); });
  }

  const std::shared_ptr<Engine> engine;  // first: the loop must outlive the state
  runtime::StepLoop& loop;
  std::shared_ptr<SessionState> state = std::make_shared<SessionState>();
};

struct Session::Impl {
  Impl(std::shared_ptr<Engine> owner, runtime::EngineCore& core)
      : engine(std::move(owner)), loop(&core.loop), store(&core.state.store()), facts(core.facts) {}

  /// Pages are given back on the loop's thread.
  ~Impl() {
    loop->call([last = std::move(state)] { last->sequence.reset(); });
  }

  SyncResult run(SessionJob::Kind kind, std::span<const TokenId> tokens,
                 const CallOptions& call = {}) {
    const auto job = std::make_shared<SessionJob>(kind, state, tokens, facts->class_ignored, call);
    // A job that still waits for its start is looked at again.
    const std::stop_callback wake(call.stop, [this] { loop->wake(); });
    loop->submit(job);
    return job->wait();
  }

  /// Makes `to` what `from` is, on the loop's thread; waits for it. Throws, with `to` as it was.
  void copy(std::shared_ptr<SessionState> from, std::shared_ptr<SessionState> to) const {
    runtime::Completion completion;
    loop->call([&] {
      std::optional<runtime::Failure> failure;
      try {
        runtime::copy_session(*from, *to, *store);
      } catch (...) {
        failure = runtime::current_failure();
      }
      completion.done(std::move(failure));
    });
    completion.wait();
  }

  /// Everything that can be known to fail before a row runs.
  void check(const char* what, std::span<const TokenId> tokens, std::size_t past) const {
    runtime::check_continues(what, *facts);
    if (tokens.empty()) base::raise(ErrorKind::kUsage, "{}: there are no tokens", what);
    runtime::check_tokens(what, tokens, *facts);
    runtime::check_context("the timeline", past + tokens.size(), *facts);
  }

  const std::shared_ptr<Engine> engine;  // first: the loop must outlive the state
  runtime::StepLoop* const loop;
  backend::StateStore* const store;  // only for the loop's thread
  const std::shared_ptr<const runtime::ModelFacts> facts;
  std::shared_ptr<SessionState> state = std::make_shared<SessionState>();
};

Session Engine::session() {
  return Session(std::make_unique<Session::Impl>(shared_from_this(), *impl_->core));
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

SyncResult Session::sync(std::span<const TokenId> tokens, const CallOptions& call) {
  impl_->check("sync", tokens, 0);
  return impl_->run(SessionJob::Kind::kSync, tokens, call);
}

void Session::append(std::span<const TokenId> tokens, const CallOptions& call) {
  impl_->check("append", tokens, length());
  impl_->run(SessionJob::Kind::kAppend, tokens, call);
}

void Session::decode(TokenId token) {
  const std::span<const TokenId> tokens(&token, 1);
  impl_->check("decode", tokens, length());
  if (length() == 0) base::raise(ErrorKind::kUsage, "decode: the session holds no prompt yet");
  impl_->run(SessionJob::Kind::kDecode, tokens);
}

RewindResult Session::rewind(std::size_t wish) {
  if (wish > length()) {
    base::raise(ErrorKind::kUsage, "rewind: expected a length from 0 to {}, found {}", length(),
                wish);
  }
  if (wish == length()) return {wish, {}};
  RewindResult result;
  runtime::Completion completion;
  impl_->loop->call([&] {
    state::RewindPoint point = impl_->state->sequence->reachable(wish);
    impl_->state->cut(point.length);
    impl_->state->logits.clear();
    result = {point.length, std::move(point.reason)};
    completion.done();
  });
  completion.wait();
  return result;
}

TokenId Session::choose(Sampler& sampler) const {
  if (logits().empty()) base::raise(ErrorKind::kUsage, "choose: there are no logits to choose by");
  // A model may have more output rows than its tokenizer has tokens (padding); those are no choice.
  const std::size_t spelt = impl_->facts->tokenizer->vocabulary_size();
  Sampler::Impl& own = *sampler.impl_;
  own.fence.clear();
  if (spelt < logits().size()) {
    own.fence.assign(logits().size(), 0);
    std::fill_n(own.fence.begin(), spelt, std::uint8_t{1});
  }
  return algorithm::sample(own.sampling, logits(), tokens(), own.fence, own.random);
}

SavedSession Session::save() const {
  auto saved = std::make_shared<SavedSession::Impl>(impl_->engine, *impl_->loop);
  impl_->copy(impl_->state, saved->state);
  return SavedSession(std::move(saved));
}

void Session::restore(const SavedSession& saved) {
  if (saved.impl_->engine != impl_->engine) {
    base::raise(ErrorKind::kUsage, "restore: the saved session belongs to another engine");
  }
  impl_->copy(saved.impl_->state, impl_->state);
}

std::size_t SavedSession::length() const noexcept {
  return impl_->state->length();
}

std::span<const TokenId> SavedSession::tokens() const noexcept {
  if (!impl_->state->sequence) return {};
  return impl_->state->sequence->tokens();
}

std::size_t Session::length() const noexcept {
  return impl_->state->length();
}

std::span<const TokenId> Session::tokens() const noexcept {
  if (!impl_->state->sequence) return {};
  return impl_->state->sequence->tokens();
}

std::span<const float> Session::logits() const noexcept {
  return impl_->state->logits;
}

}  // namespace lemma
