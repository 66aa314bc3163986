// SPDX-License-Identifier: Apache-2.0
#include "runtime/session_job.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace lemma::runtime {
namespace {

std::size_t common_prefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  return std::size_t(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

/// Tokens of a long prompt after which a snapshot is worth one of the few that are kept.
constexpr std::size_t kSnapshotEvery = 4096;

void add_reason(std::string& reasons, std::string_view reason) {
  if (!reasons.empty()) reasons += "; ";
  reasons += reason;
}

}  // namespace

Reuse plan_reuse(const state::Sequence& sequence, std::span<const TokenId> tokens, bool has_logits,
                 bool class_ignored, std::size_t snapshot_length) {
  Reuse reuse;
  reuse.length = common_prefix(sequence.tokens(), tokens);
  if (!class_ignored) {
    const auto classes = sequence.classes().first(reuse.length);
    const auto generated = std::find(classes.begin(), classes.end(), state::TokenClass::kGenerated);
    if (generated != classes.end()) {
      reuse.length = std::size_t(generated - classes.begin());
      add_reason(reuse.reason,
                 fmt::format("token {} was generated and is entered anew", reuse.length));
    }
  }
  const bool equal = reuse.length == tokens.size() && reuse.length == sequence.length();
  if (equal && has_logits) return reuse;
  if (reuse.length == tokens.size() && reuse.length == snapshot_length &&
      sequence.reachable(snapshot_length).length == snapshot_length) {
    return reuse;
  }
  if (reuse.length == tokens.size()) {
    --reuse.length;
    add_reason(reuse.reason, "the last token is computed again for its logits");
  }
  if (reuse.length < sequence.length()) {
    state::RewindPoint point = sequence.reachable(reuse.length);
    if (point.length < reuse.length) add_reason(reuse.reason, point.reason);
    reuse.length = point.length;
  }
  return reuse;
}

void SessionState::end_prompt() {
  sequence->snapshot();
  if (sequence->newest_snapshot() != length()) return;
  snapshot_logits = logits;
  snapshot_length = length();
}

void SessionState::cut(std::size_t length) {
  sequence->rewind(length);
  logits.clear();
  if (snapshot_length > length) snapshot_length = 0;
  if (snapshot_length == length && length > 0) logits = snapshot_logits;
}

void copy_session(const SessionState& from, SessionState& to, backend::StateStore& store) {
  SessionState copy{nullptr, from.logits, from.snapshot_logits, from.snapshot_length};
  if (from.sequence) {
    copy.sequence = std::make_unique<state::Sequence>(from.sequence->fork(from.length()));
    make_copies(*copy.sequence, store);
  }
  to = std::move(copy);
}

SyncResult SessionJob::wait() {
  completion_.wait();
  return result_;
}

bool SessionJob::start(state::PagePool& pool) {
  if (!session_->sequence) session_->sequence = std::make_unique<state::Sequence>(pool);
  state::Sequence& sequence = *session_->sequence;
  if (kind_ == Kind::kSync) {
    Reuse reuse = plan_reuse(sequence, tokens_, !session_->logits.empty(), class_ignored_,
                             session_->snapshot_length);
    if (reuse.length < sequence.length() || session_->logits.empty()) session_->cut(reuse.length);
    result_.reused = done_ = reuse.length;
    result_.reason = std::move(reuse.reason);
  }
  start_length_ = sequence.length();
  return done_ < tokens_.size();
}

Task SessionJob::task() const noexcept {
  const std::span<const TokenId> rest = tokens_.subspan(done_);
  if (kind_ == Kind::kDecode) return {TaskKind::kDecodeRound, rest};
  return {session_->length() == 0 ? TaskKind::kNewPrefill : TaskKind::kAppendPrefill, rest};
}

bool SessionJob::advance(std::size_t rows, std::span<const float> logits) {
  done_ += rows;
  result_.computed += rows;
  if (call_.progress) call_.progress(double(done_) / double(tokens_.size()));
  if (done_ < tokens_.size()) {
    session_->sequence->snapshot_every(kSnapshotEvery);
    return true;
  }
  session_->logits.assign(logits.begin(), logits.end());
  if (kind_ != Kind::kDecode) session_->end_prompt();
  return false;
}

void SessionJob::cancel() noexcept {
  failure_ = Failure{ErrorKind::kCancelled,
                     cancel_requested() ? "stopped as asked" : "the engine was closed"};
}

/// A failed call leaves no half of its tokens behind. Logits that were there before it stay: they
/// belong to the length that it returns to, unless that cannot be reached.
void SessionJob::release() noexcept {
  if (!failure_ || !session_->sequence) return;
  session_->sequence->abandon();
  if (session_->length() <= start_length_) return;
  const std::size_t length = session_->sequence->reachable(start_length_).length;
  std::vector<float> logits = std::move(session_->logits);
  session_->cut(length);
  if (length == start_length_) session_->logits = std::move(logits);
}

}  // namespace lemma::runtime
