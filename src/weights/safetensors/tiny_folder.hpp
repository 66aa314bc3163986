// SPDX-License-Identifier: Apache-2.0
// For tests: a Hugging Face folder in the temporary directory, made file by file and removed with
// the object. Tensors of f32 count upwards from a number of their own, so that a wrong order shows.
//
//   TinyFolder folder = TinyFolder::llama();
//   folder.config["rope_scaling"] = ...;
//   folder.write();
#pragma once

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "weights/safetensors/writer.hpp"

namespace lemma::weights::safetensors {

class TinyFolder {
 public:
  struct Tensor {
    std::string name, dtype;
    std::vector<std::uint64_t> shape;
    std::vector<std::byte> bytes;
  };

  TinyFolder() {
    static int number = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("lemma-folder-" + std::to_string(::getpid()) + "-" + std::to_string(number++));
    std::filesystem::create_directories(path_);
  }
  ~TinyFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TinyFolder(TinyFolder&& other) noexcept
      : config(std::move(other.config)),
        tensors(std::move(other.tensors)),
        path_(std::exchange(other.path_, {})) {}

  /// One layer of width 8 with 2 heads on one KV head, vocabulary 6.
  static TinyFolder llama() {
    TinyFolder folder;
    folder.config = {{"model_type", "llama"},       {"hidden_size", 8},
                     {"num_hidden_layers", 1},      {"num_attention_heads", 2},
                     {"num_key_value_heads", 1},    {"intermediate_size", 12},
                     {"rms_norm_eps", 1e-5},        {"max_position_embeddings", 32},
                     {"rope_theta", 10000.0},       {"hidden_act", "silu"},
                     {"tie_word_embeddings", true}, {"vocab_size", 6}};
    folder.add("model.embed_tokens.weight", {6, 8});
    folder.add("model.norm.weight", {8});
    const std::string layer = "model.layers.0.";
    for (const char* norm : {"input_layernorm.weight", "post_attention_layernorm.weight"})
      folder.add(layer + norm, {8});
    folder.add(layer + "self_attn.q_proj.weight", {8, 8});
    folder.add(layer + "self_attn.k_proj.weight", {4, 8});
    folder.add(layer + "self_attn.v_proj.weight", {4, 8});
    folder.add(layer + "self_attn.o_proj.weight", {8, 8});
    folder.add(layer + "mlp.gate_proj.weight", {12, 8});
    folder.add(layer + "mlp.up_proj.weight", {12, 8});
    folder.add(layer + "mlp.down_proj.weight", {8, 12});
    return folder;
  }

  /// Adds a tensor of f32: 1000 n, 1000 n + 1, ... for the n-th.
  void add(const std::string& name, const std::vector<std::uint64_t>& shape) {
    std::size_t count = 1;
    for (const std::uint64_t n : shape) count *= n;
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i)
      values[i] = static_cast<float>(1000 * tensors.size() + i);
    add_bytes(name, "F32", shape, values.data(), count * sizeof(float));
  }
  void add_bytes(const std::string& name, const std::string& dtype,
                 const std::vector<std::uint64_t>& shape, const void* data, std::size_t size) {
    Tensor tensor{name, dtype, shape, std::vector<std::byte>(size)};
    std::memcpy(tensor.bytes.data(), data, size);
    tensors.push_back(std::move(tensor));
  }
  Tensor& at(const std::string& name) {
    for (Tensor& tensor : tensors)
      if (tensor.name == name) return tensor;
    throw std::out_of_range(name);
  }
  void remove(const std::string& name) {
    std::erase_if(tensors, [&](const Tensor& tensor) { return tensor.name == name; });
  }

  /// config.json and one file of all tensors.
  void write() const {
    write_text("config.json", config.dump());
    write_tensors("model.safetensors", tensors);
  }
  void write_text(const std::string& file, const std::string& text) const {
    std::ofstream(path_ / file) << text;
  }
  void write_tensors(const std::string& file, const std::vector<Tensor>& which) const {
    std::vector<SafetensorsTensor> header;
    for (const Tensor& tensor : which) header.push_back({tensor.name, tensor.dtype, tensor.shape});
    SafetensorsWriter writer(path_ / file, header, {});
    for (std::size_t i = 0; i < which.size(); ++i) writer.write(i, 0, which[i].bytes);
    writer.publish();
  }

  const std::filesystem::path& path() const { return path_; }

  nlohmann::json config;
  std::vector<Tensor> tensors;

 private:
  std::filesystem::path path_;
};

}  // namespace lemma::weights::safetensors
