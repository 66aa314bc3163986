// SPDX-License-Identifier: Apache-2.0
#include "seeded_model.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>

#include "algorithm/sampling.hpp"
#include "weights/gguf/writer.hpp"

namespace lemma::test {
namespace {

using weights::Format;

constexpr std::uint32_t kKvHeads = 4, kHeadDim = 64, kVocabulary = 512;

struct Shape {
  std::uint32_t width, hidden, layers;
  std::uint64_t distinct_rows;  ///< of a matrix; further ones repeat them
  std::uint32_t heads() const { return width / kHeadDim; }
};
constexpr Shape kFullShape{512, 1024, 2, ~std::uint64_t{0}}, kNarrowShape{256, 512, 1, 61};

class ModelWriter {
 public:
  ModelWriter(Format format, const Shape& shape) : format_(format), shape_(shape) {}

  // Uniform in +-sqrt(3 / cols): rows keep the scale of what they multiply.
  void matrix(const std::string& name, std::uint64_t rows, std::uint64_t cols) {
    const float scale = std::sqrt(3.f / static_cast<float>(cols));
    const std::uint64_t distinct = std::min(rows, shape_.distinct_rows);
    std::vector<float> values(distinct * cols);
    for (float& value : values) value = (2.f * random_.uniform() - 1.f) * scale;
    const std::size_t row_bytes = weights::row_bytes(format_, cols);
    std::vector<std::byte> encoded(distinct * row_bytes), bytes(rows * row_bytes);
    weights::traits(format_).quantize(values, encoded.data());
    for (std::uint64_t r = 0; r < rows; ++r) {
      std::memcpy(bytes.data() + r * row_bytes, encoded.data() + r % distinct * row_bytes,
                  row_bytes);
    }
    writer.add_tensor(name, format_, {rows, cols}, [bytes] { return bytes; });
  }
  void norm(const std::string& name) {
    std::vector<std::byte> bytes(shape_.width * sizeof(float));
    for (std::uint32_t i = 0; i < shape_.width; ++i) {
      const float weight = 0.75f + 0.5f * random_.uniform();
      std::memcpy(bytes.data() + i * sizeof(float), &weight, sizeof(float));
    }
    writer.add_tensor(name, Format::kF32, {shape_.width}, [bytes] { return bytes; });
  }

  weights::gguf::Writer writer;

 private:
  Format format_;
  Shape shape_;
  algorithm::Random random_{20240229};
};

// A SentencePiece-style vocabulary: three special tokens, 256 bytes, two-letter pieces.
void add_vocabulary(weights::gguf::Writer& writer) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<std::int32_t> types = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", static_cast<unsigned>(byte));
    tokens.emplace_back(text);
    types.push_back(6);
  }
  for (std::uint32_t i = 0; tokens.size() < kVocabulary; ++i) {
    tokens.push_back({static_cast<char>('a' + i / 26), static_cast<char>('a' + i % 26)});
    types.push_back(1);
  }
  std::vector<float> scores(tokens.size());
  for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = -static_cast<float>(i);
  writer.add("tokenizer.ggml.model", "llama");
  writer.add("tokenizer.ggml.tokens", tokens);
  writer.add("tokenizer.ggml.scores", scores);
  writer.add("tokenizer.ggml.token_type", types);
  writer.add("tokenizer.ggml.bos_token_id", std::uint32_t{1});
  writer.add("tokenizer.ggml.eos_token_id", std::uint32_t{2});
}

}  // namespace

void write_seeded_model(const std::filesystem::path& path, Format format, SeededSize size) {
  const Shape& shape = size == SeededSize::kFull ? kFullShape : kNarrowShape;
  const std::uint32_t width = shape.width, hidden = shape.hidden;
  ModelWriter model(format, shape);
  weights::gguf::Writer& writer = model.writer;
  writer.add("general.architecture", "llama");
  writer.add("llama.context_length", std::uint32_t{256});
  writer.add("llama.embedding_length", width);
  writer.add("llama.block_count", shape.layers);
  writer.add("llama.feed_forward_length", hidden);
  writer.add("llama.attention.head_count", shape.heads());
  writer.add("llama.attention.head_count_kv", kKvHeads);
  writer.add("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  add_vocabulary(writer);
  model.matrix("token_embd.weight", kVocabulary, width);
  for (std::uint32_t i = 0; i < shape.layers; ++i) {
    const std::string block = "blk." + std::to_string(i) + ".";
    model.norm(block + "attn_norm.weight");
    model.matrix(block + "attn_q.weight", width, width);
    model.matrix(block + "attn_k.weight", kKvHeads * kHeadDim, width);
    model.matrix(block + "attn_v.weight", kKvHeads * kHeadDim, width);
    model.matrix(block + "attn_output.weight", width, width);
    model.norm(block + "ffn_norm.weight");
    model.matrix(block + "ffn_gate.weight", hidden, width);
    model.matrix(block + "ffn_up.weight", hidden, width);
    model.matrix(block + "ffn_down.weight", width, hidden);
  }
  model.norm("output_norm.weight");
  model.matrix("output.weight", kVocabulary, width);
  writer.write(path);
}

std::vector<std::int32_t> seeded_tokens() {
  algorithm::Random random(7);
  std::vector<std::int32_t> tokens = {1};
  while (tokens.size() < 40)
    tokens.push_back(static_cast<std::int32_t>(random.next() % kVocabulary));
  return tokens;
}

}  // namespace lemma::test
