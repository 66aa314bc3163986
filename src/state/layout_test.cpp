// SPDX-License-Identifier: Apache-2.0
#include "state/layout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <vector>

#include "lemma/error.hpp"

namespace lemma::state {
namespace {

using algorithm::RowFormat;
using algorithm::Slot;
using algorithm::SlotKind;
using testing::HasSubstr;

Slot rows(std::uint32_t width, std::uint32_t window = 0, std::uint32_t ratio = 1,
          std::uint32_t group = 32) {
  return {SlotKind::kRows, width, window, ratio, group};
}

Slot block(std::uint32_t width) {
  return {.kind = SlotKind::kFixed, .width = width};
}

Slot shared_keys(std::uint32_t width) {
  return {.width = width, .group = 7, .at_least_f16 = true};
}

LayoutOptions options(RowFormat format, std::uint32_t page_size, std::uint32_t slack = 0) {
  return {format, page_size, slack};
}

/// The message with which a layout is refused; empty if it is not, or with another kind.
std::string refusal(std::vector<Slot> slots, const LayoutOptions& wanted, ErrorKind kind) {
  try {
    const Layout layout(slots, wanted);
  } catch (const Error& error) {
    if (error.kind() == kind) return error.what();
  }
  return {};
}

TEST(Layout, PutsSlotsBehindEachOtherOnCacheLines) {
  const std::vector<Slot> slots = {rows(5), rows(7), rows(64)};
  const Layout layout(slots, options(RowFormat::kF16, 3));
  ASSERT_EQ(layout.slots().size(), 3u);
  EXPECT_EQ(layout.slots()[0].row_bytes, 10u);
  EXPECT_EQ(layout.slots()[0].page_offset, 0u);   // 3 rows of 10 bytes
  EXPECT_EQ(layout.slots()[1].page_offset, 64u);  // 3 rows of 14 bytes
  EXPECT_EQ(layout.slots()[2].page_offset, 128u);
  ASSERT_EQ(layout.groups().size(), 1u);
  EXPECT_EQ(layout.groups()[0].page_bytes, 128u + 3 * 128);
}

TEST(Layout, GroupsSlotsByWindowInOrderOfAppearance) {
  const std::vector<Slot> slots = {rows(32, 16), rows(32), rows(32, 16), rows(32, 8)};
  const Layout layout(slots, options(RowFormat::kF32, 4));
  ASSERT_EQ(layout.groups().size(), 3u);
  EXPECT_EQ(layout.groups()[0].window, 16u);
  EXPECT_EQ(layout.groups()[1].window, 0u);
  EXPECT_EQ(layout.groups()[2].window, 8u);
  EXPECT_EQ(layout.slots()[0].group, 0u);
  EXPECT_EQ(layout.slots()[1].group, 1u);
  EXPECT_EQ(layout.slots()[2].group, 0u);
  EXPECT_EQ(layout.slots()[3].group, 2u);
  EXPECT_EQ(layout.slots()[1].page_offset, 0u);
  EXPECT_EQ(layout.slots()[2].page_offset, 4u * 128);
  EXPECT_EQ(layout.groups()[0].page_bytes, 2u * 4 * 128);
}

TEST(Layout, HoldsOneRowPerRatioTokens) {
  const std::vector<Slot> slots = {rows(16, 0, 4), rows(16)};
  const Layout layout(slots, options(RowFormat::kF32, 8));
  EXPECT_EQ(layout.slots()[1].page_offset, 2u * 64);
  EXPECT_EQ(layout.groups()[0].page_bytes, 2u * 64 + 8 * 64);
  EXPECT_EQ(layout.formula_bytes(7), 1u * 64 + 7 * 64);
}

TEST(Layout, CountsThePlainFormulaForKeysAndValues) {
  // 3 layers, 2 KV heads of 64.
  const std::vector<Slot> slots(2 * 3, rows(2 * 64));
  const std::size_t elements = std::size_t{2} * 3 * 1000 * 2 * 64;
  EXPECT_EQ(Layout(slots, options(RowFormat::kF32, 8)).formula_bytes(1000), elements * 4);
  EXPECT_EQ(Layout(slots, options(RowFormat::kF16, 8)).formula_bytes(1000), elements * 2);
  EXPECT_EQ(Layout(slots, options(RowFormat::kBF16, 8)).formula_bytes(1000), elements * 2);
  // One f16 scale per 32 elements.
  EXPECT_EQ(Layout(slots, options(RowFormat::kQ8, 8)).formula_bytes(1000),
            elements + elements / 32 * 2);
}

TEST(Layout, TakesWholePagesOfTheFormula) {
  const std::vector<Slot> slots(2 * 3, rows(2 * 64));
  for (const RowFormat format : {RowFormat::kF32, RowFormat::kF16, RowFormat::kQ8}) {
    const Layout layout(slots, options(format, 128));
    EXPECT_EQ(layout.bytes_for(1024, 512), layout.formula_bytes(1024));
    EXPECT_EQ(layout.bytes_for(1025, 512), layout.formula_bytes(1024 + 128));
  }
}

TEST(Layout, CountsAWindowOnceItIsFull) {
  const std::vector<Slot> slots = {rows(32, 10), rows(32)};
  const Layout layout(slots, options(RowFormat::kF32, 4));
  EXPECT_EQ(layout.formula_bytes(6), 128u * (6 + 6));
  EXPECT_EQ(layout.formula_bytes(50), 128u * (10 + 50));
}

TEST(Layout, SaysTheFormulaInWords) {
  const std::vector<Slot> slots = {rows(64), rows(64), rows(64, 8), rows(64, 8)};
  EXPECT_EQ(Layout(slots, options(RowFormat::kF16, 4)).formula(100),
            "2 slots x 100 rows x 128 bytes (64 f16) + "
            "2 slots x 8 rows (window 8) x 128 bytes (64 f16) = 27648 bytes");
  EXPECT_EQ(Layout(std::vector<Slot>{rows(64, 0, 4)}, options(RowFormat::kQ8, 4)).formula(100),
            "1 slots x 25 rows (one per 4 tokens) x 68 bytes (64 q8 and 2 scales) = 1700 bytes");
}

TEST(Layout, HoldsFp8AsTheArchitectureDefinesIt) {
  Slot latent = rows(512, 128), index = rows(128, 0, 4);
  latent.fp8 = algorithm::Fp8Form::kLatent;
  latent.tail = 64;
  index.fp8 = algorithm::Fp8Form::kIndex;
  const Layout layout(std::vector<Slot>{latent, index, block(6)}, options(RowFormat::kFp8, 8));
  EXPECT_EQ(layout.slots()[0].format, RowFormat::kFp8);
  EXPECT_EQ(layout.slots()[0].row_bytes, 583u);
  EXPECT_EQ(layout.slots()[1].format, RowFormat::kFp4);
  EXPECT_EQ(layout.slots()[1].row_bytes, 68u);
  EXPECT_EQ(layout.slots()[2].format, RowFormat::kF32);
  EXPECT_EQ(layout.formula(1000),
            "1 slots x 128 rows (window 128) x 583 bytes (512 fp8 and 7 scales, the last 64 f16) + "
            "1 slots x 250 rows (one per 4 tokens) x 68 bytes (128 fp4 and 4 scales) + "
            "1 slots x 1 block x 24 bytes (6 f32) = 91648 bytes");
  // Any other format takes the same slots as it takes others.
  EXPECT_EQ(Layout(std::vector<Slot>{latent}, options(RowFormat::kF16, 8)).slots()[0].row_bytes,
            1024u);
}

TEST(Layout, RefusesFp8WhereNoOneSaysWhatItIs) {
  const LayoutOptions fp8 = options(RowFormat::kFp8, 8);
  EXPECT_THAT(refusal({rows(64)}, fp8, ErrorKind::kUnsupported),
              HasSubstr("slot 0: this architecture defines no fp8 rows"));
  Slot latent = rows(64), index = rows(96);
  latent.fp8 = algorithm::Fp8Form::kLatent;
  latent.tail = 65;
  index.fp8 = algorithm::Fp8Form::kIndex;
  EXPECT_THAT(refusal({latent}, fp8, ErrorKind::kUnsupported), HasSubstr("no fp8 form"));
  EXPECT_THAT(refusal({index}, fp8, ErrorKind::kUnsupported), HasSubstr("96 elements have no fp4"));
  EXPECT_NO_THROW(Layout(std::vector<Slot>{block(6)}, fp8));
}

TEST(Layout, BoundsThePagesOfAWindow) {
  const std::vector<Slot> slots = {rows(32), rows(32, 16)};
  const Layout layout(slots, options(RowFormat::kF32, 8, 8));
  EXPECT_EQ(layout.retained(1), 24u);
  EXPECT_EQ(layout.pages_for(0, 1000, 1), 125u);
  EXPECT_EQ(layout.pages_for(1, 1000, 1), 4u);   // 24 kept and 1 new, anywhere in pages of 8
  EXPECT_EQ(layout.pages_for(1, 1000, 16), 6u);  // 40
  EXPECT_EQ(layout.pages_for(1, 30, 16), 4u);    // no more than there are
  EXPECT_EQ(layout.pages_for(1, 24, 1), 3u);
  EXPECT_EQ(layout.pages_for(1, 0, 1), 0u);
  const std::size_t most = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(layout.pages_for(1, 1000, most), 125u);
  EXPECT_EQ(layout.pages_for(0, most, most), most / 8 + 1);
}

TEST(Layout, GathersBlocksInAGroupOfTheirOwn) {
  const std::vector<Slot> slots = {block(5), rows(32), block(100), rows(32, 8), block(16)};
  const Layout layout(slots, options(RowFormat::kF16, 4));
  ASSERT_EQ(layout.groups().size(), 3u);
  EXPECT_EQ(layout.fixed_group(), 0u);
  EXPECT_TRUE(layout.groups()[0].fixed);
  EXPECT_FALSE(layout.groups()[1].fixed);
  EXPECT_EQ(layout.slots()[2].group, 0u);
  EXPECT_EQ(layout.slots()[2].page_offset, 64u);  // behind 20 bytes
  EXPECT_EQ(layout.slots()[2].row_bytes, 400u);
  EXPECT_EQ(layout.slots()[2].format, RowFormat::kF32);
  EXPECT_EQ(layout.slots()[4].page_offset, 64u + 448);
  EXPECT_EQ(layout.groups()[0].page_bytes, 64u + 448 + 64);
  EXPECT_EQ(layout.groups()[1].page_bytes, 4u * 64);
  EXPECT_EQ(Layout(std::vector<Slot>{rows(32)}, options(RowFormat::kF16, 4)).fixed_group(),
            std::nullopt);
}

TEST(Layout, CountsBlocksTwiceAndForEachSnapshot) {
  LayoutOptions wanted = options(RowFormat::kF32, 4);
  wanted.snapshots = 3;
  const Layout layout(std::vector<Slot>{block(16), rows(16)}, wanted);
  EXPECT_EQ(layout.pages_for(0, 0, 1), 0u);
  EXPECT_EQ(layout.pages_for(0, 1, 1), 5u);
  EXPECT_EQ(layout.pages_for(0, 100000, 512), 5u);
  EXPECT_EQ(layout.bytes_for(8, 1), (5u + 8) * 64);
  EXPECT_EQ(layout.formula_bytes(8), (1u + 8) * 64);
  EXPECT_EQ(layout.formula_bytes(0), 0u);
  EXPECT_EQ(layout.formula(8),
            "1 slots x 1 block x 64 bytes (16 f32) + 1 slots x 8 rows x 64 bytes (16 f32) = "
            "576 bytes");
}

TEST(Layout, KeepsAsManySnapshotsAsTheirShareAllows) {
  const LayoutOptions wanted = options(RowFormat::kF32, 4);
  const std::vector<Slot> slots = {block(16), rows(16)};  // blocks and rows of 64 bytes
  const auto snapshots = [&](std::size_t length, double share) {
    return layout_with_snapshots(slots, wanted, length, 1, share).options().snapshots;
  };
  EXPECT_EQ(snapshots(8, 0.1), 2u);   // one row's worth
  EXPECT_EQ(snapshots(58, 0.1), 6u);  // 60 rows in whole pages, and two blocks
  EXPECT_EQ(snapshots(58, 0.2), 12u);
  EXPECT_EQ(snapshots(100000, 0.1), 32u);
  EXPECT_EQ(layout_with_snapshots(std::vector<Slot>{rows(16)}, wanted, 100, 1).options().snapshots,
            0u);
}

TEST(Layout, WidensPagesToWholeRowsOfEverySlot) {
  const auto page_size = [](std::uint32_t ratio, std::uint32_t asked) {
    const std::vector<Slot> slots = {rows(16), {.width = 16, .ratio = ratio}};
    return layout_with_snapshots(slots, options(RowFormat::kF32, asked), 100, 1)
        .options()
        .page_size;
  };
  EXPECT_EQ(page_size(4, 16), 16u);
  EXPECT_EQ(page_size(128, 16), 128u);
  EXPECT_EQ(page_size(6, 16), 48u);
  EXPECT_THROW(page_size(1u << 30, 16), Error);
}

TEST(Layout, HoldsFineRowsInHalfPrecisionWhereTheSessionAsksForCoarser) {
  const std::vector<Slot> slots = {rows(64), shared_keys(64)};  // 7 does not divide 64
  const Layout q8(slots, options(RowFormat::kQ8, 4));
  EXPECT_EQ(q8.slots()[0].format, RowFormat::kQ8);
  EXPECT_EQ(q8.slots()[1].format, RowFormat::kF16);
  EXPECT_EQ(q8.slots()[0].row_bytes, 68u);
  EXPECT_EQ(q8.slots()[1].row_bytes, 128u);
  EXPECT_EQ(q8.formula(1),
            "1 slots x 1 rows x 68 bytes (64 q8 and 2 scales) + 1 slots x 1 rows x 128 bytes "
            "(64 f16) = 196 bytes");
  for (const RowFormat format : {RowFormat::kF32, RowFormat::kF16, RowFormat::kBF16}) {
    EXPECT_EQ(Layout(slots, options(format, 4)).slots()[1].format, format);
  }
}

TEST(Layout, HasNoGroupsWithoutSlots) {
  const Layout layout(std::vector<Slot>{}, LayoutOptions{});
  EXPECT_TRUE(layout.groups().empty());
  EXPECT_EQ(layout.bytes_for(1000, 10), 0u);
  EXPECT_EQ(layout.formula(1000), "no state");
}

TEST(Layout, RefusesSlotsThatItCannotLayOut) {
  const auto kind = ErrorKind::kUnsupported;
  const LayoutOptions f16 = options(RowFormat::kF16, 8);
  EXPECT_THAT(refusal({rows(32), rows(32, 0, 3)}, f16, kind), HasSubstr("slot 1: one row per 3"));
  EXPECT_THAT(refusal({rows(32, 0, 0)}, f16, kind), HasSubstr("slot 0: one row per 0"));
  EXPECT_THAT(refusal({rows(0)}, f16, kind), HasSubstr("slot 0: width is 0"));
  EXPECT_THAT(refusal({rows(32)}, options(RowFormat::kF16, 0), kind), HasSubstr("one position"));
  EXPECT_THAT(refusal({block(0)}, f16, kind), HasSubstr("slot 0: width is 0"));
}

TEST(Layout, AsksForWholeGroupsOnlyWhereTheFormatHasScales) {
  const LayoutOptions q8 = options(RowFormat::kQ8, 8);
  EXPECT_THAT(refusal({rows(48)}, q8, ErrorKind::kUnsupported),
              HasSubstr("slot 0: groups of 32 elements, as q8 needs, do not divide a width of 48"));
  EXPECT_THAT(refusal({rows(48, 0, 1, 0)}, q8, ErrorKind::kUnsupported), HasSubstr("groups of 0"));
  EXPECT_NO_THROW(Layout(std::vector<Slot>{rows(48)}, options(RowFormat::kF16, 8)));
}

TEST(Layout, RefusesPagesBeyondTheAddressSpace) {
  const std::uint32_t most = std::numeric_limits<std::uint32_t>::max();
  EXPECT_THAT(refusal({rows(most)}, options(RowFormat::kF32, most), ErrorKind::kInternal),
              HasSubstr(" x "));
  const std::vector<Slot> two(2, rows(most / 4));  // each fits, their sum does not
  EXPECT_THAT(refusal(two, options(RowFormat::kF32, most), ErrorKind::kInternal), HasSubstr(" + "));
}

}  // namespace
}  // namespace lemma::state
