// SPDX-License-Identifier: Apache-2.0
// Cursor: reads little-endian scalars and strings from bytes, front to back, never past the end.
// A read that does not fit throws kBadFile and says what was being read, where, and how many bytes
// are missing. Internal to gguf/.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "base/raise.hpp"

namespace lemma::weights::gguf {

static_assert(std::endian::native == std::endian::little, "tensors are used as the file has them");

class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) noexcept : bytes_(bytes) {}

  std::uint64_t offset() const noexcept { return offset_; }
  std::uint64_t remaining() const noexcept { return bytes_.size() - offset_; }

  /// `what` is a noun phrase for the message: "the version".
  template <typename T>
  T read(std::string_view what) {
    need(sizeof(T), what);
    T value;
    std::memcpy(&value, bytes_.data() + offset_, sizeof value);
    offset_ += sizeof value;
    return value;
  }

  /// A string as GGUF stores it. The view lives as long as the bytes.
  std::string_view string(std::string_view what) {
    const auto length = read<std::uint64_t>(what);
    need(length, what);
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data() + offset_), length);
    offset_ += length;
    return text;
  }

  /// Refuses a `count` of elements that the remaining bytes cannot hold at `min_bytes` each.
  void need_elements(std::uint64_t count, std::uint64_t min_bytes, std::string_view what) const {
    if (count <= remaining() / min_bytes) return;
    base::raise(ErrorKind::kBadFile,
                "truncated at offset {}: {} has {} elements of at least {} byte(s), but only {} "
                "bytes remain",
                offset_, what, count, min_bytes, remaining());
  }

  void need(std::uint64_t length, std::string_view what) const {
    if (length <= remaining()) return;
    base::raise(ErrorKind::kBadFile,
                "truncated at offset {}: {} takes {} bytes, but only {} remain, {} bytes missing",
                offset_, what, length, remaining(), length - remaining());
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t offset_ = 0;
};

}  // namespace lemma::weights::gguf
