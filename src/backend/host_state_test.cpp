// SPDX-License-Identifier: Apache-2.0
#include "backend/host_state.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace lemma::backend {
namespace {

using algorithm::Slot;
using algorithm::SlotKind;
using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr SlotId kRows = 0, kMatrix = 1, kTail = 2;
constexpr std::size_t kPages[] = {8, 8};

/// One slot of rows and two blocks; a step adds its tokens to what the blocks hold.
class HostBlocks : public testing::Test {
 protected:
  void write(state::Sequence& s, const std::vector<std::int32_t>& tokens) {
    s.reserve(tokens.size());
    for (const state::PageCopy& c : s.take_copies()) {
      store_.copy_page(c.group, c.from, c.to, c.positions);
    }
    store_.begin_blocks(s);
    for (const std::int32_t token : tokens) {
      for (float& x : store_.next_block(kMatrix, s)) x = x * 2.f + float(token);
      for (float& x : store_.next_block(kTail, s)) x = float(token);
    }
  }
  void step(state::Sequence& s, const std::vector<std::int32_t>& tokens) {
    write(s, tokens);
    s.commit(tokens, state::TokenClass::kEntered);
  }

  const state::Layout layout_{std::vector<Slot>{{.width = 4},
                                                {.kind = SlotKind::kFixed, .width = 20},
                                                {.kind = SlotKind::kFixed, .width = 3}},
                              {.format = algorithm::RowFormat::kF32, .page_size = 4}};
  state::PagePool pool_{layout_, kPages};
  HostState store_{layout_, kPages};
};

TEST_F(HostBlocks, BeginWithZeros) {
  state::Sequence first(pool_);
  step(first, {7});  // so that the page is not fresh from the system
  const state::PageId page = first.block();
  first.rewind(0);
  state::Sequence s(pool_);
  EXPECT_THAT(store_.block(kMatrix, s), IsEmpty());
  s.reserve(1);
  ASSERT_EQ(s.next_block(), page);
  store_.begin_blocks(s);
  EXPECT_THAT(store_.next_block(kMatrix, s), SizeIs(20));
  EXPECT_THAT(store_.next_block(kMatrix, s), Each(0.f));
  EXPECT_THAT(store_.next_block(kTail, s), ElementsAre(0.f, 0.f, 0.f));
}

TEST_F(HostBlocks, GoOnFromTheCommittedOnes) {
  state::Sequence s(pool_);
  step(s, {1, 2});
  EXPECT_THAT(store_.block(kMatrix, s), Each(4.f));
  EXPECT_THAT(store_.block(kTail, s), Each(2.f));
  step(s, {5});
  EXPECT_THAT(store_.block(kMatrix, s), Each(13.f));
  EXPECT_THAT(store_.block(kTail, s), Each(5.f));
}

TEST_F(HostBlocks, StayAsTheyWereWhenAStepFails) {
  state::Sequence s(pool_);
  step(s, {1, 2});
  write(s, {8});
  s.abandon();
  EXPECT_THAT(store_.block(kMatrix, s), Each(4.f));
  step(s, {5});
  EXPECT_THAT(store_.block(kMatrix, s), Each(13.f));
}

TEST_F(HostBlocks, ComeBackFromASnapshotAndFromAFork) {
  state::Sequence s(pool_);
  step(s, {1, 2});
  s.snapshot();
  step(s, {5});
  state::Sequence child = s.fork(3);
  step(s, {6});
  s.rewind(2);
  step(s, {5});
  EXPECT_THAT(store_.block(kMatrix, s), Each(13.f));
  EXPECT_THAT(store_.block(kMatrix, child), Each(13.f));
  step(child, {6});
  EXPECT_THAT(store_.block(kMatrix, child), Each(32.f));
  EXPECT_THAT(store_.block(kMatrix, s), Each(13.f));
}

TEST_F(HostBlocks, DoNotTouchRows) {
  state::Sequence s(pool_);
  step(s, {1});
  float* const row = reinterpret_cast<float*>(store_.row(kRows, s, 0));
  std::fill_n(row, 4, 9.f);
  step(s, {2, 3});
  EXPECT_EQ(reinterpret_cast<float*>(store_.row(kRows, s, 0)), row);
  EXPECT_THAT(std::vector<float>(row, row + 4), Each(9.f));
}

TEST_F(HostBlocks, NeedNoBeginWithoutAStep) {
  state::Sequence s(pool_);
  store_.begin_blocks(s);
  EXPECT_EQ(pool_.used_bytes(), 0u);
  const state::Layout plain(std::vector<Slot>{{.width = 4}}, {});
  const std::size_t pages[] = {1};
  state::PagePool pool(plain, pages);
  HostState store(plain, pages);
  state::Sequence rows(pool);
  rows.reserve(1);
  store.begin_blocks(rows);  // nothing is fixed
  EXPECT_EQ(rows.next_block(), state::kNoPage);
}

TEST(HostState, CopiesTheRowsOfAPartialPage) {
  const state::Layout layout(std::vector<Slot>{{.width = 1, .ratio = 2}, {.width = 2}},
                             {.format = algorithm::RowFormat::kF32, .page_size = 4});
  const std::size_t pages[] = {2};
  state::PagePool pool(layout, pages);
  HostState store(layout, pages);
  state::Sequence s(pool);
  s.reserve(3);
  for (std::uint32_t p = 0; p < 3; ++p) {
    const float half = float(p / 2), whole[] = {float(10 + p), float(20 + p)};
    std::memcpy(store.row(0, s, p), &half, sizeof(half));
    std::memcpy(store.row(1, s, p), whole, sizeof(whole));
  }
  s.commit(std::vector<std::int32_t>{1, 2, 3}, state::TokenClass::kEntered);
  state::Sequence child = s.fork(3);
  for (const state::PageCopy& c : child.take_copies()) {
    store.copy_page(c.group, c.from, c.to, c.positions);
  }
  ASSERT_NE(child.pages(0)[0], s.pages(0)[0]);
  for (std::uint32_t p = 0; p < 3; ++p) {
    EXPECT_EQ(std::memcmp(store.row(0, child, p), store.row(0, s, p), 4), 0);
    EXPECT_EQ(std::memcmp(store.row(1, child, p), store.row(1, s, p), 8), 0);
  }
}

TEST(HostState, HoldsThePublishedFp8RowInItsPageAndInAForksCopy) {
  Slot latent{.width = 512, .fp8 = algorithm::Fp8Form::kLatent, .tail = 64};
  const state::Layout layout(std::vector<Slot>{latent},
                             {.format = algorithm::RowFormat::kFp8, .page_size = 4});
  const std::size_t pages[] = {2};
  state::PagePool pool(layout, pages);
  HostState store(layout, pages);
  std::vector<float> x(512), out(512);
  for (std::size_t i = 0; i < 512; ++i) x[i] = 3.f * std::sin(0.1f * float(i));
  state::Sequence s(pool);
  s.reserve(3);
  for (std::uint32_t p = 0; p < 3; ++p) {
    const state::SlotPlace& place = layout.slots()[0];
    ASSERT_TRUE(algorithm::encode_row(place.format, place.slot.group, x, store.row(0, s, p),
                                      place.slot.tail));
  }
  s.commit(std::vector<std::int32_t>{1, 2, 3}, state::TokenClass::kEntered);
  state::Sequence child = s.fork(3);
  for (const state::PageCopy& c : child.take_copies())
    store.copy_page(c.group, c.from, c.to, c.positions);
  for (const state::Sequence* owner : {&s, &child}) {
    for (std::uint32_t p = 0; p < 3; ++p) {
      const state::SlotPlace& place = layout.slots()[0];
      algorithm::decode_row(place.format, place.slot.group, 512, store.row(0, *owner, p), 0, out,
                            place.slot.tail);
      EXPECT_THAT(std::vector<float>(out.begin(), out.begin() + 8),
                  ElementsAre(0, 0.3125f, 0.625f, 0.875f, 1.125f, 1.5f, 1.75f, 1.875f));
      EXPECT_NEAR(out[511], x[511], 2e-3f);
    }
  }
}

}  // namespace
}  // namespace lemma::backend
