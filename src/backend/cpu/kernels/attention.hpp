// SPDX-License-Identifier: Apache-2.0
// Keys turned into panels, scores into weights, and the decoding of state rows, for any instruction
// set.
#pragma once

#include "backend/cpu/kernels/kernels.hpp"
#include "backend/cpu/kernels/product.hpp"
#include "backend/cpu/kernels/rows.hpp"
#include "backend/cpu/kernels/unroll.hpp"

namespace lemma::cpu {

/// `Simd` turns keys of 16-bit elements itself if that saves instructions.
template <typename Simd, typename Element>
concept TurnsPairs = sizeof(Element) == 2 && requires(const Element* rows, float* out) {
  Simd::transpose_pairs(rows, std::size_t{}, out);
};

template <typename Simd, typename Element>
void transpose_of(const Element* rows, std::size_t stride, std::size_t width, const Ahead& ahead,
                  float* out) {
  constexpr std::size_t kLanes = Simd::kLanes, kLineElements = 32;
  typename Simd::F block[kLanes];
  std::size_t i = 0;
  if constexpr (TurnsPairs<Simd, Element>) {
    for (; i + kLineElements <= width; i += kLineElements) {
      if (ahead.first != nullptr) {
        LEMMA_UNROLL
        for (std::size_t r = 0; r < kPanelRows; ++r) ask_for<Simd>(ahead, r, i / kLineElements);
      }
      Simd::transpose_pairs(rows + i, stride, out + i * kPanelRows);
    }
  }
  for (; i < width; i += kLanes) {
    LEMMA_UNROLL
    for (std::size_t r = 0; r < kPanelRows; r += kLanes) {
      LEMMA_UNROLL
      for (std::size_t l = 0; l < kLanes; ++l) {
        if (ahead.first != nullptr && i % kLineElements == 0) {
          ask_for<Simd>(ahead, r + l, i / kLineElements);
        }
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
  transpose_of<Simd>(rows, stride, width, Ahead{}, out);
}

template <typename Simd, typename Element>
void transpose_16(const std::byte* rows, std::size_t stride, std::size_t width, const Ahead& ahead,
                  float* out) {
  transpose_of<Simd>(reinterpret_cast<const Element*>(rows), stride, width, ahead, out);
}

/// Products become scores where more than the scale counts.
template <typename Simd>
void bend_scores(const SoftenJob& job, float* scores) {
  if (job.softcap != 0.f) softcap<Simd>(scores, kPiece, job.softcap);
  if (job.slope == 0.f) return;
  for (std::size_t j = 0; j < kPiece; ++j) {
    scores[j] += job.slope * (job.distance + static_cast<float>(static_cast<int>(j)));
  }
}

/// See SoftenJob. Vectors of 16 lanes, which the compiler cuts to the width of the instruction set:
/// the same bits on all of them. Exponents are at most 0 here, so this is exponential() without its
/// upper limit.
template <typename Simd>
void soften(const SoftenJob& job) {
  typedef float Lanes __attribute__((vector_size(64)));
  typedef std::uint32_t Bits __attribute__((vector_size(64)));
  typedef std::int32_t Flags __attribute__((vector_size(64)));
  constexpr std::size_t kVectors = kPiece / 16;
  Lanes w[kVectors];
  __builtin_memcpy(w, job.weights, sizeof w);
  LEMMA_UNROLL
  for (std::size_t v = 0; v < kVectors; ++v) w[v] *= job.scale;
  if (job.softcap != 0.f || job.slope != 0.f) {
    __builtin_memcpy(job.weights, w, sizeof w);
    bend_scores<Simd>(job, job.weights);
    __builtin_memcpy(w, job.weights, sizeof w);
  }
  if (job.visible != nullptr) {
    Flags visible[kVectors];
    __builtin_memcpy(visible, job.visible, sizeof visible);
    // What is not seen may be anything, NaN included, so it is replaced and not added to.
    LEMMA_UNROLL
    for (std::size_t v = 0; v < kVectors; ++v) {
      w[v] = visible[v] != 0 ? w[v] : Lanes{} - __builtin_inff();
    }
  }
  Lanes top = w[0];
  LEMMA_UNROLL
  for (std::size_t v = 1; v < kVectors; ++v) top = w[v] > top ? w[v] : top;
  float peaks[16];
  __builtin_memcpy(peaks, &top, sizeof top);
  LEMMA_UNROLL
  for (std::size_t half = 8; half > 0; half /= 2) {
    LEMMA_UNROLL
    for (std::size_t l = 0; l < half; ++l) {
      peaks[l] = peaks[l + half] > peaks[l] ? peaks[l + half] : peaks[l];
    }
  }
  Lanes mass;
  __builtin_memcpy(&mass, job.mass, sizeof mass);
  const float before = *job.largest;
  const float largest = peaks[0] > before ? peaks[0] : before;
  if (largest != before) {  // the first piece has nothing to scale, but zeros
    const float factor = exponential<Simd>(before - largest);
    mass *= factor;
    for (std::size_t i = 0; i < job.width; ++i) job.sums[i] *= factor;
    *job.largest = largest;
  }
  LEMMA_UNROLL
  for (std::size_t v = 0; v < kVectors; ++v) {
    const Lanes x = w[v] - largest;
    const Lanes t = x < kExpLowest ? Lanes{} + kExpLowest : x;
    const Lanes shifted = t * kExpLog2e + kExpRound;
    const Lanes n = shifted - kExpRound;
    const Lanes r = (t - n * kExpLn2High) - n * kExpLn2Low;
    Lanes p = r * (1.f / 720.f) + 1.f / 120.f;
    p = p * r + 1.f / 24.f;
    p = p * r + 1.f / 6.f;
    p = p * r + 0.5f;
    p = (p * r) * r + r + 1.f;
    const Lanes power = __builtin_bit_cast(Lanes, (__builtin_bit_cast(Bits, shifted) + 127u) << 23);
    w[v] = x < kExpLowest ? Lanes{} : p * power;
    mass += w[v];
  }
  __builtin_memcpy(job.weights, w, sizeof w);
  __builtin_memcpy(job.mass, &mass, sizeof mass);
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
