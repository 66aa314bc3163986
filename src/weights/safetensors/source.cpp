// SPDX-License-Identifier: Apache-2.0
#include "weights/safetensors/source.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "base/aligned_buffer.hpp"
#include "base/raise.hpp"

namespace lemma::weights::safetensors {
namespace {

using base::AlignedBuffer;
using base::raise;

/// The bytes of a source, in the mapping or made.
class Held {
 public:
  explicit Held(const Source& source) : bytes_(source.bytes) {
    if (!source.make) return;
    made_ = AlignedBuffer::uninitialized(source.size_bytes());
    source.make(made_.bytes());
    bytes_ = made_.bytes();
  }
  const std::byte* data() const noexcept { return bytes_.data(); }

 private:
  AlignedBuffer made_;
  std::span<const std::byte> bytes_;
};

/// `source` with other contents: what `make` writes.
Source made(Source source, LazyBytes::Make make) {
  source.bytes = {};
  source.make = std::move(make);
  return source;
}

std::vector<std::uint64_t> inner_shape(const Source& source) {
  if (source.shape.empty()) return {};
  return {source.shape.begin() + 1, source.shape.end()};
}

void require_alike(const std::vector<Source>& sources, std::string_view name, bool whole_shape) {
  const Source& first = sources.front();
  for (const Source& source : sources) {
    const bool alike = whole_shape
                           ? source.shape == first.shape
                           : !source.shape.empty() && inner_shape(source) == inner_shape(first);
    if (alike && source.format == first.format) continue;
    raise(ErrorKind::kBadFile,
          "tensors '{}' and '{}' become one tensor '{}': expected equal types and shapes, found {} "
          "[{}] and {} [{}]",
          first.name, source.name, name, traits(first.format).name, fmt::join(first.shape, ", "),
          traits(source.format).name, fmt::join(source.shape, ", "));
  }
}

/// Writes sources one behind the other.
LazyBytes::Make in_order(std::vector<Source> sources) {
  return [sources = std::move(sources)](std::span<std::byte> out) {
    for (const Source& source : sources) {
      const std::size_t size = source.size_bytes();
      source.write(out.first(size));
      out = out.subspan(size);
    }
  };
}

}  // namespace

std::uint64_t Source::elements() const noexcept {
  std::uint64_t n = 1;
  for (const std::uint64_t dimension : shape) n *= dimension;
  return n;
}

std::uint64_t Source::size_bytes() const noexcept {
  return rows() * row_bytes(format, row_elements());
}

void Source::write(std::span<std::byte> out) const {
  if (make) {
    make(out);
  } else {
    std::memcpy(out.data(), bytes.data(), bytes.size());
  }
}

std::vector<float> Source::values() const {
  std::vector<float> out(elements());
  traits(format).dequantize(Held(*this).data(), out);
  return out;
}

TensorInfo tensor_info(std::string name, Source source) {
  const std::uint64_t size = source.size_bytes();
  TensorInfo info{std::move(name), source.format, std::move(source.shape), source.bytes};
  if (source.make) info.lazy = std::make_shared<LazyBytes>(size, std::move(source.make));
  return info;
}

Source constant(std::string name, std::vector<float> values) {
  Source source{.name = std::move(name), .shape = {values.size()}, .bytes = {}};
  return made(std::move(source), [values = std::move(values)](std::span<std::byte> out) {
    std::memcpy(out.data(), values.data(), values.size() * sizeof(float));
  });
}

Source reshape(Source source, std::vector<std::uint64_t> shape) {
  Source out = std::move(source);
  const std::vector<std::uint64_t> before = std::exchange(out.shape, std::move(shape));
  std::uint64_t elements = 1;
  for (const std::uint64_t n : before) elements *= n;
  if (out.elements() != elements)
    raise(ErrorKind::kBadFile, "tensor '{}' of shape [{}]: expected {} elements, found {}",
          out.name, fmt::join(before, ", "), out.elements(), elements);
  return out;
}

Source squeeze(Source source) {
  std::erase(source.shape, 1u);
  if (source.shape.empty()) source.shape = {1};
  return source;
}

Source part(const Source& source, std::uint64_t begin, std::uint64_t end) {
  if (source.shape.empty() || begin >= end || end > source.shape[0])
    raise(ErrorKind::kBadFile, "tensor '{}' of shape [{}]: expected parts {} to {} in it",
          source.name, fmt::join(source.shape, ", "), begin, end);
  Source out = source;
  const std::uint64_t one = source.size_bytes() / source.shape[0];
  out.shape[0] = end - begin;
  if (!source.make) {
    out.bytes = source.bytes.subspan(begin * one, (end - begin) * one);
    return out;
  }
  return made(std::move(out), [source, first = begin * one](std::span<std::byte> bytes) {
    const Held held(source);
    std::memcpy(bytes.data(), held.data() + first, bytes.size());
  });
}

Source gather_rows(Source source, std::uint64_t rows,
                   std::function<std::uint64_t(std::uint64_t)> from) {
  Source out = source;
  out.shape = {rows, source.row_elements()};
  const std::size_t row = row_bytes(source.format, source.row_elements());
  return made(std::move(out), [source = std::move(source), from = std::move(from), rows,
                               row](std::span<std::byte> bytes) {
    const Held held(source);
    for (std::uint64_t i = 0; i < rows; ++i)
      std::memcpy(bytes.data() + i * row, held.data() + from(i) * row, row);
  });
}

Source transpose(Source source) {
  const std::size_t depth = source.shape.size();
  if (depth < 2 || traits(source.format).block_elements != 1)
    raise(ErrorKind::kBadFile, "tensor '{}' of shape [{}]: expected a matrix of single elements",
          source.name, fmt::join(source.shape, ", "));
  Source out = source;
  std::swap(out.shape[depth - 2], out.shape[depth - 1]);
  return made(std::move(out), [source = std::move(source), depth](std::span<std::byte> bytes) {
    const Held held(source);
    const std::size_t element = traits(source.format).block_bytes;
    const std::uint64_t r = source.shape[depth - 2], c = source.shape[depth - 1];
    for (std::uint64_t m = 0; m < source.rows() / r; ++m) {
      const std::byte* from = held.data() + m * r * c * element;
      std::byte* to = bytes.data() + m * r * c * element;
      for (std::uint64_t j = 0; j < c; ++j)
        for (std::uint64_t i = 0; i < r; ++i)
          std::memcpy(to + (j * r + i) * element, from + (i * c + j) * element, element);
    }
  });
}

Source concatenate(std::vector<Source> sources, std::string name) {
  require_alike(sources, name, false);
  Source out = sources.front();
  out.name = std::move(name);
  out.shape[0] = 0;
  for (const Source& source : sources) out.shape[0] += source.shape[0];
  return made(std::move(out), in_order(std::move(sources)));
}

Source stack(std::vector<Source> sources, std::string name) {
  require_alike(sources, name, true);
  Source out = sources.front();
  out.name = std::move(name);
  out.shape.insert(out.shape.begin(), sources.size());
  return made(std::move(out), in_order(std::move(sources)));
}

Source map(Source source, float (*function)(float)) {
  Source out = source;
  out.format = Format::kF32;
  return made(std::move(out), [source = std::move(source), function](std::span<std::byte> bytes) {
    std::vector<float> values = source.values();
    if (function)
      for (float& value : values) value = function(value);
    std::memcpy(bytes.data(), values.data(), values.size() * sizeof(float));
  });
}

Source to_f32(Source source) {
  if (source.format == Format::kF32) return source;
  return map(std::move(source), nullptr);
}

void require_shape(const Source& source, const std::vector<std::uint64_t>& shape) {
  if (source.shape == shape) return;
  raise(ErrorKind::kBadFile, "tensor '{}': expected shape [{}], found [{}]", source.name,
        fmt::join(shape, ", "), fmt::join(source.shape, ", "));
}

}  // namespace lemma::weights::safetensors
