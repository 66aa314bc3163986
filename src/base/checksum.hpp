// SPDX-License-Identifier: Apache-2.0
// Checksums: fast digests (XXH3) that tell different bytes apart. They are no protection against
// somebody who wants two files to look alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace lemma::base {

/// XXH3-64 of `bytes`.
std::uint64_t checksum(std::span<const std::byte> bytes) noexcept;

/// XXH3-128 of bytes that come one after the other.
class Digest {
 public:
  Digest();
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  void add(std::span<const std::byte> bytes) noexcept;
  void add(std::string_view text) noexcept { add(std::as_bytes(std::span(text))); }
  /// 32 hexadecimal digits, of all that was added so far.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lemma::base
