// SPDX-License-Identifier: Apache-2.0
#include "weights/gguf/partial_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/raise.hpp"

namespace lemma::weights::gguf {

PartialFile::PartialFile(const std::filesystem::path& path, std::string_view suffix,
                         Leftover leftover)
    : path_(path), partial_(path.string() + std::string(suffix)), leftover_(leftover) {
  fd_ = ::open(partial_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) fail("create");
  struct stat status {};
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0 || ::fstat(fd_, &status) != 0) {
    const int error = errno;
    ::close(std::exchange(fd_, -1));
    errno = error;
    if (error == EWOULDBLOCK)
      base::raise(ErrorKind::kIo, "{}: another process is writing it", partial_.string());
    fail("lock");
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
  if (leftover == Leftover::kRemove) truncate(0);
}

PartialFile::~PartialFile() {
  if (!published_ && leftover_ == Leftover::kRemove) ::unlink(partial_.c_str());
  if (fd_ >= 0) ::close(fd_);
}

bool PartialFile::begins_with(std::span<const std::byte> bytes) const {
  if (size_ < bytes.size()) return false;
  std::vector<std::byte> found(std::min<std::size_t>(bytes.size(), std::size_t{1} << 20));
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t wanted = std::min(found.size(), bytes.size() - at);
    const ssize_t n = ::pread(fd_, found.data(), wanted, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("read");
    if (std::memcmp(found.data(), bytes.data() + at, static_cast<std::size_t>(n)) != 0)
      return false;
    at += static_cast<std::size_t>(n);
  }
  return true;
}

void PartialFile::truncate(std::uint64_t size) {
  if (::ftruncate(fd_, static_cast<off_t>(size)) != 0) fail("cut");
  if (::lseek(fd_, static_cast<off_t>(size), SEEK_SET) < 0) fail("cut");
  size_ = size;
}

void PartialFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    size_ += static_cast<std::uint64_t>(written);
  }
}

void PartialFile::publish() {
  if (::fsync(fd_) != 0) fail("write");
  if (::rename(partial_.c_str(), path_.c_str()) != 0) fail("rename");
  published_ = true;
  if (::close(std::exchange(fd_, -1)) != 0) fail("close");
}

void PartialFile::fail(std::string_view action) const {
  base::raise(ErrorKind::kIo, "{}: cannot {} it: {}", partial_.string(), action,
              std::generic_category().message(errno));
}

}  // namespace lemma::weights::gguf
