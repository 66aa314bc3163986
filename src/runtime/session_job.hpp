// SPDX-License-Identifier: Apache-2.0
// SessionState: one timeline as the step loop keeps it between a session's calls. SessionJob: one
// such call, which makes the timeline equal to given tokens or appends to it. A session has at
// most one job at a time and waits for it, so its client may read the state between calls.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "lemma/session.hpp"
#include "runtime/completion.hpp"
#include "runtime/job.hpp"
#include "runtime/model_facts.hpp"
#include "runtime/step_runner.hpp"

namespace lemma::runtime {

struct SessionState {
  /// Made, changed and destroyed by the loop's thread; absent before the first job.
  std::unique_ptr<state::Sequence> sequence;
  /// [V] after the last token; empty when the timeline has been cut since, or holds nothing.
  std::vector<float> logits;
  /// [V] after the prompt that ended at the newest snapshot: where blocks exist, one step back for
  /// one token's logits would be a way back to the snapshot before. Length 0: none are kept.
  std::vector<float> snapshot_logits;
  std::size_t snapshot_length = 0;

  std::size_t length() const noexcept { return sequence ? sequence->length() : 0; }
  /// Takes a snapshot, where there are blocks, at the end of a prompt.
  void end_prompt();
  /// Cuts back to a reachable length; logits after it are known only if it is the snapshot's.
  void cut(std::size_t length);
};

/// Makes `to` what `from` is: pages and blocks are shared, a partial page is copied. On the loop's
/// thread, between steps. Throws kOutOfMemory, with `to` as it was.
void copy_session(const SessionState& from, SessionState& to, backend::StateStore& store);

/// How much of a timeline can stand for the beginning of `tokens`.
struct Reuse {
  std::size_t length = 0;  ///< to cut back to; the rest of `tokens` is computed
  std::string reason;      ///< why it is less than the common prefix; empty if it is not
};

/// `has_logits`: the logits after the last token of `sequence` are known, so that an equal timeline
/// needs no step; `snapshot_length` is another length after which they are. Otherwise at least the
/// last token is computed.
Reuse plan_reuse(const state::Sequence& sequence, std::span<const TokenId> tokens, bool has_logits,
                 bool class_ignored, std::size_t snapshot_length = 0);

class SessionJob final : public Job {
 public:
  enum class Kind : std::uint8_t { kSync, kAppend, kDecode };

  /// `tokens` must outlive the job: the client waits for it.
  SessionJob(Kind kind, std::shared_ptr<SessionState> session, std::span<const TokenId> tokens,
             bool class_ignored, CallOptions call = {})
      : kind_(kind),
        session_(std::move(session)),
        tokens_(tokens),
        class_ignored_(class_ignored),
        call_(std::move(call)) {}

  /// What was done; throws the job's error.
  SyncResult wait();

  bool start(state::PagePool& pool) override;
  bool cancel_requested() const noexcept override { return call_.stop.stop_requested(); }
  Task task() const noexcept override;
  state::Sequence& sequence() noexcept override { return *session_->sequence; }
  bool advance(std::size_t rows, std::span<const float> logits) override;
  void fail(Failure failure) noexcept override { failure_ = std::move(failure); }
  void cancel() noexcept override;
  void release() noexcept override;
  void report() noexcept override { completion_.done(std::move(failure_)); }

 private:
  const Kind kind_;
  const std::shared_ptr<SessionState> session_;
  const std::span<const TokenId> tokens_;
  const bool class_ignored_;
  const CallOptions call_;
  std::size_t done_ = 0;          ///< of tokens_: reused and computed
  std::size_t start_length_ = 0;  ///< where a failed job returns to
  SyncResult result_;
  std::optional<Failure> failure_;
  Completion completion_;
};

}  // namespace lemma::runtime
