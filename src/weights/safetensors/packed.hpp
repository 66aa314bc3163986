// SPDX-License-Identifier: Apache-2.0
// Weights that a Hugging Face checkpoint stores in a packed form, decoded when they are asked for.
// What each form's bytes mean stands at its function. Results lose nothing: they are a block format
// of the same values, BF16 where every value has at most 8 significant bits, or F32.
#pragma once

#include <cstdint>

#include "weights/safetensors/folder.hpp"
#include "weights/safetensors/source.hpp"

namespace lemma::weights::safetensors {

/// E4M3 values with a scale for all, for each row ([out] or [out, 1]), or for each tile of
/// `tile_rows` x `tile_cols` ([ceil(out / rows), ceil(in / cols)]): w = value * scale.
Source decode_fp8(const Stored& weight, const Source& scale, std::uint64_t tile_rows,
                  std::uint64_t tile_cols);
/// E4M3 or E5M2 values as they are.
Source decode_fp8(const Stored& weight);

/// E8M0: 2^(byte - 127) each, such as scales.
Source decode_exponents(const Stored& tensor);

/// I32 or I64 as I32; throws kBadFile, when it is read, where a number does not fit.
Source decode_ids(const Stored& tensor);

/// MXFP4: bytes [..., n / 2] or blocks [..., n / 32, 16], scales [..., n / 32], as [..., n]
/// in GGML's blocks.
Source decode_mxfp4(const Stored& blocks, const Stored& scales);

/// The tensors of one matrix in GPTQ or AWQ.
struct PackedMatrix {
  const Stored* weight = nullptr;  ///< qweight
  const Stored* zeros = nullptr;   ///< qzeros
  const Stored* groups = nullptr;  ///< g_idx; null: consecutive inputs share a group
  std::uint32_t bits = 4;          ///< 4 or 8
  std::uint32_t group_size = 0;    ///< of consecutive inputs; 0: all of them
  std::uint32_t zero_offset = 0;   ///< added to stored zeros: 1 in GPTQ's first layout
};
/// GPTQ: qweight [in * bits / 32, out], qzeros [groups, out * bits / 32], scales [groups, out].
Source decode_gptq(const PackedMatrix& packed, const Source& scales);
/// AWQ: qweight [in, out / 8], qzeros [groups, out / 8], scales [groups, out].
Source decode_awq(const PackedMatrix& packed, const Source& scales);

/// compressed-tensors: weight_packed [out, in * bits / 32], codes biased by half their range,
/// scales [out, groups].
Source decode_packed_rows(const Stored& packed, const Source& scales, std::uint32_t bits,
                          std::uint64_t columns);

}  // namespace lemma::weights::safetensors
