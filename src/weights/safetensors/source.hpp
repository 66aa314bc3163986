// SPDX-License-Identifier: Apache-2.0
// Source: where the bytes of a tensor come from while a Hugging Face checkpoint is translated into
// GGUF's vocabulary: a part of a mapped file, or a recipe over other sources that runs when the
// bytes are asked for. The functions below are the whole list of changes; each is cheap and copies
// no weights. Whatever a shape allows to stay in the mapping stays there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "weights/checkpoint.hpp"
#include "weights/format.hpp"
#include "weights/lazy_bytes.hpp"

namespace lemma::weights::safetensors {

struct Source {
  std::string name;  ///< as the file names it, for messages
  Format format = Format::kF32;
  std::vector<std::uint64_t> shape;  ///< outermost first; no dimension is 0
  std::span<const std::byte> bytes;  ///< of the mapping; empty where `make` is set
  LazyBytes::Make make = {};

  std::uint64_t row_elements() const noexcept { return shape.empty() ? 1 : shape.back(); }
  std::uint64_t elements() const noexcept;
  std::uint64_t rows() const noexcept { return elements() / row_elements(); }
  std::uint64_t size_bytes() const noexcept;
  /// Writes all bytes to `out`.
  void write(std::span<std::byte> out) const;
  /// All elements as f32.
  std::vector<float> values() const;
};

/// The tensor as a checkpoint hands it out.
TensorInfo tensor_info(std::string name, Source source);

/// Values that the translation itself works out, such as frequency factors.
Source constant(std::string name, std::vector<float> values);

/// The same bytes with another shape of as many elements.
Source reshape(Source source, std::vector<std::uint64_t> shape);
/// The same without dimensions of 1 (a vector where nothing else is left).
Source squeeze(Source source);
/// Parts [begin, end) along the outermost dimension.
Source part(const Source& source, std::uint64_t begin, std::uint64_t end);
/// Row i of the result is row `from(i)` of the source; `rows` rows, as a matrix.
Source gather_rows(Source source, std::uint64_t rows,
                   std::function<std::uint64_t(std::uint64_t)> from);
/// Swaps the last two dimensions.
Source transpose(Source source);
/// One behind the other along the outermost dimension. All have one format; at least one source.
Source concatenate(std::vector<Source> sources, std::string name);
/// Along a new outermost dimension. All have one format and shape; at least one source.
Source stack(std::vector<Source> sources, std::string name);
/// As f32, each element passed through `function`.
Source map(Source source, float (*function)(float));
Source to_f32(Source source);

/// Throws kBadFile naming the tensor unless `source` has this shape.
void require_shape(const Source& source, const std::vector<std::uint64_t>& shape);

}  // namespace lemma::weights::safetensors
