// SPDX-License-Identifier: Apache-2.0
// For tests: a checkpoint of keys, names and shapes whose tensors have no bytes, so that whoever
// touches one before its time fails at once. Made from scratch, or as an altered copy of a file.
//
//   TinyCheckpoint tiny = TinyCheckpoint::llama(2);
//   tiny.set("llama.block_count", std::int64_t{513});
//   EXPECT_THROW(make_plan(tiny, {}), Error);
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weights/checkpoint.hpp"

namespace lemma::model::arch {

class TinyCheckpoint final : public weights::Checkpoint {
 public:
  TinyCheckpoint() = default;

  /// The keys and tensors of `other`; bytes are kept only for the tensors whose values become part
  /// of a plan (rope_*, layer_output_scale), and only as long as `other` lives.
  explicit TinyCheckpoint(const weights::Checkpoint& other) {
    for (const auto& [key, value] : other.metadata().pairs()) metadata_.add(key, value);
    for (weights::TensorInfo tensor : other.tensors()) {
      if (!tensor.name.starts_with("rope_") &&
          tensor.name.find(".layer_output_scale.") == std::string::npos)
        tensor.bytes = {};
      tensors_.push_back(std::move(tensor));
    }
  }

  /// Width 64, 4 heads on 2 KV heads of 16, feed-forward 80, vocabulary 512, context 256.
  static TinyCheckpoint llama(std::uint32_t layers) {
    TinyCheckpoint tiny;
    tiny.set("general.architecture", std::string("llama"));
    tiny.set("llama.context_length", std::int64_t{256});
    tiny.set("llama.embedding_length", std::int64_t{64});
    tiny.set("llama.block_count", std::int64_t{layers});
    tiny.set("llama.feed_forward_length", std::int64_t{80});
    tiny.set("llama.attention.head_count", std::int64_t{4});
    tiny.set("llama.attention.head_count_kv", std::int64_t{2});
    tiny.set("llama.attention.layer_norm_rms_epsilon", 1e-5);
    tiny.set("llama.rope.dimension_count", std::int64_t{16});
    tiny.add_tensor("token_embd.weight", {512, 64});
    tiny.add_tensor("output_norm.weight", {64});
    for (std::uint32_t i = 0; i < layers; ++i) {
      const std::string block = "blk." + std::to_string(i) + ".";
      for (const char* norm : {"attn_norm.weight", "ffn_norm.weight"})
        tiny.add_tensor(block + norm, {64});
      for (const char* square : {"attn_q.weight", "attn_output.weight"})
        tiny.add_tensor(block + square, {64, 64});
      for (const char* narrow : {"attn_k.weight", "attn_v.weight"})
        tiny.add_tensor(block + narrow, {32, 64});
      for (const char* up : {"ffn_gate.weight", "ffn_up.weight"})
        tiny.add_tensor(block + up, {80, 64});
      tiny.add_tensor(block + "ffn_down.weight", {64, 80});
    }
    return tiny;
  }

  /// Sets or replaces a key.
  template <typename T>
  TinyCheckpoint& set(std::string_view key, T value) {
    remove(key);
    metadata_.add(std::string(key), {std::move(value), "set by a test"});
    return *this;
  }
  TinyCheckpoint& remove(std::string_view key) {
    weights::Metadata rest;
    for (const auto& [name, value] : metadata_.pairs())
      if (name != key) rest.add(name, value);
    metadata_ = std::move(rest);
    return *this;
  }
  TinyCheckpoint& add_tensor(std::string name, std::vector<std::uint64_t> shape,
                             weights::Format format = weights::Format::kF32) {
    tensors_.push_back({.name = std::move(name), .format = format, .shape = std::move(shape)});
    return *this;
  }
  TinyCheckpoint& remove_tensor(std::string_view name) {
    std::erase_if(tensors_, [&](const weights::TensorInfo& tensor) { return tensor.name == name; });
    return *this;
  }

  const weights::Metadata& metadata() const noexcept override { return metadata_; }
  const std::vector<weights::TensorInfo>& tensors() const noexcept override { return tensors_; }
  const weights::TensorInfo* find(std::string_view name) const noexcept override {
    for (const weights::TensorInfo& tensor : tensors_)
      if (tensor.name == name) return &tensor;
    return nullptr;
  }
  const std::vector<std::filesystem::path>& files() const noexcept override { return files_; }

 private:
  weights::Metadata metadata_;
  std::vector<weights::TensorInfo> tensors_;
  std::vector<std::filesystem::path> files_;
};

}  // namespace lemma::model::arch
