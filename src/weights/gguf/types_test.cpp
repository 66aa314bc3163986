// SPDX-License-Identifier: Apache-2.0
#include "weights/gguf/types.hpp"

#include <gtest/gtest.h>

namespace lemma::weights::gguf {
namespace {

TEST(GgufTypes, MapEveryFormatToItsGgmlNumberAndBack) {
  for (const Format format : kFormats) {
    const TensorType* type = tensor_type(tensor_type_number(format));
    ASSERT_NE(type, nullptr);
    EXPECT_EQ(type->format, format);
    EXPECT_EQ(type->name, traits(format).name);
  }
}

TEST(GgufTypes, HaveTheNumbersOfTheGgmlList) {
  EXPECT_EQ(tensor_type(13)->name, "Q5_K");
  EXPECT_EQ(tensor_type(16)->name, "IQ2_XXS");
  EXPECT_EQ(tensor_type(26)->format, Format::kI32);
  EXPECT_EQ(tensor_type(30)->name, "BF16");
  EXPECT_EQ(tensor_type(39)->name, "MXFP4");
  EXPECT_EQ(tensor_type(42), nullptr);
}

TEST(GgufTypes, IndexValueTypesByTheirNumber) {
  for (std::uint32_t number = 0; number < 13; ++number) {
    ASSERT_NE(value_type(number), nullptr);
    EXPECT_EQ(static_cast<std::uint32_t>(value_type(number)->type), number);
    EXPECT_EQ(value_type_by_name(value_type(number)->name), value_type(number));
    EXPECT_EQ(value_type_by_name(value_type(number)->array_name), value_type(number));
  }
  EXPECT_EQ(value_type(13), nullptr);
  EXPECT_EQ(value_type_by_name("u128"), nullptr);
}

TEST(Printable, EscapesAndCuts) {
  EXPECT_EQ(printable("blk.0"), "blk.0");
  EXPECT_EQ(printable("a\tb\xc3"), "a\\x09b\\xc3");
  EXPECT_EQ(printable(std::string(81, 'x')), std::string(80, 'x') + "...");
}

}  // namespace
}  // namespace lemma::weights::gguf
