// SPDX-License-Identifier: Apache-2.0
#include "weights/format.hpp"

#include <algorithm>
#include <array>

#include "weights/formats/codec.hpp"

namespace lemma::weights {
namespace {

// In the order of the enumerators.
constexpr std::array<const FormatTraits*, kFormats.size() + 1> kTable = {
    &formats::kF32Traits,    &formats::kF16Traits,     &formats::kBF16Traits,
    &formats::kQ8_0Traits,   &formats::kQ4_0Traits,    &formats::kQ4_KTraits,
    &formats::kQ6_KTraits,   &formats::kQ5_0Traits,    &formats::kQ4_1Traits,
    &formats::kQ5_1Traits,   &formats::kQ2_KTraits,    &formats::kQ3_KTraits,
    &formats::kQ5_KTraits,   &formats::kQ8_KTraits,    &formats::kIQ1_STraits,
    &formats::kIQ1_MTraits,  &formats::kIQ2_XXSTraits, &formats::kIQ2_XSTraits,
    &formats::kIQ2_STraits,  &formats::kIQ3_XXSTraits, &formats::kIQ3_STraits,
    &formats::kIQ4_NLTraits, &formats::kIQ4_XSTraits,  &formats::kTQ1_0Traits,
    &formats::kTQ2_0Traits,  &formats::kMXFP4Traits,   &formats::kNVFP4Traits,
    &formats::kI32Traits,
};

constexpr char lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

const FormatTraits& traits(Format format) noexcept {
  return *kTable[static_cast<std::size_t>(format)];
}

std::optional<Format> format_by_name(std::string_view name) noexcept {
  for (const Format format : kFormats) {
    if (std::ranges::equal(name, traits(format).name, {}, lower, lower)) return format;
  }
  return std::nullopt;
}

}  // namespace lemma::weights
