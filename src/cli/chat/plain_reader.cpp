// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/raise.hpp"
#include "cli/chat/line_reader.hpp"
#include "cli/output.hpp"

namespace lemma::cli::chat {
namespace {

class PlainReader final : public LineReader {
 public:
  PlainReader() : terminal_(::isatty(STDIN_FILENO) == 1 && stderr_is_terminal()) {}

  Line read(std::string_view prompt) override {
    if (terminal_) write_err(prompt);
    std::string text;
    for (;;) {
      const std::size_t end = held_.find('\n', at_);
      if (end != std::string::npos) {
        text += std::string_view(held_).substr(at_, end - at_);
        at_ = end + 1;
        break;
      }
      text += std::string_view(held_).substr(at_);
      if (!refill()) {
        if (text.empty()) return {Line::Kind::kEnd, {}};
        break;
      }
    }
    if (text.ends_with('\r')) text.pop_back();
    return {Line::Kind::kText, std::move(text)};
  }

 private:
  bool refill() {
    held_.clear();
    at_ = 0;
    std::array<char, 65536> block;
    for (;;) {
      const ssize_t got = ::read(STDIN_FILENO, block.data(), block.size());
      if (got >= 0) {
        held_.assign(block.data(), static_cast<std::size_t>(got));
        return got > 0;
      }
      if (errno != EINTR)
        base::raise(ErrorKind::kIo, "standard input cannot be read: {}", std::strerror(errno));
    }
  }

  const bool terminal_;
  std::string held_;  ///< read, of which the bytes from at_ on are not given yet
  std::size_t at_ = 0;
};

}  // namespace

std::unique_ptr<LineReader> plain_reader() {
  return std::make_unique<PlainReader>();
}

}  // namespace lemma::cli::chat
