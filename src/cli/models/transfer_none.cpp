// SPDX-License-Identifier: Apache-2.0
// Where libcurl was not found: says so.
#include "base/raise.hpp"
#include "cli/models/transfer.hpp"

namespace lemma::cli {
namespace {

[[noreturn]] void refuse() {
  base::raise(ErrorKind::kUnsupported,
              "this lemma was built without libcurl and cannot pull; fetch the file by other means "
              "and give its path");
}

}  // namespace

bool can_transfer() noexcept {
  return false;
}

std::string fetch_text(const Request&, std::size_t) {
  refuse();
}

Downloaded download(const Download&) {
  refuse();
}

}  // namespace lemma::cli
