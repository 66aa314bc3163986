// SPDX-License-Identifier: Apache-2.0
#include "seeded_model.hpp"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>

#include "algorithm/sampling.hpp"
#include "weights/gguf/writer.hpp"

namespace lemma::test {
namespace {

using weights::Format;

constexpr std::uint32_t kWidth = 512, kHidden = 1024, kLayers = 2, kHeads = 8, kKvHeads = 4;
constexpr std::uint32_t kHeadDim = kWidth / kHeads, kVocabulary = 512;

class ModelWriter {
 public:
  explicit ModelWriter(Format format) : format_(format) {}

  // Uniform in +-sqrt(3 / cols): rows keep the scale of what they multiply.
  void matrix(const std::string& name, std::uint64_t rows, std::uint64_t cols) {
    const float scale = std::sqrt(3.f / static_cast<float>(cols));
    std::vector<float> values(rows * cols);
    for (float& value : values) value = (2.f * random_.uniform() - 1.f) * scale;
    std::vector<std::byte> bytes(rows * weights::row_bytes(format_, cols));
    weights::traits(format_).quantize(values, bytes.data());
    writer.add_tensor(name, format_, {rows, cols}, [bytes] { return bytes; });
  }
  void norm(const std::string& name) {
    std::vector<std::byte> bytes(kWidth * sizeof(float));
    for (std::uint32_t i = 0; i < kWidth; ++i) {
      const float weight = 0.75f + 0.5f * random_.uniform();
      std::memcpy(bytes.data() + i * sizeof(float), &weight, sizeof(float));
    }
    writer.add_tensor(name, Format::kF32, {kWidth}, [bytes] { return bytes; });
  }

  weights::gguf::Writer writer;

 private:
  Format format_;
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

void write_seeded_model(const std::filesystem::path& path, Format format) {
  ModelWriter model(format);
  weights::gguf::Writer& writer = model.writer;
  writer.add("general.architecture", "llama");
  writer.add("llama.context_length", std::uint32_t{256});
  writer.add("llama.embedding_length", kWidth);
  writer.add("llama.block_count", kLayers);
  writer.add("llama.feed_forward_length", kHidden);
  writer.add("llama.attention.head_count", kHeads);
  writer.add("llama.attention.head_count_kv", kKvHeads);
  writer.add("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  add_vocabulary(writer);
  model.matrix("token_embd.weight", kVocabulary, kWidth);
  for (std::uint32_t i = 0; i < kLayers; ++i) {
    const std::string block = "blk." + std::to_string(i) + ".";
    model.norm(block + "attn_norm.weight");
    model.matrix(block + "attn_q.weight", kWidth, kWidth);
    model.matrix(block + "attn_k.weight", kKvHeads * kHeadDim, kWidth);
    model.matrix(block + "attn_v.weight", kKvHeads * kHeadDim, kWidth);
    model.matrix(block + "attn_output.weight", kWidth, kWidth);
    model.norm(block + "ffn_norm.weight");
    model.matrix(block + "ffn_gate.weight", kHidden, kWidth);
    model.matrix(block + "ffn_up.weight", kHidden, kWidth);
    model.matrix(block + "ffn_down.weight", kWidth, kHidden);
  }
  model.norm("output_norm.weight");
  model.matrix("output.weight", kVocabulary, kWidth);
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
