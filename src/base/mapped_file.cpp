// SPDX-License-Identifier: Apache-2.0
#include "base/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <string>
#include <system_error>
#include <vector>

#include "base/raise.hpp"

namespace lemma::base {
namespace {

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

[[noreturn]] void raise_errno(const std::filesystem::path& path, const char* action, int code) {
  const bool absent = code == ENOENT || code == ENOTDIR;
  raise(absent ? ErrorKind::kNotFound : ErrorKind::kIo, "{}: cannot {}: {}", path.string(), action,
        std::generic_category().message(code));
}

/// The mappings there are, for let_go(): memory of other kinds would lose its contents.
class Mappings {
 public:
  void add(std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    all_.push_back(bytes);
  }
  void remove(std::span<const std::byte> bytes) noexcept {
    const std::lock_guard lock(mutex_);
    std::erase_if(all_, [&](const auto& one) { return one.data() == bytes.data(); });
  }
  bool hold(std::span<const std::byte> bytes) noexcept {
    const std::lock_guard lock(mutex_);
    return std::any_of(all_.begin(), all_.end(), [&](const auto& one) {
      return bytes.data() >= one.data() && bytes.data() + bytes.size() <= one.data() + one.size();
    });
  }

 private:
  std::mutex mutex_;
  std::vector<std::span<const std::byte>> all_;
};

Mappings& mappings() {
  static Mappings all;
  return all;
}

}  // namespace

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  mappings().remove(bytes_);
  munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile MappedFile::open(const std::filesystem::path& path) {
  // Non-blocking, because opening a named pipe would otherwise wait for its writer.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) raise_errno(path, "open", errno);
  struct stat status {};
  if (::fstat(file.fd, &status) != 0) raise_errno(path, "read its status", errno);
  if (S_ISDIR(status.st_mode)) {
    raise(ErrorKind::kIo, "{}: expected a file, found a folder", path.string());
  }
  if (!S_ISREG(status.st_mode)) {
    raise(ErrorKind::kIo, "{}: expected a regular file, found a device, pipe or socket",
          path.string());
  }
  MappedFile mapped;
  mapped.path_ = path;
  if (status.st_size == 0) return mapped;  // a mapping cannot have length 0
  const auto size = static_cast<std::size_t>(status.st_size);
  void* const address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (address == MAP_FAILED) raise_errno(path, "map into memory", errno);
  mapped.bytes_ = {static_cast<const std::byte*>(address), size};
  mappings().add(mapped.bytes_);
  return mapped;
}

void MappedFile::prefetch(std::size_t offset, std::size_t length) const noexcept {
  if (offset >= bytes_.size()) return;
  base::prefetch(bytes_.subspan(offset, std::min(length, bytes_.size() - offset)));
}

void prefetch(std::span<const std::byte> mapped) noexcept {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(mapped.data());
  const std::uintptr_t begin = address / page * page;
  if (!mapped.empty())
    ::madvise(reinterpret_cast<void*>(begin), mapped.size() + (address - begin), MADV_WILLNEED);
}

void expect_scattered_reads(std::span<const std::byte> mapped) noexcept {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(mapped.data());
  const std::uintptr_t begin = (address + page - 1) / page * page;
  const std::uintptr_t end = (address + mapped.size()) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_RANDOM);
}

bool seems_cached(std::span<const std::byte> mapped) noexcept {
  if (mapped.empty()) return true;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  for (const std::size_t at : {std::size_t{0}, mapped.size() / 2, mapped.size() - 1}) {
    const auto address = reinterpret_cast<std::uintptr_t>(mapped.data() + at) / page * page;
    unsigned char held = 0;
    if (::mincore(reinterpret_cast<void*>(address), 1, &held) != 0 || (held & 1) == 0) return false;
  }
  return true;
}

bool let_go(std::span<const std::byte> bytes) noexcept {
  if (bytes.empty() || !mappings().hold(bytes)) return false;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t begin = (address + page - 1) / page * page;
  const std::uintptr_t end = (address + bytes.size()) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  return true;
}

}  // namespace lemma::base
