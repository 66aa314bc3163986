// SPDX-License-Identifier: Apache-2.0
// A machine for tests of the step loop: its "model" is a function from a sequence's tokens to
// logits, its state has no bytes, and it records every row that it was asked to run. It can hold a
// step until the test lets it go on, and fail segments.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/generation.hpp"
#include "runtime/step_loop.hpp"
#include "text/sample_vocabulary.hpp"

namespace lemma::runtime::scripted {

using History = std::vector<TokenId>;
/// The logits after `history`; the vocabulary's size.
using Script = std::function<std::vector<float>(const History& history)>;

inline std::shared_ptr<const text::Tokenizer> tokenizer() {
  static const std::shared_ptr<const text::Tokenizer> shared =
      text::Tokenizer::from_metadata(text::sample::sentencepiece());
  return shared;
}

inline constexpr TokenId kEnd = 2;
inline TokenId byte_token(unsigned char byte) {
  return 3 + byte;
}
inline History byte_tokens(std::string_view bytes) {
  History tokens;
  for (const char byte : bytes) tokens.push_back(byte_token(static_cast<unsigned char>(byte)));
  return tokens;
}

inline std::uint32_t vocabulary() {
  return std::uint32_t(tokenizer()->vocabulary_size());
}

/// Logits whose best is `id`.
inline std::vector<float> prefer(TokenId id) {
  std::vector<float> logits(vocabulary(), 0.f);
  logits[std::size_t(id)] = 10.f;
  return logits;
}

/// After a prompt of `prompt` tokens: `tokens` one after the other, then the end.
inline Script emit(std::size_t prompt, History tokens) {
  return [prompt, tokens = std::move(tokens)](const History& history) {
    const std::size_t at = history.size() - prompt;
    return prefer(at < tokens.size() ? tokens[at] : kEnd);
  };
}

/// Logits that look random and depend on every token of the history.
inline std::vector<float> noise(const History& history) {
  std::uint64_t state = 0x9e3779b97f4a7c15u;
  for (const TokenId id : history) state = (state ^ std::uint64_t(id)) * 0x2545f4914f6cdd1du + 1;
  std::vector<float> logits(vocabulary());
  for (float& logit : logits) {
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    logit = float(state * 0x2545f4914f6cdd1du >> 40) * 0x1p-22f;
  }
  logits[kEnd] = -10.f;
  return logits;
}

struct RanSegment {
  std::size_t past = 0, rows = 0;
  state::TokenClass token_class{};
  friend bool operator==(const RanSegment&, const RanSegment&) = default;
};

class Executable final : public backend::Executable {
 public:
  explicit Executable(Script script) : script_(std::move(script)) {}

  std::span<const backend::SegmentResult> run(const backend::Step& step) noexcept override {
    if (before_step) before_step(step);
    results_.clear();
    logits_.clear();
    for (const backend::Segment& segment : step.segments) {
      const auto tokens = step.tokens.subspan(segment.first_row, segment.rows);
      const auto committed = segment.sequence->tokens();
      History history(committed.begin(), committed.end());
      history.insert(history.end(), tokens.begin(), tokens.end());
      results_.push_back(result ? result(history) : backend::SegmentResult{});
      ran.push_back({segment.past, segment.rows, segment.token_class});
      const std::uint32_t last = segment.first_row + segment.rows - 1;
      for (const std::uint32_t row : step.logit_rows) {
        if (row == last) logits_.push_back(script_(history));
      }
    }
    rows += step.tokens.size();
    return results_;
  }
  std::span<const float> logits(std::size_t i) const noexcept override { return logits_[i]; }
  std::vector<backend::Placement> placements() const override { return {}; }
  std::size_t scratch_bytes() const noexcept override { return 0; }

  // Set before the loop starts; read after it has ended, except `rows`.
  std::function<void(const backend::Step&)> before_step;
  std::function<backend::SegmentResult(const History&)> result;
  std::vector<RanSegment> ran;
  std::atomic<std::size_t> rows{0};

 private:
  Script script_;
  std::vector<backend::SegmentResult> results_;
  std::vector<std::vector<float>> logits_;
};

class Store final : public backend::StateStore {
 public:
  void copy_page(std::uint32_t, state::PageId, state::PageId, std::uint32_t) override {}
  std::size_t allocated_bytes() const noexcept override { return 0; }
};

struct Options {
  std::uint32_t max_rows = 8, max_sequences = 4, context = 64;
  std::size_t pages = 1000;  ///< of four positions
  bool blocks = false;       ///< the state has a fixed block, too
  bool whole_prompts = false;
};

/// A step loop over a script, on a thread of its own. `machine` may be changed until start().
class Loop {
 public:
  explicit Loop(Script script, Options options = {})
      : machine(std::move(script)),
        layout_(slots(options.blocks), {.format = algorithm::RowFormat::kF32, .page_size = 4}),
        pool_(layout_, std::vector<std::size_t>(options.blocks ? 2 : 1, options.pages)),
        facts(std::make_shared<const ModelFacts>(
            ModelFacts{tokenizer(), vocabulary(), options.context, false})),
        sites_{{"layers.0.attention.query", 1}},
        loop({&machine, &store_, sites_, options.max_rows, options.whole_prompts}, pool_,
             options.max_sequences) {}
  ~Loop() { stop(); }

  void start() {
    thread_ = std::thread([this] { loop.run(); });
  }
  void stop() {
    loop.stop();
    if (thread_.joinable()) thread_.join();
  }
  std::shared_ptr<GenerationJob> submit(Request request) {
    auto job = std::make_shared<GenerationJob>(std::move(request), facts);
    loop.submit(job);
    if (!thread_.joinable()) start();
    return job;
  }

  /// Only between start() and stop() on the loop's thread, or before and after them.
  state::PagePool& pool() { return pool_; }
  Store& store() { return store_; }

  Executable machine;

 private:
  static std::vector<algorithm::Slot> slots(bool blocks) {
    std::vector<algorithm::Slot> made = {{.width = 1}};
    if (blocks) made.push_back({.kind = algorithm::SlotKind::kFixed, .width = 1});
    return made;
  }

  state::Layout layout_;
  state::PagePool pool_;
  Store store_;

 public:
  const std::shared_ptr<const ModelFacts> facts;

 private:
  std::vector<backend::Program::Site> sites_;

 public:
  StepLoop loop;

 private:
  std::thread thread_;
};

/// All that a request gave.
struct Answer {
  std::vector<Event> events;  ///< of tokens
  Event last;
  std::string text;
  History tokens;
};

inline Answer collect(GenerationJob& job) {
  Answer answer;
  while (auto event = job.next()) {
    answer.text += event->text;
    if (event->token) {
      answer.tokens.push_back(*event->token);
      answer.events.push_back(std::move(*event));
    } else {
      answer.last = std::move(*event);
    }
  }
  return answer;
}

/// Lets a thread wait inside the loop until the test opens it.
class Gate {
 public:
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  /// Called by the thread that is to wait.
  void pass() {
    std::unique_lock lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  /// Returns when `count` calls of pass() have been made.
  void await(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return arrived_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int arrived_ = 0;
};

}  // namespace lemma::runtime::scripted
