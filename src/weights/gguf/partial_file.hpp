// SPDX-License-Identifier: Apache-2.0
// PartialFile: a file that is written under a passing name beside its own and renamed when it is
// whole, so that nobody ever sees half of it. What becomes of an unfinished one is the caller's
// choice: it goes, or it stays for a later attempt, which then starts with its bytes. Two writers
// of the same passing name are kept apart by a lock. Owned by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace lemma::weights::gguf {

class PartialFile {
 public:
  enum class Leftover : std::uint8_t { kRemove, kKeep };

  /// Opens `path` + `suffix` for writing behind what is there already, or makes it. Throws kIo,
  /// also where another process is writing it.
  PartialFile(const std::filesystem::path& path, std::string_view suffix, Leftover leftover);
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  std::uint64_t size() const noexcept { return size_; }
  /// Whether its first bytes are `bytes`. Throws kIo.
  bool begins_with(std::span<const std::byte> bytes) const;
  /// Cuts it to `size` bytes, behind which append() goes on.
  void truncate(std::uint64_t size);
  void append(std::span<const std::byte> bytes);
  /// Gives it its own name, once all of it is on the disk.
  void publish();

 private:
  [[noreturn]] void fail(std::string_view action) const;

  std::filesystem::path path_, partial_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
  Leftover leftover_;
  bool published_ = false;
};

}  // namespace lemma::weights::gguf
