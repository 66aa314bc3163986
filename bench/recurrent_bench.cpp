// SPDX-License-Identifier: Apache-2.0
// Speed of the kernels of recurrent mixers in the shape of Qwen 3 Next: 32 heads with matrices of
// 128 x 128, 8,192 channels through a convolution of 4. `limit` is the unit that multiplies f32;
// delta_rows multiplies four times for each element and token, which items_per_second counts, and
// one token (rows:1) reads and writes the matrices of `layers` layers, from memory if they are
// many.
//
//   recurrent_bench --benchmark_filter=avx512
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "backend/cpu/kernels/select.hpp"
#include "base/cpu_features.hpp"
#include "limits.hpp"

namespace lemma::cpu {
namespace {

constexpr std::size_t kHeads = 32, kDim = 128, kChannels = 8192, kTaps = 4;

/// Numbers in +-0.15, so that keys are about as long as normed ones and matrices stay small.
std::vector<float> numbers(std::size_t n) {
  std::vector<float> all(n);
  std::uint32_t seed = 1;
  for (float& x : all) {
    seed = seed * 1664525u + 1013904223u;
    x = (static_cast<float>(seed >> 8) * 0x1p-24f - 0.5f) * 0.3f;
  }
  return all;
}

void delta_rows(benchmark::State& state, base::Isa isa, std::size_t rows, std::size_t layers,
                bool each) {
  const std::size_t width = kHeads * kDim;
  std::vector<float> matrices = numbers(layers * width * kDim);
  std::vector<float> input = numbers(rows * 3 * width), out(rows * width);
  std::vector<float> decay(rows * width, 0.97f), beta(rows * kHeads, 0.5f);
  std::vector<float> scratch(rows * (2 * kDim + 1));
  DeltaJob job;
  job.key_dim = job.value_dim = kDim;
  job.rows = rows;
  job.decay_step = each ? 1 : 0;
  job.decay_stride = job.out_stride = width;
  job.stride = 3 * width;
  job.beta_stride = kHeads;
  job.scratch = scratch.data();
  std::size_t layer = 0;
  for (auto _ : state) {
    for (std::size_t head = 0; head < kHeads; ++head) {
      job.matrix = matrices.data() + (layer * kHeads + head) * kDim * kDim;
      job.query = input.data() + head * kDim;
      job.key = job.query + width;
      job.value = job.key + width;
      job.decay = decay.data() + head * kDim;
      job.beta = beta.data() + head;
      job.out = out.data() + head * kDim;
      kernels(isa).delta_rows(job);
    }
    layer = (layer + 1) % layers;
    benchmark::ClobberMemory();
  }
  const auto runs = static_cast<std::int64_t>(state.iterations());
  state.SetItemsProcessed(runs * static_cast<std::int64_t>(rows * width * kDim * 4));
  state.SetBytesProcessed(runs * static_cast<std::int64_t>(width * kDim * 2 * sizeof(float)));
}

void convolve(benchmark::State& state, base::Isa isa) {
  const std::vector<float> x = numbers(kTaps * kChannels), weights = numbers(kTaps * kChannels);
  std::vector<float> out(kChannels);
  const float* rows[kTaps];
  for (std::size_t t = 0; t < kTaps; ++t) rows[t] = x.data() + t * kChannels;
  ConvolveJob job{rows, weights.data(), kTaps, kChannels, kChannels, out.data()};
  for (auto _ : state) {
    kernels(isa).convolve(job);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * kChannels));
}

void decay(benchmark::State& state, base::Isa isa, float bound) {
  const std::size_t n = kHeads * kDim;
  const std::vector<float> raw = numbers(n), bias = numbers(n), rate(n, 0.5f);
  std::vector<float> out(n);
  for (auto _ : state) {
    kernels(isa).decay(raw.data(), bias.data(), rate.data(), bound, n, out.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * n));
}

void limit(benchmark::State& state, base::Isa isa) {
  std::size_t done = 0;
  for (auto _ : state) done += run_f32_limit(isa, 1000);
  state.SetItemsProcessed(static_cast<std::int64_t>(done));
}

void register_all() {
  for (const base::Isa isa : base::available_isas(base::cpu_features())) {
    const auto add = [&](const std::string& what, auto body) {
      benchmark::RegisterBenchmark((what + "/" + std::string(base::to_string(isa))).c_str(), body);
    };
    if (run_f32_limit(isa, 1) > 0) {
      add("limit", [isa](benchmark::State& s) { limit(s, isa); });
    }
    for (const std::size_t rows : {1, 16}) {
      for (const std::size_t layers : {1, 36}) {
        for (const bool each : {false, true}) {
          add("delta_rows/rows:" + std::to_string(rows) + "/layers:" + std::to_string(layers) +
                  (each ? "/decays:128" : "/decays:1"),
              [=](benchmark::State& s) { delta_rows(s, isa, rows, layers, each); });
        }
      }
    }
    add("convolve", [isa](benchmark::State& s) { convolve(s, isa); });
    add("decay", [isa](benchmark::State& s) { decay(s, isa, 0.f); });
    add("decay/bound", [isa](benchmark::State& s) { decay(s, isa, -5.f); });
  }
}

}  // namespace
}  // namespace lemma::cpu

int main(int argc, char** argv) {
  lemma::cpu::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
