// SPDX-License-Identifier: Apache-2.0
#include "base/checksum.hpp"

#include <fmt/format.h>
#define XXH_INLINE_ALL  // no library behind the header
#include <xxhash.h>

#include <new>

namespace lemma::base {

struct Digest::State {
  XXH3_state_t* hash = XXH3_createState();
  ~State() { XXH3_freeState(hash); }
};

std::uint64_t checksum(std::span<const std::byte> bytes) noexcept {
  return XXH3_64bits(bytes.data(), bytes.size());
}

Digest::Digest() : state_(std::make_unique<State>()) {
  if (state_->hash == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state_->hash);
}

Digest::~Digest() = default;

void Digest::add(std::span<const std::byte> bytes) noexcept {
  XXH3_128bits_update(state_->hash, bytes.data(), bytes.size());
}

std::string Digest::hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->hash);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace lemma::base
