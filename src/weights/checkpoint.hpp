// SPDX-License-Identifier: Apache-2.0
// Checkpoint: one model's metadata and tensors, whatever container and however many files they
// came in, in the vocabulary of GGUF. Tensor bytes stay in the memory-mapped files, or are made
// from them on demand where the container holds another form; a checkpoint owns the mappings and
// must outlive every span that it hands out. Every offset and size has been checked against the
// files by the time a Checkpoint exists. Immutable, so safe to share between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weights/format.hpp"
#include "weights/lazy_bytes.hpp"
#include "weights/metadata.hpp"

namespace lemma::weights {

/// A tensor as the file names it. `shape` is in row-major order, outermost first: a linear weight
/// is {out, in}, a stack of experts {experts, out, in}, a vector {n}. (GGUF stores the reverse.)
/// Rows are the innermost dimension and hold whole blocks.
struct TensorInfo {
  std::string name;
  Format format = Format::kF32;
  std::vector<std::uint64_t> shape;
  std::span<const std::byte> bytes;  ///< exactly the tensor's bytes, in the mapping
  /// Makes the bytes where the container holds another form of the tensor; `bytes` is empty then.
  /// weights::bind() sees to either.
  std::shared_ptr<const LazyBytes> lazy = nullptr;

  std::uint64_t row_elements() const noexcept { return shape.empty() ? 1 : shape.back(); }
  std::uint64_t rows() const noexcept {
    std::uint64_t n = 1;
    for (std::size_t i = 0; i + 1 < shape.size(); ++i) n *= shape[i];
    return n;
  }
  std::uint64_t elements() const noexcept { return rows() * row_elements(); }
  std::uint64_t size_bytes() const noexcept { return lazy ? lazy->size() : bytes.size(); }
};

class Checkpoint {
 public:
  virtual ~Checkpoint() = default;

  virtual const Metadata& metadata() const noexcept = 0;
  virtual const std::vector<TensorInfo>& tensors() const noexcept = 0;
  /// The tensor called `name`, or nullptr.
  virtual const TensorInfo* find(std::string_view name) const noexcept = 0;
  /// The files it was read from, the first one first.
  virtual const std::vector<std::filesystem::path>& files() const noexcept = 0;

  /// The tensor called `name`; throws kBadFile "missing tensor 'name'" otherwise.
  const TensorInfo& at(std::string_view name) const;
};

/// Opens a checkpoint: a GGUF file, the first of a split GGUF (its siblings are found by name), a
/// Hugging Face folder (config.json and safetensors files; safetensors/checkpoint.hpp) or a file of
/// it, or a folder that holds exactly one of these. Throws kNotFound, kIo, kBadFile, kUnsupported,
/// or kUsage where the path names another part than the first or a folder with several checkpoints.
std::unique_ptr<const Checkpoint> open_checkpoint(const std::filesystem::path& path);

}  // namespace lemma::weights
