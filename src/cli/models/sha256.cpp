// SPDX-License-Identifier: Apache-2.0
#include "cli/models/sha256.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

#include "base/mapped_file.hpp"
#include "base/raise.hpp"

namespace lemma::cli {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  if (state_->context == nullptr || EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) != 1)
    base::raise(ErrorKind::kInternal, "SHA-256 is not to be had from libcrypto");
}

Sha256::~Sha256() = default;

void Sha256::add(std::span<const std::byte> bytes) {
  EVP_DigestUpdate(state_->context, bytes.data(), bytes.size());
}

std::string Sha256::digest() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned int n = 0;
  EVP_DigestFinal_ex(state_->context, bytes.data(), &n);
  std::string text;
  for (unsigned int i = 0; i < n; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

std::string sha256_of(const std::filesystem::path& path) {
  const base::MappedFile file = base::MappedFile::open(path);
  Sha256 sum;
  sum.add(file.bytes());
  return sum.digest();
}

}  // namespace lemma::cli
