// SPDX-License-Identifier: Apache-2.0
#include "weights/safetensors/packed.hpp"

#include <fmt/ranges.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/raise.hpp"
#include "weights/formats/blocks.hpp"

namespace lemma::weights::safetensors {
namespace {

using base::raise;

constexpr std::uint64_t kMxBlock = 32;

/// A small float: one sign bit, `exponent` bits, the rest fraction. E4M3 has no infinity: all ones
/// are NaN. E5M2 is IEEE's.
float small_float(std::uint32_t byte, int exponent_bits) {
  const int fraction_bits = 7 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const auto fraction = static_cast<int>(byte & ((1u << fraction_bits) - 1));
  const auto exponent = static_cast<int>(byte >> fraction_bits & ((1u << exponent_bits) - 1));
  const float sign = byte & 0x80u ? -1.f : 1.f;
  const bool top = exponent == (1 << exponent_bits) - 1;
  if (exponent_bits == 4 && (byte & 0x7fu) == 0x7fu) return std::numeric_limits<float>::quiet_NaN();
  if (exponent_bits == 5 && top)
    return fraction ? std::numeric_limits<float>::quiet_NaN()
                    : sign * std::numeric_limits<float>::infinity();
  const int whole = exponent == 0 ? fraction : fraction + (1 << fraction_bits);
  return sign * std::ldexp(static_cast<float>(whole),
                           (exponent == 0 ? 1 : exponent) - bias - fraction_bits);
}

std::array<float, 256> table_of(const Stored& weight) {
  const bool e4m3 = weight.dtype == "F8_E4M3";
  if (!e4m3 && weight.dtype != "F8_E5M2")
    raise(ErrorKind::kUnsupported, "tensor '{}': expected F8_E4M3 or F8_E5M2, found {}",
          weight.name, weight.dtype);
  std::array<float, 256> table;
  for (std::uint32_t i = 0; i < table.size(); ++i) table[i] = small_float(i, e4m3 ? 4 : 5);
  return table;
}

/// A value of at most 8 significant bits as BF16: the low half of its f32 is empty.
std::uint16_t exact_bf16(float value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
}

void require_dtype(const Stored& tensor, std::string_view dtype) {
  if (tensor.dtype != dtype)
    raise(ErrorKind::kBadFile, "tensor '{}': expected {}, found {}", tensor.name, dtype,
          tensor.dtype);
}

void require_matrix(const Stored& tensor, std::uint64_t rows, std::uint64_t cols) {
  if (tensor.shape != std::vector<std::uint64_t>{rows, cols})
    raise(ErrorKind::kBadFile, "tensor '{}': expected shape [{}, {}], found [{}]", tensor.name,
          rows, cols, fmt::join(tensor.shape, ", "));
}

/// The 32-bit words of a tensor.
class Words {
 public:
  explicit Words(const Stored& tensor) : bytes_(tensor.bytes) { require_dtype(tensor, "I32"); }
  std::uint32_t operator[](std::uint64_t i) const {
    std::uint32_t word = 0;
    std::memcpy(&word, bytes_.data() + i * sizeof word, sizeof word);
    return word;
  }
  std::uint64_t size() const { return bytes_.size() / sizeof(std::uint32_t); }

 private:
  std::span<const std::byte> bytes_;
};

void store(std::span<std::byte> out, std::uint64_t i, float value) {
  std::memcpy(out.data() + i * sizeof value, &value, sizeof value);
}

/// What GPTQ and AWQ have in common: the group of each input, zeros and scales by group.
struct Groups {
  std::vector<std::uint32_t> of_input;
  std::vector<float> scales;  ///< [groups, out]
  std::uint64_t outputs = 0;
};

Groups groups_of(const PackedMatrix& packed, const Source& scales, std::uint64_t inputs,
                 std::uint64_t outputs) {
  const std::uint64_t size = packed.group_size ? packed.group_size : inputs;
  const std::uint64_t count = (inputs + size - 1) / size;
  require_shape(scales, {count, outputs});
  if (packed.bits != 4 && packed.bits != 8)
    raise(ErrorKind::kUnsupported, "tensor '{}': expected 4 or 8 bits, found {}",
          packed.weight->name, packed.bits);
  if (outputs * packed.bits % 32 != 0)
    raise(ErrorKind::kBadFile, "tensor '{}': {} outputs do not fill whole words",
          packed.weight->name, outputs);
  require_matrix(*packed.zeros, count, outputs * packed.bits / 32);
  Groups groups{.of_input = std::vector<std::uint32_t>(inputs),
                .scales = scales.values(),
                .outputs = outputs};
  for (std::uint64_t i = 0; i < inputs; ++i)
    groups.of_input[i] = static_cast<std::uint32_t>(i / size);
  if (!packed.groups) return groups;
  const Words words(*packed.groups);
  if (words.size() != inputs)
    raise(ErrorKind::kBadFile, "tensor '{}': expected {} groups, one for each input, found {}",
          packed.groups->name, inputs, words.size());
  for (std::uint64_t i = 0; i < inputs; ++i) {
    groups.of_input[i] = words[i];
    if (words[i] >= count)
      raise(ErrorKind::kBadFile, "tensor '{}': expected groups below {}, found {}",
            packed.groups->name, count, words[i]);
  }
  return groups;
}

Source f32_matrix(const Stored& tensor, std::uint64_t outputs, std::uint64_t inputs) {
  return {.name = tensor.name, .shape = {outputs, inputs}, .bytes = {}};
}

}  // namespace

Source decode_fp8(const Stored& weight) {
  const auto table = table_of(weight);
  Source out{.name = weight.name, .format = Format::kBF16, .shape = weight.shape, .bytes = {}};
  out.make = [table, data = weight.bytes](std::span<std::byte> bytes) {
    for (std::size_t i = 0; i < data.size(); ++i) {
      const std::uint16_t value = exact_bf16(table[std::to_integer<std::size_t>(data[i])]);
      std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
    }
  };
  return out;
}

Source decode_fp8(const Stored& weight, const Source& scale, std::uint64_t tile_rows,
                  std::uint64_t tile_cols) {
  const auto table = table_of(weight);
  if (weight.shape.size() != 2)
    raise(ErrorKind::kBadFile, "tensor '{}': expected a matrix, found shape [{}]", weight.name,
          fmt::join(weight.shape, ", "));
  const std::uint64_t rows = weight.shape[0], cols = weight.shape[1];
  if (scale.elements() == 1) {
    tile_rows = rows, tile_cols = cols;
  } else if (scale.elements() == rows && (scale.shape.size() == 1 || scale.shape.back() == 1)) {
    tile_rows = 1, tile_cols = cols;
  }
  if (tile_rows == 0 || tile_cols == 0)
    raise(ErrorKind::kBadFile, "tensor '{}': a tile of {} x {} is empty", weight.name, tile_rows,
          tile_cols);
  const std::uint64_t across = (cols + tile_cols - 1) / tile_cols;
  const std::uint64_t tiles = (rows + tile_rows - 1) / tile_rows * across;
  if (scale.elements() != tiles)
    raise(ErrorKind::kBadFile, "tensor '{}': expected {} scales for tiles of {} x {}, found {}",
          scale.name, tiles, tile_rows, tile_cols, scale.elements());
  Source out = f32_matrix(weight, rows, cols);
  out.make = [=, data = weight.bytes](std::span<std::byte> bytes) {
    const std::vector<float> scales = scale.values();
    for (std::uint64_t r = 0; r < rows; ++r)
      for (std::uint64_t c = 0; c < cols; ++c) {
        const float value = table[std::to_integer<std::size_t>(data[r * cols + c])];
        store(bytes, r * cols + c, value * scales[r / tile_rows * across + c / tile_cols]);
      }
  };
  return out;
}

Source decode_exponents(const Stored& tensor) {
  Source out{.name = tensor.name, .format = Format::kBF16, .shape = tensor.shape, .bytes = {}};
  if (out.shape.empty()) out.shape = {1};
  out.make = [data = tensor.bytes](std::span<std::byte> bytes) {
    for (std::size_t i = 0; i < data.size(); ++i) {
      const std::uint16_t value = exact_bf16(std::ldexp(1.f, std::to_integer<int>(data[i]) - 127));
      std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
    }
  };
  return out;
}

Source decode_ids(const Stored& tensor) {
  Source out{
      .name = tensor.name, .format = Format::kI32, .shape = tensor.shape, .bytes = tensor.bytes};
  if (tensor.dtype == "I32") return out;
  require_dtype(tensor, "I64");
  out.bytes = {};
  out.make = [tensor](std::span<std::byte> bytes) {
    for (std::size_t i = 0; i < bytes.size() / sizeof(std::int32_t); ++i) {
      std::int64_t wide = 0;
      std::memcpy(&wide, tensor.bytes.data() + i * sizeof wide, sizeof wide);
      const auto value = static_cast<std::int32_t>(wide);
      if (value != wide)
        raise(ErrorKind::kBadFile, "tensor '{}': expected numbers of 32 bits, found {}",
              tensor.name, wide);
      std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
    }
  };
  return out;
}

// Element 2 i of a block stands in the low nibble of byte i, element 2 i + 1 in the high one;
// GGML's block has element i beside element i + 16, and the scale in front: 2^(s - 127) in both.
Source decode_mxfp4(const Stored& blocks, const Stored& scales) {
  require_dtype(blocks, "U8");
  require_dtype(scales, "U8");
  std::vector<std::uint64_t> shape = scales.shape;
  if (shape.empty() || scales.bytes.size() > std::numeric_limits<std::uint64_t>::max() / kMxBlock ||
      blocks.bytes.size() != scales.bytes.size() * (kMxBlock / 2))
    raise(ErrorKind::kBadFile,
          "tensors '{}' [{}] and '{}' [{}]: expected blocks of 16 bytes and a scale for each",
          blocks.name, fmt::join(blocks.shape, ", "), scales.name, fmt::join(scales.shape, ", "));
  shape.back() *= kMxBlock;
  Source out{.name = blocks.name, .format = Format::kMXFP4, .shape = std::move(shape), .bytes = {}};
  out.make = [data = blocks.bytes, scale = scales.bytes](std::span<std::byte> bytes) {
    for (std::size_t b = 0; b < scale.size(); ++b) {
      const auto nibble = [&](std::size_t i) {
        const auto byte = std::to_integer<unsigned>(data[b * kMxBlock / 2 + i / 2]);
        return i % 2 == 0 ? byte & 15u : byte >> 4;
      };
      BlockMXFP4 block;
      block.e = std::to_integer<std::uint8_t>(scale[b]);
      for (std::size_t i = 0; i < kMxBlock / 2; ++i)
        block.qs[i] = static_cast<std::uint8_t>(nibble(i) | nibble(i + kMxBlock / 2) << 4);
      std::memcpy(bytes.data() + b * sizeof block, &block, sizeof block);
    }
  };
  return out;
}

// Codes of consecutive inputs share a word, the first in the lowest bits; so do zeros of
// consecutive outputs. w = scale * (code - zero).
Source decode_gptq(const PackedMatrix& packed, const Source& scales) {
  const Words words(*packed.weight), zeros(*packed.zeros);
  const std::uint64_t per_word = 32 / (packed.bits ? packed.bits : 4);
  if (packed.weight->shape.size() != 2)
    raise(ErrorKind::kBadFile, "tensor '{}': expected a matrix", packed.weight->name);
  const std::uint64_t inputs = packed.weight->shape[0] * per_word,
                      outputs = packed.weight->shape[1];
  Groups groups = groups_of(packed, scales, inputs, outputs);
  Source out = f32_matrix(*packed.weight, outputs, inputs);
  const std::uint32_t bits = packed.bits, mask = (1u << bits) - 1, offset = packed.zero_offset;
  out.make = [=, groups = std::move(groups)](std::span<std::byte> bytes) {
    for (std::uint64_t i = 0; i < inputs; ++i) {
      const std::uint64_t group = groups.of_input[i];
      for (std::uint64_t o = 0; o < outputs; ++o) {
        const std::uint32_t code =
            words[i / per_word * outputs + o] >> (i % per_word * bits) & mask;
        const std::uint32_t zero =
            zeros[group * (outputs / per_word) + o / per_word] >> (o % per_word * bits) & mask;
        const int difference = static_cast<int>(code) - static_cast<int>(zero + offset);
        store(bytes, o * inputs + i,
              static_cast<float>(difference) * groups.scales[group * outputs + o]);
      }
    }
  };
  return out;
}

// Eight outputs share a word, in the order 0 2 4 6 1 3 5 7 from the lowest bits on.
Source decode_awq(const PackedMatrix& packed, const Source& scales) {
  constexpr std::array<std::uint32_t, 8> kPlace = {0, 4, 1, 5, 2, 6, 3, 7};  // of output o % 8
  const Words words(*packed.weight), zeros(*packed.zeros);
  if (packed.weight->shape.size() != 2 || packed.bits != 4)
    raise(ErrorKind::kUnsupported, "tensor '{}': expected a matrix of 4 bits", packed.weight->name);
  const std::uint64_t inputs = packed.weight->shape[0], outputs = packed.weight->shape[1] * 8;
  Groups groups = groups_of(packed, scales, inputs, outputs);
  Source out = f32_matrix(*packed.weight, outputs, inputs);
  out.make = [=, groups = std::move(groups)](std::span<std::byte> bytes) {
    for (std::uint64_t i = 0; i < inputs; ++i) {
      const std::uint64_t group = groups.of_input[i];
      for (std::uint64_t o = 0; o < outputs; ++o) {
        const std::uint32_t shift = 4 * kPlace[o % 8];
        const std::uint32_t code = words[i * (outputs / 8) + o / 8] >> shift & 15u;
        const std::uint32_t zero = zeros[group * (outputs / 8) + o / 8] >> shift & 15u;
        store(bytes, o * inputs + i,
              static_cast<float>(static_cast<int>(code) - static_cast<int>(zero)) *
                  groups.scales[group * outputs + o]);
      }
    }
  };
  return out;
}

Source decode_packed_rows(const Stored& packed, const Source& scales, std::uint32_t bits,
                          std::uint64_t columns) {
  const Words words(packed);
  if ((bits != 4 && bits != 8) || packed.shape.size() != 2 || columns == 0 ||
      (columns + 32 / bits - 1) / (32 / bits) != packed.shape[1])
    raise(ErrorKind::kBadFile,
          "tensor '{}' of shape [{}]: expected rows of {} codes of 4 or 8 bits", packed.name,
          fmt::join(packed.shape, ", "), columns);
  const std::uint64_t rows = packed.shape[0], width = packed.shape[1], per_word = 32 / bits;
  const std::uint64_t groups = scales.elements() / rows;
  if (groups == 0 || scales.elements() % rows != 0 || columns % groups != 0)
    raise(ErrorKind::kBadFile,
          "tensor '{}': expected scales for groups of {} columns in {} rows, "
          "found {}",
          scales.name, columns, rows, scales.elements());
  Source out = f32_matrix(packed, rows, columns);
  const std::uint32_t mask = (1u << bits) - 1, half = 1u << (bits - 1);
  out.make = [=](std::span<std::byte> bytes) {
    const std::vector<float> scale = scales.values();
    const std::uint64_t size = columns / groups;
    for (std::uint64_t r = 0; r < rows; ++r)
      for (std::uint64_t c = 0; c < columns; ++c) {
        const std::uint32_t code = words[r * width + c / per_word] >> (c % per_word * bits) & mask;
        store(bytes, r * columns + c,
              static_cast<float>(static_cast<int>(code) - static_cast<int>(half)) *
                  scale[r * groups + c / size]);
      }
  };
  return out;
}

}  // namespace lemma::weights::safetensors
