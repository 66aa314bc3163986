// SPDX-License-Identifier: Apache-2.0
// Sha256: the digest that model hubs publish for their files. Fed piece by piece.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace lemma::cli {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  void add(std::span<const std::byte> bytes);
  /// 64 hexadecimal digits, of all that was added; the object is spent then.
  std::string digest();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Of a whole file. Throws kNotFound or kIo.
std::string sha256_of(const std::filesystem::path& path);

}  // namespace lemma::cli
