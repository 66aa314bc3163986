// SPDX-License-Identifier: Apache-2.0
// Transfer: one GET over HTTP, for `lemma pull` alone; nothing else in lemma touches the network.
// An answer goes into memory, up to a limit, or into a file that a later call continues. Whatever a
// server says about sizes is checked against what it sends. Redirections are followed, and a token
// is sent to the first host only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace lemma::cli {

struct Request {
  std::string url;
  std::string token;  ///< sent as a bearer token where it is not empty
};

/// Whether this program can transfer at all (it was built with libcurl).
bool can_transfer() noexcept;

/// The answer's body, of at most `limit` bytes. Throws kNotFound for status 404, kUsage for 401 and
/// 403 (a token is missing or not enough), kIo for everything else that is not 200.
std::string fetch_text(const Request& request, std::size_t limit);

struct Download {
  Request request;
  std::filesystem::path path;         ///< grows as `path`.partial, renamed when it is whole
  std::optional<std::uint64_t> size;  ///< where it is known beforehand
  std::optional<std::string> sha256;  ///< likewise, 64 hexadecimal digits
  std::function<void(std::uint64_t done, std::optional<std::uint64_t> size)> progress;
};

struct Downloaded {
  std::uint64_t size = 0, resumed = 0;  ///< resumed: bytes that were there from an earlier call
  std::string sha256;
};

/// Fetches a file. A connection that breaks is taken up again where it broke, five times without a
/// new byte; then the part stays for the next call. Throws as fetch_text() does, and kIo where the
/// size or the digest is not what it should be: the bytes are deleted then.
Downloaded download(const Download& order);

}  // namespace lemma::cli
