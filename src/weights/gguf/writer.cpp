// SPDX-License-Identifier: Apache-2.0
#include "weights/gguf/writer.hpp"

#include <fmt/ranges.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/raise.hpp"
#include "weights/gguf/partial_file.hpp"
#include "weights/gguf/types.hpp"

namespace lemma::weights::gguf {
namespace {

using base::raise;
using Bytes = std::vector<std::byte>;

template <typename T>
void put(Bytes& out, T value) {
  const std::size_t at = out.size();
  out.resize(at + sizeof value);
  std::memcpy(out.data() + at, &value, sizeof value);
}

void put_string(Bytes& out, std::string_view text) {
  put(out, std::uint64_t{text.size()});
  const auto bytes = std::as_bytes(std::span(text));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

template <typename To, typename From>
void put_integer(Bytes& out, std::string_view key, std::string_view type, From value) {
  if (!std::in_range<To>(value)) {
    raise(ErrorKind::kUsage, "key '{}': {} does not fit the type {}", key, value, type);
  }
  put(out, static_cast<To>(value));
}

template <typename From>
void put_element(Bytes& out, std::string_view key, const ValueTypeInfo& type, const From& value) {
  if constexpr (std::is_same_v<From, bool>) {
    if (type.type == ValueType::kBool) return put(out, std::uint8_t{value});
  } else if constexpr (std::is_integral_v<From>) {
    switch (type.type) {
      case ValueType::kU8:
        return put_integer<std::uint8_t>(out, key, type.name, value);
      case ValueType::kI8:
        return put_integer<std::int8_t>(out, key, type.name, value);
      case ValueType::kU16:
        return put_integer<std::uint16_t>(out, key, type.name, value);
      case ValueType::kI16:
        return put_integer<std::int16_t>(out, key, type.name, value);
      case ValueType::kU32:
        return put_integer<std::uint32_t>(out, key, type.name, value);
      case ValueType::kI32:
        return put_integer<std::int32_t>(out, key, type.name, value);
      case ValueType::kU64:
        return put_integer<std::uint64_t>(out, key, type.name, value);
      case ValueType::kI64:
        return put_integer<std::int64_t>(out, key, type.name, value);
      default:
        break;
    }
  } else if constexpr (std::is_same_v<From, double>) {
    if (type.type == ValueType::kF64) return put(out, value);
    if (type.type == ValueType::kF32) {
      if (std::isfinite(value) && std::fabs(value) > std::numeric_limits<float>::max()) {
        raise(ErrorKind::kUsage, "key '{}': {} does not fit the type f32", key, value);
      }
      return put(out, static_cast<float>(value));
    }
  } else {
    if (type.type == ValueType::kString) return put_string(out, value);
  }
  raise(ErrorKind::kUsage, "key '{}': its value is not of the type {}", key, type.name);
}

template <typename T>
constexpr bool kIsArray = false;
template <typename T>
constexpr bool kIsArray<std::vector<T>> = true;

void put_value(Bytes& out, std::string_view key, const Value& value) {
  const ValueTypeInfo* type = value_type_by_name(value.type_name);
  if (!type || type->type == ValueType::kArray) {
    raise(ErrorKind::kUsage, "key '{}': GGUF has no type '{}'", key, value.type_name);
  }
  const bool array = value.type_name == type->array_name;
  std::visit(
      [&]<typename T>(const T& data) {
        if (kIsArray<T> != array) {
          raise(ErrorKind::kUsage, "key '{}': its value is not of the type {}", key,
                value.type_name);
        }
        if constexpr (kIsArray<T>) {
          put(out, static_cast<std::uint32_t>(ValueType::kArray));
          put(out, static_cast<std::uint32_t>(type->type));
          put(out, std::uint64_t{data.size()});
          for (const typename T::value_type& element : data) put_element(out, key, *type, element);
        } else {
          put(out, static_cast<std::uint32_t>(type->type));
          put_element(out, key, *type, data);
        }
      },
      value.data);
}

void pad(Bytes& out, std::uint64_t alignment) {
  out.resize((out.size() + alignment - 1) / alignment * alignment);
}

/// The bytes of a tensor of this shape, or kUsage for a shape that GGUF does not allow.
std::uint64_t checked_size(const std::string& name, Format format,
                           const std::vector<std::uint64_t>& shape) {
  const FormatTraits& t = traits(format);
  if (name.empty()) raise(ErrorKind::kUsage, "a tensor without a name");
  std::uint64_t elements = 1;
  bool sound = !shape.empty() && shape.size() <= kMaxDimensions;
  for (const std::uint64_t n : shape) {
    sound = sound && n != 0 && n <= std::numeric_limits<std::int64_t>::max() / elements / 4;
    if (sound) elements *= n;
  }
  if (!sound || shape.back() % t.block_elements != 0) {
    raise(ErrorKind::kUsage,
          "tensor '{}': expected 1 to {} dimensions, none 0, the last a multiple of {} for {}, "
          "found [{}]",
          name, kMaxDimensions, t.block_elements, t.name, fmt::join(shape, ", "));
  }
  return elements / t.block_elements * t.block_bytes;
}

template <typename T>
std::vector<std::int64_t> widened(const std::vector<T>& values) {
  return {values.begin(), values.end()};
}

}  // namespace

void Writer::add(std::string key, const Value& value) {
  if (key.empty() || key.size() > kMaxKeyLength) {
    raise(ErrorKind::kUsage, "expected a key of 1 to {} bytes, found {}", kMaxKeyLength,
          key.size());
  }
  if (metadata_.has(key)) raise(ErrorKind::kUsage, "key '{}' is there already", key);
  Bytes discarded;
  put_value(discarded, key, value);  // refuses what cannot be written
  metadata_.add(std::move(key), value);
}

void Writer::add(std::string key, std::uint32_t value) {
  add(std::move(key), Value{std::int64_t{value}, "u32"});
}

void Writer::add(std::string key, std::int32_t value) {
  add(std::move(key), Value{std::int64_t{value}, "i32"});
}

void Writer::add(std::string key, std::string_view value) {
  add(std::move(key), Value{std::string(value), "string"});
}

void Writer::add(std::string key, const std::vector<std::string>& values) {
  add(std::move(key), Value{values, "array of string"});
}

void Writer::add(std::string key, const std::vector<float>& values) {
  add(std::move(key), Value{Value::Floats(values.begin(), values.end()), "array of f32"});
}

void Writer::add(std::string key, const std::vector<std::int32_t>& values) {
  add(std::move(key), Value{widened(values), "array of i32"});
}

void Writer::add(std::string key, const std::vector<std::uint32_t>& values) {
  add(std::move(key), Value{widened(values), "array of u32"});
}

void Writer::add(std::string key, const std::vector<bool>& values) {
  add(std::move(key), Value{values, "array of bool"});
}

void Writer::add_tensor(std::string name, Format format, std::vector<std::uint64_t> shape,
                        std::span<const std::byte> bytes) {
  const std::uint64_t size = checked_size(name, format, shape);
  if (bytes.size() != size) {
    raise(ErrorKind::kUsage, "tensor '{}': expected {} bytes for its shape, found {}", name, size,
          bytes.size());
  }
  add_tensor(std::move(name), format, std::move(shape), [bytes](const Sink& sink) { sink(bytes); });
}

void Writer::add_tensor(std::string name, Format format, std::vector<std::uint64_t> shape,
                        std::function<std::vector<std::byte>()> make) {
  add_tensor(std::move(name), format, std::move(shape),
             [make = std::move(make)](const Sink& sink) { sink(make()); });
}

void Writer::add_tensor(std::string name, Format format, std::vector<std::uint64_t> shape,
                        std::function<void(const Sink&)> stream) {
  const std::uint64_t size = checked_size(name, format, shape);
  if (!names_.insert(name).second) {
    raise(ErrorKind::kUsage, "tensor '{}' is there already", name);
  }
  tensors_.push_back({std::move(name), format, std::move(shape), size, std::move(stream)});
}

std::uint64_t Writer::alignment() const {
  const std::uint32_t alignment = metadata_.u32_or("general.alignment", kDefaultAlignment);
  if (alignment == 0 || alignment % 8 != 0) {
    raise(ErrorKind::kUsage, "key 'general.alignment': expected a multiple of 8, found {}",
          alignment);
  }
  return alignment;
}

std::uint64_t Writer::padded(std::uint64_t size) const {
  const std::uint64_t align = alignment();
  return (size + align - 1) / align * align;
}

std::vector<std::byte> Writer::header() const {
  Bytes out;
  put(out, kMagic);
  put(out, std::uint32_t{3});
  put(out, std::uint64_t{tensors_.size()});
  put(out, std::uint64_t{metadata_.pairs().size()});
  for (const auto& [key, value] : metadata_.pairs()) {
    put_string(out, key);
    put_value(out, key, value);
  }
  std::uint64_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    put_string(out, tensor.name);
    put(out, static_cast<std::uint32_t>(tensor.shape.size()));
    for (std::size_t i = tensor.shape.size(); i-- > 0;) put(out, tensor.shape[i]);
    put(out, tensor_type_number(tensor.format));
    put(out, offset);
    offset += padded(tensor.size);
  }
  pad(out, alignment());
  return out;
}

void Writer::write_tensor(const Tensor& tensor, const Sink& sink) const {
  std::uint64_t written = 0;
  tensor.stream([&](std::span<const std::byte> part) {
    written += part.size();
    if (written <= tensor.size) sink(part);
  });
  if (written != tensor.size) {
    raise(ErrorKind::kInternal, "tensor '{}': expected {} bytes to write, found {}", tensor.name,
          tensor.size, written);
  }
  sink(Bytes(padded(tensor.size) - tensor.size));
}

std::vector<std::byte> Writer::bytes() const {
  Bytes out = header();
  for (const Tensor& tensor : tensors_) {
    write_tensor(tensor, [&out](std::span<const std::byte> part) {
      out.insert(out.end(), part.begin(), part.end());
    });
  }
  return out;
}

void Writer::write(const std::filesystem::path& path) const {
  PartialFile file(path, fmt::format(".partial-{}", ::getpid()), PartialFile::Leftover::kRemove);
  file.append(header());
  for (const Tensor& tensor : tensors_) {
    write_tensor(tensor, [&file](std::span<const std::byte> part) { file.append(part); });
  }
  file.publish();
}

std::size_t Writer::write_resumable(const std::filesystem::path& path) const {
  PartialFile file(path, ".partial", PartialFile::Leftover::kKeep);
  const Bytes head = header();
  std::size_t there = 0;
  std::uint64_t whole = head.size();
  if (file.begins_with(head)) {
    while (there < tensors_.size() && whole + padded(tensors_[there].size) <= file.size())
      whole += padded(tensors_[there++].size);
    file.truncate(whole);
  } else {
    file.truncate(0);
    file.append(head);
  }
  for (std::size_t i = there; i < tensors_.size(); ++i)
    write_tensor(tensors_[i], [&file](std::span<const std::byte> part) { file.append(part); });
  file.publish();
  return there;
}

}  // namespace lemma::weights::gguf
