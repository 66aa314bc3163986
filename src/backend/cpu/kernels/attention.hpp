// SPDX-License-Identifier: Apache-2.0
// Keys turned into panels, the scores of selection, and the decoding of state rows, for any
// instruction set. A score is a sum in `lanes` partial sums over the head's elements, added up by
// one fixed tree; as many keys as there are lanes are handled together, so that the trees of all of
// them share their shuffles.
#pragma once

#include "backend/cpu/kernels/kernels.hpp"
#include "backend/cpu/kernels/product.hpp"
#include "backend/cpu/kernels/unroll.hpp"

namespace lemma::cpu {

template <typename Simd>
void scores(const float* query, const float* keys, std::size_t stride, std::size_t count,
            std::size_t width, float* out) {
  using F = typename Simd::F;
  constexpr std::size_t kLanes = Simd::kLanes;
  for (std::size_t j = 0; j < count; j += kLanes) {
    const float* const block = keys + j * stride;
    F sum[kLanes];
    LEMMA_UNROLL
    for (std::size_t l = 0; l < kLanes; ++l) sum[l] = Simd::zero();
    for (std::size_t i = 0; i < width; i += kLanes) {
      const F q = Simd::load(query + i);
      LEMMA_UNROLL
      for (std::size_t l = 0; l < kLanes; ++l) {
        sum[l] = Simd::fma(q, Simd::load(block + l * stride + i), sum[l]);
      }
    }
    Simd::store(out + j, Simd::sums(sum));
  }
}

/// Asks for what lies `ahead` bytes from element `i` of a row, once for each line of 16-bit
/// elements; f32 rows come from the cache.
template <typename Simd, typename Element>
void ask_ahead(const Element* row, std::size_t i, std::ptrdiff_t ahead) {
  if constexpr (sizeof(Element) == 2) {
    if (i % 32 == 0) __builtin_prefetch(reinterpret_cast<const std::byte*>(row + i) + ahead);
  }
}

template <typename Simd, typename Element>
void transpose_of(const Element* rows, std::size_t stride, std::size_t width, std::ptrdiff_t ahead,
                  float* out) {
  constexpr std::size_t kLanes = Simd::kLanes;
  typename Simd::F block[kLanes];
  for (std::size_t i = 0; i < width; i += kLanes) {
    LEMMA_UNROLL
    for (std::size_t r = 0; r < kPanelRows; r += kLanes) {
      LEMMA_UNROLL
      for (std::size_t l = 0; l < kLanes; ++l) {
        ask_ahead<Simd>(rows + (r + l) * stride, i, ahead);
        block[l] = Simd::load(rows + (r + l) * stride + i);
      }
      Simd::transpose(block);
      LEMMA_UNROLL
      for (std::size_t l = 0; l < kLanes; ++l) {
        Simd::store(out + (i + l) * kPanelRows + r, block[l]);
      }
    }
  }
}

template <typename Simd>
void transpose(const float* rows, std::size_t stride, std::size_t width, float* out) {
  transpose_of<Simd>(rows, stride, width, 0, out);
}

template <typename Simd, typename Element>
void transpose_16(const std::byte* rows, std::size_t stride, std::size_t width,
                  std::ptrdiff_t ahead, float* out) {
  transpose_of<Simd>(reinterpret_cast<const Element*>(rows), stride, width, ahead, out);
}

/// Decodes n elements of 16 bits. The tail goes through a vector of its own, so that nothing
/// beyond the row is read and each element is converted by the same instruction.
template <typename Simd, typename Element>
void decode_16(const std::byte* bytes, std::size_t n, float* out) {
  const Element* const in = reinterpret_cast<const Element*>(bytes);
  std::size_t i = 0;
  for (; i + Simd::kLanes <= n; i += Simd::kLanes) Simd::store(out + i, Simd::load(in + i));
  if (i == n) return;
  Element tail[Simd::kLanes] = {};
  float decoded[Simd::kLanes];
  __builtin_memcpy(tail, bytes + 2 * i, 2 * (n - i));
  Simd::store(decoded, Simd::load(tail));
  for (std::size_t t = 0; i + t < n; ++t) out[i + t] = decoded[t];
}

template <typename Simd>
void decode_q8(const std::byte* codes, const std::byte* scales, std::size_t group, std::size_t n,
               float* out) {
  const std::int8_t* const q = reinterpret_cast<const std::int8_t*>(codes);
  for (std::size_t at = 0; at < n; at += group) {
    float scale;
    decode_16<Simd, F16>(scales + at / group * 2, 1, &scale);
    for (std::size_t i = at; i < at + group; ++i) out[i] = static_cast<float>(q[i]) * scale;
  }
}

}  // namespace lemma::cpu
