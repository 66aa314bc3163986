// SPDX-License-Identifier: Apache-2.0
// Any bytes must either parse or throw lemma::Error. What parses is then used as a model loader
// would: every key read under every type, every tensor decoded to its last byte.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lemma/error.hpp"
#include "weights/gguf/reader.hpp"

namespace {

using lemma::weights::Metadata;
using lemma::weights::TensorInfo;

template <typename Read>
void attempt(Read read) {
  try {
    read();
  } catch (const lemma::Error&) {
  }
}

void read_every_way(const Metadata& metadata, const std::string& key) {
  attempt([&] { metadata.boolean(key); });
  attempt([&] { metadata.u32(key); });
  attempt([&] { metadata.i64(key); });
  attempt([&] { metadata.f32(key); });
  attempt([&] { metadata.string(key); });
  attempt([&] { metadata.strings(key); });
  attempt([&] { metadata.floats(key); });
  attempt([&] { metadata.u32s(key); });
  attempt([&] { metadata.i32s(key); });
  attempt([&] { metadata.booleans(key); });
  attempt([&] { metadata.u32_per_layer(key, 4); });
  attempt([&] { metadata.boolean_per_layer(key, 4); });
}

void decode_rows(const TensorInfo& tensor) {
  const auto& format = lemma::weights::traits(tensor.format);
  constexpr std::size_t kBlocks = 64;
  std::vector<float> out(kBlocks * format.block_elements);
  const std::size_t blocks = tensor.bytes.size() / format.block_bytes;
  for (std::size_t i = 0; i < blocks; i += kBlocks) {
    const std::size_t n = std::min(kBlocks, blocks - i);
    format.dequantize(tensor.bytes.data() + i * format.block_bytes,
                      std::span(out).first(n * format.block_elements));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  attempt([&] {
    const auto contents =
        lemma::weights::gguf::parse(std::as_bytes(std::span(data, size)), "input");
    for (const auto& [key, value] : contents.metadata.pairs()) {
      read_every_way(contents.metadata, key);
    }
    for (const TensorInfo& tensor : contents.tensors) decode_rows(tensor);
  });
  return 0;
}
