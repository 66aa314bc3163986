// SPDX-License-Identifier: Apache-2.0
#include "state/page_pool.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace lemma::state {
namespace {

using algorithm::Slot;
using algorithm::SlotKind;

/// Group 0 is kept for ever, group 1 has a window; pages of 4 positions.
class PagePoolTest : public testing::Test {
 protected:
  const std::vector<Slot> slots_ = {{SlotKind::kRows, 32, 0, 1, 32},
                                    {SlotKind::kRows, 64, 8, 1, 32}};
  const Layout layout_{slots_, {algorithm::RowFormat::kF32, 4, 0}};
  PagePool pool_{layout_, std::vector<std::size_t>{3, 2}};
};
using PagePoolDeathTest = PagePoolTest;

TEST_F(PagePoolTest, HandsOutTheLowestFreePageFirst) {
  EXPECT_EQ(pool_.allocate(0), 0u);
  EXPECT_EQ(pool_.allocate(0), 1u);
  EXPECT_EQ(pool_.allocate(0), 2u);
  pool_.release(0, 2);
  pool_.release(0, 0);
  pool_.release(0, 1);
  EXPECT_EQ(pool_.allocate(0), 0u);
  pool_.release(0, 0);
  EXPECT_EQ(pool_.allocate(0), 0u);
  EXPECT_EQ(pool_.allocate(0), 1u);
}

TEST_F(PagePoolTest, GivesNoPageWhenNoneIsFree) {
  EXPECT_EQ(pool_.allocate(1), 0u);
  EXPECT_EQ(pool_.allocate(1), 1u);
  EXPECT_EQ(pool_.allocate(1), kNoPage);
  EXPECT_EQ(pool_.allocate(0), 0u);  // groups do not share pages
}

TEST_F(PagePoolTest, FreesAPageWithItsLastReference) {
  const PageId page = pool_.allocate(0);
  pool_.retain(0, page);
  EXPECT_EQ(pool_.references(0, page), 2u);
  pool_.release(0, page);
  EXPECT_EQ(pool_.used(0), 1u);
  EXPECT_EQ(pool_.allocate(0), page + 1);
  pool_.release(0, page);
  EXPECT_EQ(pool_.references(0, page), 0u);
  EXPECT_EQ(pool_.allocate(0), page);
}

TEST_F(PagePoolTest, CountsPagesAndTheirBytesOnce) {
  EXPECT_EQ(pool_.capacity(0), 3u);
  EXPECT_EQ(pool_.capacity(1), 2u);
  EXPECT_EQ(pool_.used_bytes(), 0u);
  pool_.retain(0, pool_.allocate(0));
  pool_.allocate(1);
  EXPECT_EQ(pool_.used(0), 1u);
  EXPECT_EQ(pool_.free(0), 2u);
  EXPECT_EQ(pool_.used_bytes(), 4u * 128 + 4 * 256);
}

TEST_F(PagePoolDeathTest, StopsAtADoubleRelease) {
  const PageId page = pool_.allocate(0);
  pool_.release(0, page);
  EXPECT_DEATH(pool_.release(0, page), "references");
}

TEST_F(PagePoolDeathTest, StopsAtAPageThatDoesNotExist) {
  EXPECT_DEATH(pool_.release(0, 3), "page");
  EXPECT_DEATH(pool_.release(0, kNoPage), "page");
  EXPECT_DEATH(pool_.retain(0, 1), "references");
  EXPECT_DEATH(pool_.allocate(2), "group");
}

}  // namespace
}  // namespace lemma::state
