// SPDX-License-Identifier: Apache-2.0
// Session: one timeline of tokens and what the model remembers of it. For programs that steer the
// tokens themselves; `Engine::submit` is for those that want text. All work is done by the engine's
// step loop; a Session's calls wait for it. One thread at a time may use a Session; it keeps its
// engine alive.
//
//   auto session = engine->session();
//   session->sync(prompt);                      // computes only what is new
//   Sampler sampler({.temperature = 0.8f});
//   TokenId next = session->choose(sampler);
//   session->decode(next);
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>

#include "lemma/sampling.hpp"
#include "lemma/tokenizer.hpp"

namespace lemma {

/// What a sync did: `reused + computed` is the new length.
struct SyncResult {
  std::size_t reused = 0;    ///< tokens whose state was kept
  std::size_t computed = 0;  ///< rows that the model really ran
  std::string reason;  ///< why less than the common prefix was reused; empty if it was not less
};

struct RewindResult {
  std::size_t length = 0;  ///< the length now: as wished, or the next shorter reachable one
  std::string reason;      ///< why not as wished; empty otherwise
};

/// How a long call can be watched and ended.
struct CallOptions {
  /// Asked to stop, the call ends after the step that is running and throws kCancelled; the
  /// timeline is then as it was before, or shorter.
  std::stop_token stop{};
  std::function<void(double fraction)> progress{};  ///< after each step, on the loop's thread
};

/// Draws tokens by sampling parameters. The state of its random numbers belongs to one answer, so
/// that a seed gives the same answer whatever else is asked in between.
class Sampler {
 public:
  /// Throws kUsage for parameters out of range. Without a seed: a fresh one.
  explicit Sampler(Sampling sampling, std::optional<std::uint64_t> seed = {});
  Sampler(Sampler&&) noexcept;
  Sampler& operator=(Sampler&&) noexcept;
  ~Sampler();
  std::uint64_t seed() const noexcept;

 private:
  friend class Session;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// What a session held when it was saved: tokens, state and logits, in memory. It shares pages with
/// the session, so that saving costs little; it counts against the engine's state until it is
/// destroyed. Immutable: copies are the same, and any thread may use one. Keeps its engine alive.
class SavedSession {
 public:
  std::size_t length() const noexcept;
  std::span<const TokenId> tokens() const noexcept;

 private:
  friend class Session;
  struct Impl;
  explicit SavedSession(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

class Session {
 public:
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  /// Makes the timeline equal to `tokens` (prompt tokens; not empty), reusing the longest prefix
  /// that can be reused; at least the last token is computed unless the timeline is equal already.
  /// Tokens that this session generated are entered anew. Throws kContextFull, kOutOfMemory,
  /// kUsage (ids outside the vocabulary), kUnsupported (a model without logits, or whose rows look
  /// ahead); the timeline is then as it was before, or shorter.
  SyncResult sync(std::span<const TokenId> tokens, const CallOptions& call = {});
  /// Appends prompt tokens.
  void append(std::span<const TokenId> tokens, const CallOptions& call = {});
  /// Appends one generated token.
  void decode(TokenId token);
  /// Cuts the timeline back. Keys and values can be cut anywhere, sliding windows a little way, and
  /// recurrent state only to the end of a prompt of which a snapshot is held.
  RewindResult rewind(std::size_t length);

  /// A token by the logits after the last one; penalties look at the whole timeline. Throws kUsage
  /// where there are no logits, or a bias or a penalty cannot be applied.
  TokenId choose(Sampler& sampler) const;

  /// The timeline as it is now. Throws kOutOfMemory.
  SavedSession save() const;
  /// Makes the timeline what was saved, by this or another session of the same engine (kUsage
  /// otherwise); what follows has the bits that it would have had there. Throws kOutOfMemory, with
  /// the timeline as it was.
  void restore(const SavedSession& saved);

  std::size_t length() const noexcept;
  std::span<const TokenId> tokens() const noexcept;
  /// The logits [V] after the last token; valid until the next call. Empty before any token and
  /// after a rewind.
  std::span<const float> logits() const noexcept;

 private:
  friend class Engine;
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lemma
