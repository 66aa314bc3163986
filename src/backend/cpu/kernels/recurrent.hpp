// SPDX-License-Identifier: Apache-2.0
// Kernels of recurrent mixers and compressors. The delta rule goes token by token, but a token's
// correction and the next one's questions are one pass over the matrix:
//
//   answer = S^T (decay k),  read = S^T (decay q)           of the matrix before the token
//   u = beta (v - answer),   out = read + (k . q) u,   S = decay S + k u^T
//
// That is four multiplications an element and token, as many as products over cells of 64 tokens
// would take, and nothing has to be kept beside S. Columns do not see each other, and each is a
// chain over the channels in ascending order, so no bits depend on how many go side by side or on
// how many tokens come at once.
#pragma once

#include "backend/cpu/kernels/kernels.hpp"
#include "backend/cpu/kernels/product.hpp"
#include "backend/cpu/kernels/rows.hpp"

namespace lemma::cpu {

/// What all columns share, behind each other in a job's scratch.
struct DeltaTerms {
  float* answer;   ///< [rows, key_dim]: decay * key
  float* read;     ///< [rows, key_dim]: decay * query
  float* overlap;  ///< [rows]: key . query
};

/// The columns [first, first + columns) of a head, `columns` V vectors where `Whole`.
template <typename Simd, std::size_t V, bool Whole>
class DeltaColumns {
 public:
  DeltaColumns(const DeltaJob& job, const DeltaTerms& terms, std::size_t first, std::size_t columns)
      : job_(job), terms_(terms), first_(first), columns_(Whole ? V * kLanes : columns) {}

  void run() const {
    Sums sums;
    ask(sums);
    std::size_t row = 0;
    for (; row + 1 < job_.rows; ++row) {
      answer(row, sums);
      learn<true>(row, sums);
    }
    answer(row, sums);
    learn<false>(row, sums);
  }

 private:
  using F = typename Simd::F;
  static constexpr std::size_t kLanes = Simd::kLanes;
  struct Sums {
    F answer[V], read[V];
    F correction[V];
  };

  /// What the first token asks the matrix.
  void ask(Sums& sums) const {
    LEMMA_UNROLL
    for (std::size_t v = 0; v < V; ++v) sums.answer[v] = sums.read[v] = Simd::zero();
    for (std::size_t c = 0; c < job_.key_dim; ++c) {
      const float* const entries = job_.matrix + c * job_.value_dim + first_;
      const F key = Simd::set(terms_.answer[c]), query = Simd::set(terms_.read[c]);
      LEMMA_UNROLL
      for (std::size_t v = 0; v < V; ++v) {
        const F entry = load_columns<Simd>(entries, v * kLanes, columns_);
        sums.answer[v] = Simd::fma(entry, key, sums.answer[v]);
        sums.read[v] = Simd::fma(entry, query, sums.read[v]);
      }
    }
  }

  /// The token's correction and output, from what the matrix answered.
  void answer(std::size_t row, Sums& sums) const {
    const float* const values = job_.value + row * job_.stride + first_;
    float* const out = job_.out + row * job_.out_stride + first_;
    const F beta = Simd::set(job_.beta[row * job_.beta_stride]), one = Simd::set(1.f);
    const F overlap = Simd::set(terms_.overlap[row]);
    LEMMA_UNROLL
    for (std::size_t v = 0; v < V; ++v) {
      const F value = load_columns<Simd>(values, v * kLanes, columns_);
      sums.correction[v] = Simd::mul(beta, Simd::fnma(sums.answer[v], one, value));
      store_columns<Simd>(out, Simd::fma(overlap, sums.correction[v], sums.read[v]), v * kLanes,
                          columns_);
    }
  }

  /// Puts the token into the matrix, and with `Ask` what the next one asks in the same pass.
  template <bool Ask>
  void learn(std::size_t row, Sums& sums) const {
    const float* const decays = job_.decay + row * job_.decay_stride;
    const float* const keys = job_.key + row * job_.stride;
    const std::size_t next = (row + 1) * job_.key_dim;
    F answer[V], read[V];
    LEMMA_UNROLL
    for (std::size_t v = 0; v < V; ++v) answer[v] = read[v] = Simd::zero();
    for (std::size_t c = 0; c < job_.key_dim; ++c) {
      float* const entries = job_.matrix + c * job_.value_dim + first_;
      const F decay = Simd::set(decays[c * job_.decay_step]), key = Simd::set(keys[c]);
      F next_key = decay, next_query = decay;
      if constexpr (Ask) {
        next_key = Simd::set(terms_.answer[next + c]);
        next_query = Simd::set(terms_.read[next + c]);
      }
      LEMMA_UNROLL
      for (std::size_t v = 0; v < V; ++v) {
        const F old = load_columns<Simd>(entries, v * kLanes, columns_);
        const F entry = Simd::fma(key, sums.correction[v], Simd::mul(old, decay));
        store_columns<Simd>(entries, entry, v * kLanes, columns_);
        if constexpr (Ask) {
          answer[v] = Simd::fma(entry, next_key, answer[v]);
          read[v] = Simd::fma(entry, next_query, read[v]);
        }
      }
    }
    LEMMA_UNROLL
    for (std::size_t v = 0; v < V; ++v) {
      sums.answer[v] = answer[v];
      sums.read[v] = read[v];
    }
  }

  const DeltaJob job_;  // copies: nothing that is written may alias them
  const DeltaTerms terms_;
  const std::size_t first_, columns_;
};

/// As many blocks of V vectors as there are from column `first` on; returns where they end.
template <typename Simd, std::size_t V>
std::size_t delta_blocks(const DeltaJob& job, const DeltaTerms& terms, std::size_t first) {
  constexpr std::size_t kColumns = V * Simd::kLanes;
  for (; first + kColumns <= job.value_dim; first += kColumns) {
    DeltaColumns<Simd, V, true>(job, terms, first, kColumns).run();
  }
  return first;
}

/// Eight vectors side by side are a head of 128 columns on the widest vectors: 16 sums and 8
/// corrections, in 32 registers. The matrix of 64 KiB is read in order, from the second cache.
template <typename Simd>
void delta_rows(const DeltaJob& job) {
  const std::size_t n = job.key_dim;
  const DeltaTerms terms = {job.scratch, job.scratch + job.rows * n,
                            job.scratch + 2 * job.rows * n};
  for (std::size_t row = 0; row < job.rows; ++row) {
    const float* const decay = job.decay + row * job.decay_stride;
    const float* const key = job.key + row * job.stride;
    const float* const query = job.query + row * job.stride;
    float* const answer = terms.answer + row * n;
    float* const read = terms.read + row * n;
    const bool each = job.decay_step != 0;
    for (std::size_t c = 0; c < n; ++c) answer[c] = key[c] * (each ? decay[c] : decay[0]);
    for (std::size_t c = 0; c < n; ++c) read[c] = query[c] * (each ? decay[c] : decay[0]);
    terms.overlap[row] = dot<Simd>(key, query, n);
  }
  std::size_t first = delta_blocks<Simd, 8>(job, terms, 0);
  first = delta_blocks<Simd, 4>(job, terms, first);
  first = delta_blocks<Simd, 1>(job, terms, first);
  if (first < job.value_dim) {
    DeltaColumns<Simd, 1, false>(job, terms, first, job.value_dim - first).run();
  }
}

/// log(1 + e^x) = max(x, 0) + log1p(y) with y = e^-|x|. With z = y / (2 + y), which is at most 1/3,
/// log1p(y) = 2 atanh(z); its series is cut where terms are below 2e-8 of the sum.
template <typename Simd>
inline float softplus(float x) {
  const float y = exponential<Simd>(x < 0.f ? x : -x);
  const float z = y / (2.f + y), s = z * z;
  float p = 1.f / 13.f;
  p = p * s + 1.f / 11.f;
  p = p * s + 1.f / 9.f;
  p = p * s + 1.f / 7.f;
  p = p * s + 1.f / 5.f;
  p = p * s + 1.f / 3.f;
  const float log1p = 2.f * (z + z * (s * p));
  return (x > 0.f ? x : 0.f) + log1p;
}

template <typename Simd>
void decay(const float* raw, const float* bias, const float* rate, float bound, std::size_t n,
           float* out) {
  if (bound < 0.f) {
    for (std::size_t i = 0; i < n; ++i) {
      out[i] = exponential<Simd>(bound * logistic<Simd>(rate[i] * (raw[i] + bias[i])));
    }
  } else {
    for (std::size_t i = 0; i < n; ++i) {
      out[i] = exponential<Simd>(-rate[i] * softplus<Simd>(raw[i] + bias[i]));
    }
  }
}

/// Blocks of 256 channels, whose sums stay in the nearest cache over all taps.
template <typename Simd>
void convolve(const ConvolveJob& job) {
  constexpr std::size_t kChannels = 256;
  for (std::size_t first = 0; first < job.channels; first += kChannels) {
    const std::size_t left = job.channels - first, n = left < kChannels ? left : kChannels;
    float* const out = job.out + first;
    for (std::size_t c = 0; c < n; ++c) out[c] = 0.f;
    for (std::size_t tap = 0; tap < job.taps; ++tap) {
      if (job.rows[tap] == nullptr) continue;
      const float* const weight = job.weights + tap * job.weight_stride + first;
      const float* const x = job.rows[tap] + first;
      for (std::size_t c = 0; c < n; ++c) out[c] += weight[c] * x[c];
    }
    silu<Simd>(out, nullptr, n, out);
  }
}

/// Blocks of 64 channels, so that what a block needs from one token to the next stays in the cache.
template <typename Simd>
void pool(const float* const* values, const float* const* gates, std::size_t tokens,
          std::size_t width, float* out) {
  constexpr std::size_t kChannels = 64;
  for (std::size_t first = 0; first < width; first += kChannels) {
    const std::size_t n = width - first < kChannels ? width - first : kChannels;
    float top[kChannels], mass[kChannels] = {}, sum[kChannels] = {};
    for (std::size_t c = 0; c < n; ++c) top[c] = gates[0][first + c];
    for (std::size_t t = 1; t < tokens; ++t) {
      const float* const gate = gates[t] + first;
      for (std::size_t c = 0; c < n; ++c) top[c] = gate[c] > top[c] ? gate[c] : top[c];
    }
    for (std::size_t t = 0; t < tokens; ++t) {
      const float* const gate = gates[t] + first;
      const float* const value = values[t] + first;
      for (std::size_t c = 0; c < n; ++c) {
        const float weight = exponential<Simd>(gate[c] - top[c]);
        mass[c] += weight;
        sum[c] += weight * value[c];
      }
    }
    for (std::size_t c = 0; c < n; ++c) out[first + c] = sum[c] / mass[c];
  }
}

}  // namespace lemma::cpu
