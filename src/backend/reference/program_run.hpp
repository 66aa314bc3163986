// SPDX-License-Identifier: Apache-2.0
// ProgramRun: a program of a few operations for tests, over inputs that are written out. Token t of
// a text is the number t, so that row t of an input is the input at position t.
//
//   ProgramRun run;
//   const Tensor x = run.input(2, {1, 2, 3, 4});  // two rows
//   const Tensor y = run.tensor(2);
//   run.add(backend::Gate{x, x, y});
//   EXPECT_EQ(run.rows(y, {2}), ...);             // both in one step
#pragma once

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "backend/reference/reference_backend.hpp"
#include "base/check.hpp"
#include "state/layout.hpp"
#include "state/sequence.hpp"

namespace lemma::reference {

using backend::Tensor;
using backend::WeightId;
using Rows = std::vector<float>;

/// `n` numbers in [-1, 1), the same for the same seed.
inline Rows noise(std::size_t n, std::uint64_t seed) {
  std::uint64_t state = seed * 2654435761u + 88172645463325252u;
  Rows numbers(n);
  for (float& number : numbers) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    number = static_cast<float>(state >> 40) * 0x1p-23f - 1.f;
  }
  return numbers;
}

class ProgramRun {
 public:
  WeightId matrix(std::uint64_t rows, const Rows& values,
                  backend::WeightUse use = backend::WeightUse::kMatrix) {
    auto owned = std::make_shared<Rows>(values);
    const auto* const bytes = reinterpret_cast<const std::byte*>(owned->data());
    return backend_->add({weights::Format::kF32, rows, values.size() / rows, bytes, owned, "w"},
                         use);
  }
  WeightId vector(const Rows& values) { return matrix(1, values, backend::WeightUse::kVector); }
  WeightId table(std::uint64_t rows, const Rows& values) {
    return matrix(rows, values, backend::WeightUse::kTable);
  }
  Tensor tensor(std::uint32_t width) {
    return program_.tensor("t" + std::to_string(program_.tensors.size()), width);
  }
  Tensor input(std::uint32_t width, const Rows& values) {
    backend::Embed op{.table = table(values.size() / width, values)};
    op.out = tensor(width);
    add(op);
    return op.out;
  }
  backend::SlotId slot(const algorithm::Slot& slot) {
    program_.slots.push_back(slot);
    return static_cast<backend::SlotId>(program_.slots.size() - 1);
  }
  backend::SlotId store(std::uint32_t width, Tensor in) {
    const backend::SlotId id = slot({.width = width, .group = 1});
    add(backend::Store{id, in});
    return id;
  }
  void add(backend::Operation operation) { program_.operations.push_back(std::move(operation)); }

  /// The rows of `tensor` after steps of the given sizes.
  Rows rows(Tensor tensor, const std::vector<std::uint32_t>& steps) {
    World world(*this, tensor);
    Rows all;
    for (const std::uint32_t count : steps) {
      const Rows step = world.step(count, true);
      all.insert(all.end(), step.begin(), step.end());
    }
    return all;
  }
  /// The same, but each step is first run in vain.
  Rows rows_after_failures(Tensor tensor, const std::vector<std::uint32_t>& steps) {
    World world(*this, tensor);
    Rows all;
    for (const std::uint32_t count : steps) {
      world.step(count, false);
      const Rows step = world.step(count, true);
      all.insert(all.end(), step.begin(), step.end());
    }
    return all;
  }
  /// How the sequence of the last step of rows() ended.
  backend::SegmentResult last() const { return last_; }
  /// How sequences of one row each, of the tokens 0 to n - 1, end.
  std::vector<backend::SegmentResult> results(std::uint32_t n) {
    World world(*this, {});
    return world.side_by_side(n);
  }

 private:
  /// State, sequences and executable of one run.
  class World final : public backend::Observer {
   public:
    World(ProgramRun& run, Tensor tensor)
        : watched_(tensor),
          last_(run.last_),
          layout_(run.program_.slots, {algorithm::RowFormat::kF32, kPage, 0}),
          pages_(layout_.groups().size(), kPages),
          pool_(layout_, pages_),
          state_(run.backend_->make_state(layout_, pages_)),
          observers_{this},
          executable_(run.backend_->prepare(run.program_, *state_,
                                            {.max_rows = kPage, .observers = observers_})) {}

    bool wants(const backend::Program::Site& site) override {
      return watched_ && site.name == "t" + std::to_string(watched_.id);
    }
    void observe(std::int32_t, const backend::Program::Site&, const backend::Step&,
                 std::span<float> rows) override {
      seen_.assign(rows.begin(), rows.end());
    }

    Rows step(std::uint32_t count, bool commit) {
      if (sequences_.empty()) sequences_.emplace_back(pool_);
      state::Sequence& sequence = sequences_.front();
      const auto past = static_cast<std::uint32_t>(sequence.length());
      sequence.reserve(count);
      std::vector<std::int32_t> tokens(count);
      std::iota(tokens.begin(), tokens.end(), static_cast<std::int32_t>(past));
      const backend::Segment segment{0, count, past, state::TokenClass::kEntered, &sequence};
      last_ = execute(tokens, {&segment, 1}).front();
      if (commit)
        sequence.commit(tokens, state::TokenClass::kEntered);
      else
        sequence.abandon();
      return seen_;
    }

    std::vector<backend::SegmentResult> side_by_side(std::uint32_t n) {
      std::vector<backend::Segment> segments;
      for (std::uint32_t i = 0; i < n; ++i) {
        sequences_.emplace_back(pool_).reserve(1);
        segments.push_back({i, 1, 0, state::TokenClass::kEntered, &sequences_.back()});
      }
      std::vector<std::int32_t> tokens(n);
      std::iota(tokens.begin(), tokens.end(), 0);
      return execute(tokens, segments);
    }

   private:
    static constexpr std::uint32_t kPage = 64;
    static constexpr std::size_t kPages = 8;

    std::vector<backend::SegmentResult> execute(const std::vector<std::int32_t>& tokens,
                                                std::span<const backend::Segment> segments) {
      std::vector<algorithm::RopePosition> positions;
      for (const backend::Segment& segment : segments)
        for (std::uint32_t i = 0; i < segment.rows; ++i) {
          const auto at = static_cast<std::int32_t>(segment.past + i);
          positions.push_back({at, at, at});
        }
      const auto results = executable_->run({tokens, positions, segments, {}});
      return {results.begin(), results.end()};
    }

    Tensor watched_;
    backend::SegmentResult& last_;
    Rows seen_;
    state::Layout layout_;
    std::vector<std::size_t> pages_;
    state::PagePool pool_;
    std::unique_ptr<backend::StateStore> state_;
    std::deque<state::Sequence> sequences_;
    std::vector<backend::Observer*> observers_;
    std::unique_ptr<backend::Executable> executable_;
  };

  std::unique_ptr<backend::Backend> backend_ = make_backend();
  backend::Program program_;
  backend::SegmentResult last_;
};

}  // namespace lemma::reference
