// SPDX-License-Identifier: Apache-2.0
// A backend in miniature: what each row of each page holds, told apart by who wrote it when.
// Steps of all kinds on a family of sequences must find every key that a query may see.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "lemma/error.hpp"
#include "state/sequence.hpp"
#include "state/test_world.hpp"

namespace lemma::state {
namespace {

using test::World;

class Memory {
 public:
  explicit Memory(const World& world) : world_(&world) {}

  void write(const Sequence& s, std::size_t position, int value) {
    for (std::uint32_t g = 0; g < groups(); ++g) rows_[at(s, g, position)] = value;
  }
  /// Recurrent state after `values`: what came in, in order, and nothing else.
  static std::uint64_t folded(const std::vector<int>& values) {
    std::uint64_t state = 0;
    for (const int value : values) state = after(state, value);
    return state;
  }
  void begin_block(const Sequence& s) {
    if (s.next_block() != kNoPage) blocks_[s.next_block()] = block(s);
  }
  void write_block(const Sequence& s, int value) {
    if (s.next_block() != kNoPage) blocks_[s.next_block()] = after(blocks_[s.next_block()], value);
  }
  void expect_block(const Sequence& s, const std::vector<int>& values) {
    if (!world_->layout.fixed_group()) return;
    ASSERT_EQ(block(s), folded(values));
  }
  void copy(const std::vector<PageCopy>& copies) {
    for (const PageCopy& c : copies) {
      for (std::uint32_t i = 0; i < c.positions; ++i) {
        rows_[{c.group, c.to, i}] = rows_.at({c.group, c.from, i});
      }
    }
  }
  /// Reads all rows that the query at `position` sees.
  void expect_visible(const Sequence& s, std::size_t position, const std::vector<int>& values) {
    for (std::uint32_t g = 0; g < groups(); ++g) {
      const std::size_t window = world_->layout.groups()[g].window;
      const std::size_t first = window == 0 || position + 1 < window ? 0 : position + 1 - window;
      for (std::size_t p = first; p <= position; ++p) {
        ASSERT_NE(s.pages(g)[p / page_size()], kNoPage) << "group " << g << " position " << p;
        ASSERT_EQ(rows_.at(at(s, g, p)), values[p]) << "group " << g << " position " << p;
      }
    }
  }

 private:
  using Row = std::tuple<std::uint32_t, PageId, std::size_t>;
  static std::uint64_t after(std::uint64_t state, int value) {
    return state * 0x2545f4914f6cdd1du + std::uint64_t(value);
  }
  std::uint64_t block(const Sequence& s) const {
    return s.block() == kNoPage ? 0 : blocks_.at(s.block());
  }
  /// Groups of rows; the blocks come last.
  std::uint32_t groups() const {
    return std::uint32_t(world_->layout.groups().size() - (world_->layout.fixed_group() ? 1 : 0));
  }
  std::size_t page_size() const { return world_->layout.options().page_size; }
  Row at(const Sequence& s, std::uint32_t g, std::size_t position) const {
    return {g, s.pages(g)[position / page_size()], position % page_size()};
  }

  const World* world_;
  std::map<Row, int> rows_;
  std::map<PageId, std::uint64_t> blocks_;
};

struct Branch {
  Sequence sequence;
  std::vector<int> values;  ///< what the row of each committed position must hold
};

class Family : public testing::TestWithParam<std::tuple<std::uint32_t, bool>> {
 protected:
  std::size_t draw(std::size_t below) { return random_() % below; }

  void step(Branch& branch) {
    Sequence& s = branch.sequence;
    const std::size_t count = 1 + (draw(3) == 0 ? draw(20) : draw(2));
    try {
      s.reserve(count);
    } catch (const Error&) {
      ++refused_;
      return;
    }
    memory_.copy(s.take_copies());
    memory_.begin_block(s);
    std::vector<int> values = branch.values;
    for (std::size_t i = 0; i < count; ++i) {
      values.push_back(++stamp_);
      memory_.write(s, s.length() + i, stamp_);
      memory_.write_block(s, stamp_);
    }
    for (std::size_t i = 0; i < count; ++i) {
      memory_.expect_visible(s, s.length() + i, values);
    }
    if (draw(4) == 0) {
      s.abandon();
    } else {
      s.commit(std::vector<std::int32_t>(count, 0), TokenClass::kEntered);
      branch.values = std::move(values);
      if (draw(3) == 0) s.snapshot();
    }
    memory_.expect_block(s, branch.values);
  }

  void rewind(Branch& branch) {
    const std::size_t wish = branch.sequence.length() - draw(1 + branch.sequence.length() / 4);
    const std::size_t length = branch.sequence.reachable(wish).length;
    branch.sequence.rewind(length);
    branch.values.resize(length);
    rewound_ += length > 0;
    memory_.expect_block(branch.sequence, branch.values);
  }

  void fork(const Branch& branch) {
    const std::size_t length =
        branch.sequence.reachable(branch.sequence.length() - draw(1 + branch.sequence.length() / 4))
            .length;
    try {
      Branch copy{branch.sequence.fork(length), branch.values};
      copy.values.resize(length);
      memory_.copy(copy.sequence.take_copies());
      memory_.expect_block(copy.sequence, copy.values);
      branches_.push_back(std::move(copy));
    } catch (const Error&) {
      ++refused_;
    }
  }

  World world_{{0, 5, 17}, 4, 3, 60, std::get<1>(GetParam())};
  Memory memory_{world_};
  std::vector<Branch> branches_;
  std::minstd_rand random_{std::get<0>(GetParam())};
  int stamp_ = 0;
  int refused_ = 0, rewound_ = 0;
};

TEST_P(Family, FindsEveryVisibleRowThroughAnyHistory) {
  for (int i = 0; i < 2000 && !HasFatalFailure(); ++i) {
    if (branches_.empty()) branches_.push_back({Sequence(world_.pool), {}});
    const std::size_t which = draw(branches_.size());
    switch (draw(12)) {
      case 0:
        rewind(branches_[which]);
        break;
      case 1:
        fork(branches_[which]);
        break;
      case 2:
        // Vectors close a gap by assignment, which sequences do not have.
        if (draw(3) == 0) branches_.pop_back();
        break;
      default:
        step(branches_[which]);
    }
  }
  EXPECT_GT(stamp_, 500);
  EXPECT_GT(refused_, 0);
  EXPECT_GT(rewound_, 5);
  branches_.clear();
  EXPECT_EQ(world_.pool.used_bytes(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Family, testing::Combine(testing::Range(1u, 9u), testing::Bool()));

}  // namespace
}  // namespace lemma::state
