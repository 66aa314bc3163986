// SPDX-License-Identifier: Apache-2.0
// The numbers of a GGUF file and what they stand for: value types of metadata, GGML tensor types.
// Numbers and sizes are those of the public GGUF specification and of GGML's type list. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "weights/format.hpp"

namespace lemma::weights::gguf {

inline constexpr std::uint32_t kMagic = 0x46554747;  ///< the bytes "GGUF", read little-endian
inline constexpr std::uint32_t kDefaultAlignment = 32;
inline constexpr std::uint32_t kMaxDimensions = 4;
inline constexpr std::size_t kMaxKeyLength = 65535;  ///< bytes, by the specification

enum class ValueType : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

struct ValueTypeInfo {
  ValueType type;
  std::string_view name;        ///< "u32"
  std::string_view array_name;  ///< "array of u32"
  std::size_t min_bytes;        ///< the fewest bytes that one value takes in the file
};

/// The entry of type `number`, or nullptr.
const ValueTypeInfo* value_type(std::uint32_t number) noexcept;

/// The entry whose name or array_name is `type_name`, or nullptr.
const ValueTypeInfo* value_type_by_name(std::string_view type_name) noexcept;

struct TensorType {
  std::uint32_t number;
  std::string_view name;         ///< "Q5_K"
  std::optional<Format> format;  ///< nothing where lemma cannot read it
};

/// The entry of GGML type `number`, or nullptr where GGML has no such type.
const TensorType* tensor_type(std::uint32_t number) noexcept;

/// GGML's number for `format`.
std::uint32_t tensor_type_number(Format format) noexcept;

/// `text` from a file made fit for a message: control and non-ASCII bytes as \xNN, cut at 80 bytes.
std::string printable(std::string_view text);

}  // namespace lemma::weights::gguf
