// SPDX-License-Identifier: Apache-2.0
#include "base/checksum.hpp"

#include <gtest/gtest.h>

#include <string>

namespace lemma::base {
namespace {

// Of nothing: the published test values of XXH3 with seed 0.
TEST(Checksum, IsXxh3) {
  EXPECT_EQ(checksum({}), 0x2d06800538d394c2u);
  EXPECT_EQ(Digest().hex(), "99aa06d3014798d86001c324468d497f");
}

TEST(Checksum, DoesNotDependOnHowBytesAreCut) {
  const std::string text(1000, 'x');
  Digest whole, parts;
  whole.add(text);
  for (std::size_t i = 0; i < text.size(); i += 7) parts.add(std::string_view(text).substr(i, 7));
  EXPECT_EQ(whole.hex(), parts.hex());
  parts.add("y");
  EXPECT_NE(whole.hex(), parts.hex());
}

}  // namespace
}  // namespace lemma::base
