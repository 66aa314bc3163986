// SPDX-License-Identifier: Apache-2.0
// MappedFile: the bytes of a regular file, mapped read-only into memory and released with the
// object. Pages are read when they are first touched. The span stays valid when the object is
// moved and when the file is deleted or replaced by name; truncating the file in place while it is
// mapped ends the process on the next touch of a lost page, which no reader can prevent.
// Safe to share between threads.
//
//   const auto file = MappedFile::open("model.gguf");
//   parse(file.bytes());
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <utility>

namespace lemma::base {

class MappedFile {
 public:
  MappedFile() noexcept = default;
  MappedFile(MappedFile&& other) noexcept
      : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    MappedFile taken(std::move(other));
    std::swap(path_, taken.path_);
    std::swap(bytes_, taken.bytes_);
    return *this;
  }
  ~MappedFile();

  /// Maps the file at `path`. An empty file gives no bytes. Throws kNotFound, or kIo for a folder,
  /// a device or whatever else cannot be mapped; the message names the path and the reason.
  static MappedFile open(const std::filesystem::path& path);

  std::span<const std::byte> bytes() const noexcept { return bytes_; }
  const std::filesystem::path& path() const noexcept { return path_; }

  /// Asks the system to start reading bytes [offset, offset + length) ahead of their use.
  void prefetch(std::size_t offset, std::size_t length) const noexcept;

 private:
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
};

/// The same for bytes of any mapping, whichever file they belong to.
void prefetch(std::span<const std::byte> mapped) noexcept;
/// Tells the system that few of these bytes will be read at a time, so that touching some reads
/// none beside them; prefetch() then says which.
void expect_scattered_reads(std::span<const std::byte> mapped) noexcept;
/// Whether the system holds the first, the middle and the last page of mapped bytes: a guess
/// whether it holds them all, at the price of looking.
bool seems_cached(std::span<const std::byte> mapped) noexcept;
/// Gives back the memory of whole pages of a mapped file that will not be read again soon: touching
/// them reads the file again. Does nothing for bytes that no MappedFile holds, and returns whether
/// one does.
bool let_go(std::span<const std::byte> bytes) noexcept;

}  // namespace lemma::base
