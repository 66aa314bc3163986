// SPDX-License-Identifier: Apache-2.0
#include "weights/safetensors/tiny_folder.hpp"

#include <unistd.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "weights/safetensors/writer.hpp"

namespace lemma::weights::safetensors {

TinyFolder::TinyFolder() : config_(std::make_unique<nlohmann::json>()) {
  static int number = 0;
  path_ = std::filesystem::temp_directory_path() /
          ("lemma-folder-" + std::to_string(::getpid()) + "-" + std::to_string(number++));
  std::filesystem::create_directories(path_);
}
TinyFolder::~TinyFolder() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}
TinyFolder::TinyFolder(TinyFolder&& other) noexcept
    : tensors(std::move(other.tensors)),
      path_(std::exchange(other.path_, {})),
      config_(std::move(other.config_)) {}

TinyFolder TinyFolder::llama() {
  TinyFolder folder;
  folder.config() = {{"model_type", "llama"},       {"hidden_size", 8},
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

void TinyFolder::add(const std::string& name, const std::vector<std::uint64_t>& shape) {
  std::size_t count = 1;
  for (const std::uint64_t n : shape) count *= n;
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(1000 * tensors.size() + i);
  add_bytes(name, "F32", shape, values.data(), count * sizeof(float));
}
void TinyFolder::add_bytes(const std::string& name, const std::string& dtype,
                           const std::vector<std::uint64_t>& shape, const void* data,
                           std::size_t size) {
  Tensor tensor{name, dtype, shape, std::vector<std::byte>(size)};
  if (size > 0) std::memcpy(tensor.bytes.data(), data, size);
  tensors.push_back(std::move(tensor));
}
TinyFolder::Tensor& TinyFolder::at(const std::string& name) {
  for (Tensor& tensor : tensors)
    if (tensor.name == name) return tensor;
  throw std::out_of_range(name);
}
void TinyFolder::remove(const std::string& name) {
  std::erase_if(tensors, [&](const Tensor& tensor) { return tensor.name == name; });
}

void TinyFolder::write() const {
  write_text("config.json", config_->dump());
  write_tensors("model.safetensors", tensors);
}
void TinyFolder::write_text(const std::string& file, const std::string& text) const {
  std::ofstream(path_ / file) << text;
}
void TinyFolder::write_tensors(const std::string& file, const std::vector<Tensor>& which) const {
  std::vector<SafetensorsTensor> header;
  for (const Tensor& tensor : which) header.push_back({tensor.name, tensor.dtype, tensor.shape});
  SafetensorsWriter writer(path_ / file, header, {});
  for (std::size_t i = 0; i < which.size(); ++i) writer.write(i, 0, which[i].bytes);
  writer.publish();
}

}  // namespace lemma::weights::safetensors
