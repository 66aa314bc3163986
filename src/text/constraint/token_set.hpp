// SPDX-License-Identifier: Apache-2.0
// TokenSet: some of a vocabulary's tokens, as bits where they are many and as a list where they are
// few. A plain value.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "text/tokenizer.hpp"

namespace lemma::text::constraint {

/// One bit a token, id i in bit i % 64 of word i / 64.
using TokenBits = std::vector<std::uint64_t>;

inline void set_bit(std::span<std::uint64_t> bits, TokenId id, bool on = true) noexcept {
  const auto index = static_cast<std::size_t>(id);
  const std::uint64_t bit = std::uint64_t{1} << (index % 64);
  std::uint64_t& word = bits[index / 64];
  word = on ? word | bit : word & ~bit;
}

class TokenSet {
 public:
  TokenSet() = default;
  explicit TokenSet(const TokenBits& bits) {
    std::size_t count = 0;
    for (const std::uint64_t word : bits) count += static_cast<std::size_t>(std::popcount(word));
    if (count * sizeof(TokenId) > bits.size() * sizeof(std::uint64_t)) {
      bits_ = bits;
      return;
    }
    ids_.reserve(count);
    for (std::size_t i = 0; i < bits.size(); ++i) {
      for (std::uint64_t word = bits[i]; word != 0; word &= word - 1)
        ids_.push_back(static_cast<TokenId>(64 * i + std::size_t(std::countr_zero(word))));
    }
  }

  void add_to(std::span<std::uint64_t> bits) const noexcept {
    for (std::size_t i = 0; i < bits_.size(); ++i) bits[i] |= bits_[i];
    for (const TokenId id : ids_) set_bit(bits, id);
  }
  std::size_t bytes() const noexcept {
    return sizeof(TokenSet) + bits_.size() * sizeof(std::uint64_t) + ids_.size() * sizeof(TokenId);
  }

 private:
  TokenBits bits_;
  std::vector<TokenId> ids_;
};

}  // namespace lemma::text::constraint
