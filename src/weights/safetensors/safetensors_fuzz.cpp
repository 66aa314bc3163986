// SPDX-License-Identifier: Apache-2.0
// Any bytes must either parse as a safetensors file or throw lemma::Error. Where they parse, every
// tensor lies inside the file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "lemma/error.hpp"
#include "weights/safetensors/header.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto header =
        lemma::weights::parse_safetensors(std::as_bytes(std::span(data, size)), "input");
    for (const auto& entry : header.entries)
      if (entry.begin > entry.end || entry.end > size) std::abort();
  } catch (const lemma::Error&) {
  }
  return 0;
}
