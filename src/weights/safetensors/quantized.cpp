// SPDX-License-Identifier: Apache-2.0
// Which packed form a weight has, by the tensors that stand beside its name and by
// quantization_config. The forms themselves: packed.hpp.
#include <cstring>

#include "base/raise.hpp"
#include "weights/safetensors/packed.hpp"
#include "weights/safetensors/translation.hpp"

namespace lemma::weights::safetensors {
namespace {

using base::raise;

constexpr std::string_view kWeight = ".weight";

std::string stem_of(std::string_view name) {
  if (name.ends_with(kWeight)) name.remove_suffix(kWeight.size());
  return std::string(name);
}

/// The width of a packed matrix: the second number of its weight_shape, or what the words hold.
std::uint64_t columns_of(const Stored& packed, const Stored* shape) {
  constexpr std::uint64_t kPerWord = 8;  // codes of 4 bits
  if (!shape) return packed.shape.empty() ? 0 : packed.shape.back() * kPerWord;
  const std::size_t width = shape->dtype == "I64" ? 8 : 4;
  std::uint64_t columns = 0;
  if ((shape->dtype != "I64" && shape->dtype != "I32") || shape->bytes.size() != 2 * width)
    raise(ErrorKind::kBadFile, "tensor '{}': expected two whole numbers", shape->name);
  std::memcpy(&columns, shape->bytes.data() + width, width);
  return columns;
}

}  // namespace

void Translation::read_quantization() {
  const Config& holder = config_.is_object("quantization_config") ? config_ : whole_;
  if (!holder.is_object("quantization_config")) return;
  const Config config = holder.object("quantization_config");
  Quantization& q = quantization_;
  q.method = config.string_or("quant_method", "");
  if (q.method == "gptq" || q.method == "awq") {
    q.bits = config.u32_or("bits", config.u32_or("w_bit", 4));
    // -1 stands for one group of all inputs.
    const bool whole = config.is_number("group_size") && config.f32("group_size") < 0;
    q.group_size = whole ? 0 : config.u32_or("group_size", config.u32_or("q_group_size", 128));
    q.zero_offset = q.method == "gptq" && config.string_or("checkpoint_format", "gptq") == "gptq";
    const std::string version = config.string_or("version", "gemm");
    if (q.method == "awq" && version != "gemm" && version != "GEMM")
      raise(ErrorKind::kUnsupported,
            "config.json: key 'quantization_config.version': expected gemm, found '{}'", version);
  } else if (q.method == "fp8") {
    if (config.has("weight_block_size")) {
      const std::vector<std::uint32_t> tile = config.u32s("weight_block_size");
      if (tile.size() != 2)
        raise(ErrorKind::kBadFile,
              "config.json: key 'quantization_config.weight_block_size': expected two numbers, "
              "found {}",
              tile.size());
      q.tile_rows = tile[0], q.tile_cols = tile[1];
    }
  } else if (q.method != "mxfp4" && q.method != "compressed-tensors") {
    raise(ErrorKind::kUnsupported,
          "config.json: key 'quantization_config.quant_method': expected gptq, awq, fp8, mxfp4 or "
          "compressed-tensors, found '{}'",
          q.method);
  }
}

const Stored* Translation::beside(const std::string& stem, std::string_view suffix) {
  const auto found = names_.find(stem + std::string(suffix));
  if (found == names_.end()) return nullptr;
  used_.insert(found->first);
  return found->second;
}

bool Translation::has_packed(std::string_view name) const {
  if (!name.ends_with(kWeight)) return false;
  const std::string stem = stem_of(name);
  return names_.contains(stem + ".qweight") || names_.contains(stem + ".weight_packed");
}

Source Translation::take_fp8(const std::string& name, const Stored& weight) {
  const std::string stem = stem_of(name);
  beside(stem, ".input_scale");  // of activations, which stay f32 here
  beside(stem, ".activation_scale");
  for (const char* suffix : {".weight_scale_inv", ".weight_scale", ".scale"})
    if (const Stored* scale = beside(stem, suffix))
      return decode_fp8(weight, stored(*scale), quantization_.tile_rows, quantization_.tile_cols);
  return decode_fp8(weight);
}

Source Translation::take_packed(const std::string& name) {
  const std::string stem = stem_of(name);
  const auto part = [&](std::string_view suffix) -> const Stored& {
    if (const Stored* found = beside(stem, suffix)) return *found;
    raise(ErrorKind::kBadFile, "missing tensor '{}{}{}'", family_.prefix, stem, suffix);
  };
  if (names_.contains(stem + ".qweight")) {
    const Quantization& q = quantization_;
    PackedMatrix packed{.weight = &part(".qweight"),
                        .zeros = &part(".qzeros"),
                        .groups = beside(stem, ".g_idx"),
                        .bits = q.bits,
                        .group_size = q.group_size,
                        .zero_offset = q.zero_offset ? 1u : 0u};
    const Source scales = stored(part(".scales"));
    if (q.method == "awq") return decode_awq(packed, scales);
    if (q.method == "gptq") return decode_gptq(packed, scales);
    raise(ErrorKind::kBadFile,
          "tensor '{}': expected a quantization_config that says gptq or awq, found '{}'",
          packed.weight->name, q.method);
  }
  const Stored& packed = part(".weight_packed");
  const Stored& scale = part(".weight_scale");
  const Stored* shape = beside(stem, ".weight_shape");
  if (beside(stem, ".weight_zero_point") || beside(stem, ".weight_g_idx"))
    raise(ErrorKind::kUnsupported, "tensor '{}': expected codes without zero points or an order",
          packed.name);
  if (packed.dtype == "U8" && scale.dtype == "U8") return decode_mxfp4(packed, scale);
  return decode_packed_rows(packed, stored(scale), 4, columns_of(packed, shape));
}

Source Translation::take_ids(const std::string& name) {
  const Stored* found = beside(name, "");
  if (!found) raise(ErrorKind::kBadFile, "missing tensor '{}{}'", family_.prefix, name);
  return decode_ids(*found);
}

Source Translation::take_mxfp4(const std::string& name) {
  const Stored* blocks = beside(name, "_blocks");
  const Stored* scales = beside(name, "_scales");
  if (!blocks || !scales)
    raise(ErrorKind::kBadFile, "missing tensor '{}{}'", name, blocks ? "_scales" : "_blocks");
  return decode_mxfp4(*blocks, *scales);
}

}  // namespace lemma::weights::safetensors
