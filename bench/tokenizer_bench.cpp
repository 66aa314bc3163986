// SPDX-License-Identifier: Apache-2.0
// Encoding speed on one core: tokenizer_bench TOKENIZER TEXT [ROUNDS] encodes the file TEXT and
// prints the CPU seconds of the best round, the number of ids and a hash of them, which
// bench/compare_tokenizers.py compares with its peer's.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "lemma/tokenizer.hpp"

namespace {

std::uint64_t hash_ids(const std::vector<lemma::TokenId>& ids) {
  std::uint64_t value = 0;
  for (const lemma::TokenId id : ids) {
    value = (value * 1000003 + static_cast<std::uint64_t>(id) + 1) % 0xffffffff;
  }
  return value;
}

int run(int argc, char** argv) {
  if (argc < 3) {
    std::fputs("usage: tokenizer_bench TOKENIZER TEXT [ROUNDS]\n", stderr);
    return 2;
  }
  const auto tokenizer = lemma::Tokenizer::open(argv[1]);
  std::ifstream in(argv[2], std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  double best = 1e9;
  std::vector<lemma::TokenId> ids;
  for (int round = argc > 3 ? std::atoi(argv[3]) : 5; round > 0; --round) {
    const std::clock_t start = std::clock();
    ids = tokenizer.encode(text, {.add_special = false});
    best = std::min(best, double(std::clock() - start) / CLOCKS_PER_SEC);
  }
  std::printf("%.6f %zu %llu\n", best, ids.size(), static_cast<unsigned long long>(hash_ids(ids)));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
