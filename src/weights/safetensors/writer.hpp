// SPDX-License-Identifier: Apache-2.0
// SafetensorsWriter: a safetensors file, written piece by piece in any order and put in its place
// only when it is whole: it grows beside its name and is renamed by publish(). Without publish()
// nothing is left behind. Owned by one thread.
//
//   SafetensorsWriter file("x.safetensors", {{"a", "F32", {2, 3}}}, {{"made by", "lemma"}});
//   file.write(0, 0, bytes_of_row_0);
//   file.write(0, 12, bytes_of_row_1);
//   file.publish();
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lemma::weights {

struct SafetensorsTensor {
  std::string name;   ///< valid UTF-8
  std::string dtype;  ///< "F32", "I32", ...
  std::vector<std::uint64_t> shape;
};

class SafetensorsWriter {
 public:
  /// Writes the header. Throws kIo.
  SafetensorsWriter(std::filesystem::path path, std::vector<SafetensorsTensor> tensors,
                    const std::vector<std::pair<std::string, std::string>>& metadata);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  /// Writes `bytes` at `offset` bytes into tensor `index`. All of a tensor must be written.
  void write(std::size_t index, std::uint64_t offset, std::span<const std::byte> bytes);
  /// Throws kIo where anything could not be written, and kInternal where bytes are missing.
  void publish();

 private:
  void check() const;

  std::filesystem::path path_, partial_;
  std::ofstream file_;
  std::vector<std::uint64_t> offsets_;  ///< of the tensors in the file, and its end
  std::uint64_t written_ = 0;           ///< bytes of tensors
  bool published_ = false;
};

}  // namespace lemma::weights
