// SPDX-License-Identifier: Apache-2.0
#include "text/charsmap.hpp"

#include "base/raise.hpp"

namespace lemma::text {
namespace {

std::uint32_t read_u32(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    value |= std::uint32_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  }
  return value;
}

// Offsets steer where the walk goes next: label XOR offset.
std::size_t offset_of(std::uint32_t unit) {
  return std::size_t{unit >> 10} << ((unit & (1u << 9)) >> 6);
}

}  // namespace

Charsmap::Charsmap(std::string_view blob) {
  if (blob.empty()) return;
  const std::size_t size = blob.size() < 4 ? 0 : read_u32(blob, 0);
  if (blob.size() < 4 || size % 4 != 0 || size == 0 || size > blob.size() - 4) {
    base::raise(ErrorKind::kBadFile,
                "the normalization table has {} bytes and an array of {} bytes, expected the array "
                "to fit and to be whole units",
                blob.size(), size);
  }
  for (std::size_t at = 4; at < 4 + size; at += 4) units_.push_back(read_u32(blob, at));
  replacements_ = blob.substr(4 + size);
}

std::uint32_t Charsmap::unit(std::size_t index) const {
  if (index >= units_.size()) {
    base::raise(ErrorKind::kBadFile, "the normalization table points to unit {} of {}", index,
                units_.size());
  }
  return units_[index];
}

std::string_view Charsmap::replacement(std::size_t offset) const {
  const std::size_t end =
      offset < replacements_.size() ? replacements_.find('\0', offset) : std::string::npos;
  if (end == std::string::npos) {
    base::raise(ErrorKind::kBadFile, "the normalization table points to replacement {} of {} bytes",
                offset, replacements_.size());
  }
  return std::string_view(replacements_).substr(offset, end - offset);
}

std::optional<Charsmap::Found> Charsmap::find(std::string_view text, bool longest) const {
  if (units_.empty()) return std::nullopt;
  std::optional<std::size_t> length, value;
  std::size_t node = offset_of(unit(0));
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0) break;
    node ^= byte;
    const std::uint32_t here = unit(node);
    if ((here & ((1u << 31) | 0xff)) != byte) break;
    node ^= offset_of(here);
    if ((here >> 8 & 1) != 0) {
      value = unit(node) & ((1u << 31) - 1);
      length = i + 1;
      if (!longest) break;
    }
  }
  if (!length) return std::nullopt;
  return Found{*length, replacement(*value)};
}

}  // namespace lemma::text
