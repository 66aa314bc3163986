// SPDX-License-Identifier: Apache-2.0
// Writes GGUF version 3 files, little-endian. The file appears under its name only when it is
// whole: it is written beside it and renamed. Not thread-safe.
//
//   Writer writer;
//   writer.add("general.architecture", "llama");
//   writer.add_tensor("output_norm.weight", Format::kF32, {64}, bytes);
//   writer.write("model.gguf");
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weights/format.hpp"
#include "weights/metadata.hpp"

namespace lemma::weights::gguf {

class Writer {
 public:
  using Sink = std::function<void(std::span<const std::byte>)>;

  /// Adds a key of the type that `value.type_name` names ("u32", "array of f32"). Throws kUsage for
  /// an empty or repeated key, another type, or an element that the type cannot hold.
  void add(std::string key, const Value& value);

  void add(std::string key, bool value) { add(std::move(key), Value{value, "bool"}); }
  void add(std::string key, std::uint32_t value);
  void add(std::string key, std::int32_t value);
  void add(std::string key, float value) { add(std::move(key), Value{double{value}, "f32"}); }
  void add(std::string key, const char* value) { add(std::move(key), std::string_view(value)); }
  void add(std::string key, std::string_view value);
  void add(std::string key, const std::vector<std::string>& values);
  void add(std::string key, const std::vector<float>& values);
  void add(std::string key, const std::vector<std::int32_t>& values);
  void add(std::string key, const std::vector<std::uint32_t>& values);
  void add(std::string key, const std::vector<bool>& values);

  /// Adds a tensor; `shape` is outermost first, rows hold whole blocks. `bytes` must stay valid
  /// until the file is written. Throws kUsage for a shape, name or size that GGUF does not allow.
  void add_tensor(std::string name, Format format, std::vector<std::uint64_t> shape,
                  std::span<const std::byte> bytes);
  /// The same with bytes that are made when their turn to be written comes, one tensor at a time.
  void add_tensor(std::string name, Format format, std::vector<std::uint64_t> shape,
                  std::function<std::vector<std::byte>()> make);
  /// The same with bytes that are handed to a sink, part by part, when their turn comes.
  void add_tensor(std::string name, Format format, std::vector<std::uint64_t> shape,
                  std::function<void(const Sink&)> stream);

  /// The header and the lists, up to the padded start of the data section. Tensors are aligned as
  /// the key general.alignment says, to 32 bytes without it.
  std::vector<std::byte> header() const;

  /// The whole file in memory.
  std::vector<std::byte> bytes() const;

  /// Writes the file. Throws kIo; nothing is left behind then, and a file that was there before
  /// stays as it was.
  void write(const std::filesystem::path& path) const;

  /// The same, but what was written when it fails stays beside the file as `path`.partial, and the
  /// next call goes on behind the last whole tensor if that has the same header: a caller puts into
  /// the metadata what else the bytes depend on. Returns the number of tensors that were there
  /// already. Throws kIo also where another process is writing the same file.
  std::size_t write_resumable(const std::filesystem::path& path) const;

 private:
  struct Tensor {
    std::string name;
    Format format;
    std::vector<std::uint64_t> shape;
    std::uint64_t size;
    std::function<void(const Sink&)> stream;
  };

  std::uint64_t alignment() const;
  std::uint64_t padded(std::uint64_t size) const;
  void write_tensor(const Tensor& tensor, const Sink& sink) const;

  Metadata metadata_;
  std::set<std::string, std::less<>> names_;
  std::vector<Tensor> tensors_;
};

}  // namespace lemma::weights::gguf
