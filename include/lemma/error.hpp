// SPDX-License-Identifier: Apache-2.0
// The one error type of lemma. Whatever a file, a request, a template or a budget can cause is
// thrown as lemma::Error: a kind that a program can act on and a message for a person, in which
// each layer adds what it knows (file, tensor, key; expected and found). Programmer errors are
// LEMMA_CHECK (base/check.hpp) and never reachable from outside bytes.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace lemma {

enum class ErrorKind {
  kUsage,        ///< a wrong option, argument or parameter value
  kNotFound,     ///< a file, tensor, key or name that does not exist
  kIo,           ///< the operating system refused a read or write
  kBadFile,      ///< a damaged, truncated or contradictory file
  kUnsupported,  ///< well-formed, but not something that lemma can run
  kContextFull,  ///< more tokens than the context holds
  kOutOfMemory,  ///< a budget or the system's memory is exhausted
  kCancelled,    ///< stopped on request
  kNonFinite,    ///< NaN or infinity where a finite number must stand
  kDevice,       ///< a device failed
  kTemplate,     ///< a chat template refused its input
  kInternal,     ///< a fault in lemma itself
};

/// The kind's name in lower case words, such as "bad file".
constexpr std::string_view to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
      return "usage";
    case ErrorKind::kNotFound:
      return "not found";
    case ErrorKind::kIo:
      return "io";
    case ErrorKind::kBadFile:
      return "bad file";
    case ErrorKind::kUnsupported:
      return "unsupported";
    case ErrorKind::kContextFull:
      return "context full";
    case ErrorKind::kOutOfMemory:
      return "out of memory";
    case ErrorKind::kCancelled:
      return "cancelled";
    case ErrorKind::kNonFinite:
      return "non-finite";
    case ErrorKind::kDevice:
      return "device";
    case ErrorKind::kTemplate:
      return "template";
    case ErrorKind::kInternal:
      return "internal";
  }
  return "unknown";
}

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}

  ErrorKind kind() const noexcept { return kind_; }

  /// The same error with "context: " in front of its message; for rethrowing from an outer layer.
  Error within(const std::string& context) const { return {kind_, context + ": " + what()}; }

 private:
  ErrorKind kind_;
};

}  // namespace lemma
