// SPDX-License-Identifier: Apache-2.0
#include "lemma/session.hpp"

#include <utility>

#include "base/raise.hpp"
#include "lemma/engine.hpp"
#include "runtime/engine_core.hpp"
#include "runtime/session_job.hpp"

namespace lemma {

using runtime::SessionJob;

struct Session::Impl {
  explicit Impl(std::shared_ptr<Engine> owner, runtime::EngineCore& core)
      : engine(std::move(owner)), loop(&core.loop), facts(core.facts) {}

  /// Pages are given back on the loop's thread.
  ~Impl() {
    loop->call([last = std::move(state)] { last->sequence.reset(); });
  }

  SyncResult run(SessionJob::Kind kind, std::span<const TokenId> tokens) {
    const auto job = std::make_shared<SessionJob>(kind, state, tokens, facts->class_ignored);
    loop->submit(job);
    return job->wait();
  }

  /// Everything that can be known to fail before a row runs.
  void check(const char* what, std::span<const TokenId> tokens, std::size_t past) const {
    if (tokens.empty()) base::raise(ErrorKind::kUsage, "{}: there are no tokens", what);
    runtime::check_tokens(what, tokens, *facts);
    runtime::check_context("the timeline", past + tokens.size(), *facts);
  }

  const std::shared_ptr<Engine> engine;  // first: the loop must outlive the state
  runtime::StepLoop* const loop;
  const std::shared_ptr<const runtime::ModelFacts> facts;
  std::shared_ptr<runtime::SessionState> state = std::make_shared<runtime::SessionState>();
};

Session Engine::session() {
  return Session(std::make_unique<Session::Impl>(shared_from_this(), *impl_->core));
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

SyncResult Session::sync(std::span<const TokenId> tokens) {
  impl_->check("sync", tokens, 0);
  return impl_->run(SessionJob::Kind::kSync, tokens);
}

void Session::append(std::span<const TokenId> tokens) {
  impl_->check("append", tokens, length());
  impl_->run(SessionJob::Kind::kAppend, tokens);
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
    state::Sequence& sequence = *impl_->state->sequence;
    state::RewindPoint point = sequence.reachable(wish);
    sequence.rewind(point.length);
    impl_->state->logits.clear();
    result = {point.length, std::move(point.reason)};
    completion.done();
  });
  completion.wait();
  return result;
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
