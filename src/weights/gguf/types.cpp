// SPDX-License-Identifier: Apache-2.0
#include "weights/gguf/types.hpp"

#include <fmt/format.h>

#include <array>
#include <iterator>

namespace lemma::weights::gguf {
namespace {

// In the order of the numbers, so that the number is the index.
constexpr std::array kValueTypes = {
    ValueTypeInfo{ValueType::kU8, "u8", "array of u8", 1},
    ValueTypeInfo{ValueType::kI8, "i8", "array of i8", 1},
    ValueTypeInfo{ValueType::kU16, "u16", "array of u16", 2},
    ValueTypeInfo{ValueType::kI16, "i16", "array of i16", 2},
    ValueTypeInfo{ValueType::kU32, "u32", "array of u32", 4},
    ValueTypeInfo{ValueType::kI32, "i32", "array of i32", 4},
    ValueTypeInfo{ValueType::kF32, "f32", "array of f32", 4},
    ValueTypeInfo{ValueType::kBool, "bool", "array of bool", 1},
    ValueTypeInfo{ValueType::kString, "string", "array of string", 8},
    ValueTypeInfo{ValueType::kArray, "array", "array of array", 12},
    ValueTypeInfo{ValueType::kU64, "u64", "array of u64", 8},
    ValueTypeInfo{ValueType::kI64, "i64", "array of i64", 8},
    ValueTypeInfo{ValueType::kF64, "f64", "array of f64", 8},
};

// Numbers 4, 5, 31-33 and 36-38 were withdrawn from GGML; old files still hold some of them.
constexpr std::array kTensorTypes = {
    TensorType{0, "F32", Format::kF32},
    TensorType{1, "F16", Format::kF16},
    TensorType{2, "Q4_0", Format::kQ4_0},
    TensorType{3, "Q4_1", Format::kQ4_1},
    TensorType{4, "Q4_2", {}},
    TensorType{5, "Q4_3", {}},
    TensorType{6, "Q5_0", Format::kQ5_0},
    TensorType{7, "Q5_1", Format::kQ5_1},
    TensorType{8, "Q8_0", Format::kQ8_0},
    TensorType{9, "Q8_1", {}},
    TensorType{10, "Q2_K", Format::kQ2_K},
    TensorType{11, "Q3_K", Format::kQ3_K},
    TensorType{12, "Q4_K", Format::kQ4_K},
    TensorType{13, "Q5_K", Format::kQ5_K},
    TensorType{14, "Q6_K", Format::kQ6_K},
    TensorType{15, "Q8_K", Format::kQ8_K},
    TensorType{16, "IQ2_XXS", Format::kIQ2_XXS},
    TensorType{17, "IQ2_XS", Format::kIQ2_XS},
    TensorType{18, "IQ3_XXS", Format::kIQ3_XXS},
    TensorType{19, "IQ1_S", Format::kIQ1_S},
    TensorType{20, "IQ4_NL", Format::kIQ4_NL},
    TensorType{21, "IQ3_S", Format::kIQ3_S},
    TensorType{22, "IQ2_S", Format::kIQ2_S},
    TensorType{23, "IQ4_XS", Format::kIQ4_XS},
    TensorType{24, "I8", {}},
    TensorType{25, "I16", {}},
    TensorType{26, "I32", Format::kI32},
    TensorType{27, "I64", {}},
    TensorType{28, "F64", {}},
    TensorType{29, "IQ1_M", Format::kIQ1_M},
    TensorType{30, "BF16", Format::kBF16},
    TensorType{31, "Q4_0_4_4", {}},
    TensorType{32, "Q4_0_4_8", {}},
    TensorType{33, "Q4_0_8_8", {}},
    TensorType{34, "TQ1_0", Format::kTQ1_0},
    TensorType{35, "TQ2_0", Format::kTQ2_0},
    TensorType{36, "IQ4_NL_4_4", {}},
    TensorType{37, "IQ4_NL_4_8", {}},
    TensorType{38, "IQ4_NL_8_8", {}},
    TensorType{39, "MXFP4", Format::kMXFP4},
    TensorType{40, "NVFP4", Format::kNVFP4},
    TensorType{41, "Q1_0", {}},
};

}  // namespace

const ValueTypeInfo* value_type(std::uint32_t number) noexcept {
  return number < kValueTypes.size() ? &kValueTypes[number] : nullptr;
}

const ValueTypeInfo* value_type_by_name(std::string_view type_name) noexcept {
  for (const ValueTypeInfo& info : kValueTypes) {
    if (info.name == type_name || info.array_name == type_name) return &info;
  }
  return nullptr;
}

const TensorType* tensor_type(std::uint32_t number) noexcept {
  for (const TensorType& type : kTensorTypes) {
    if (type.number == number) return &type;
  }
  return nullptr;
}

std::uint32_t tensor_type_number(Format format) noexcept {
  for (const TensorType& type : kTensorTypes) {
    if (type.format == format) return type.number;
  }
  return kTensorTypes.front().number;  // not reached: every format has an entry (types_test)
}

std::string printable(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  std::string out;
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", byte);
    }
  }
  if (text.size() > kLongest) out += "...";
  return out;
}

}  // namespace lemma::weights::gguf
