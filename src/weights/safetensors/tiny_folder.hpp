// SPDX-License-Identifier: Apache-2.0
// For tests: a Hugging Face folder in the temporary directory, made file by file and removed with
// the object. Tensors of f32 count upwards from a number of their own, so that a wrong order shows.
//
//   TinyFolder folder = TinyFolder::llama();
//   folder.config()["rope_scaling"] = ...;
//   folder.write();
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lemma::weights::safetensors {

class TinyFolder {
 public:
  struct Tensor {
    std::string name, dtype;
    std::vector<std::uint64_t> shape;
    std::vector<std::byte> bytes;
  };

  TinyFolder();
  ~TinyFolder();
  TinyFolder(TinyFolder&&) noexcept;

  /// One layer of width 8 with 2 heads on one KV head, vocabulary 6.
  static TinyFolder llama();

  /// Adds a tensor of f32: 1000 n, 1000 n + 1, ... for the n-th.
  void add(const std::string& name, const std::vector<std::uint64_t>& shape);
  void add_bytes(const std::string& name, const std::string& dtype,
                 const std::vector<std::uint64_t>& shape, const void* data, std::size_t size);
  Tensor& at(const std::string& name);
  void remove(const std::string& name);

  /// config.json and one file of all tensors.
  void write() const;
  void write_text(const std::string& file, const std::string& text) const;
  void write_tensors(const std::string& file, const std::vector<Tensor>& which) const;

  const std::filesystem::path& path() const { return path_; }

  nlohmann::json& config() { return *config_; }

  std::vector<Tensor> tensors;

 private:
  std::filesystem::path path_;
  std::unique_ptr<nlohmann::json> config_;
};

}  // namespace lemma::weights::safetensors
