// SPDX-License-Identifier: Apache-2.0
// Speed of the cpu kernels, beside what the machine can do in the same run: `memory_read` is a
// plain read of the same amount of memory, and decode (one row) is to be read as a share of it;
// `limit/f32`, `limit/int16` and `limit/int8` are the units that multiply, for many rows and for
// attention. With one thread all rates are by CPU time.
//
//   kernels_bench --benchmark_filter='memory_read|limit|project/avx512/.*/rows:(1|512)/'
//
// `compute/` is `project/` with panels that stay in the second cache: what the arithmetic alone
// allows.
//
// bytes_per_second counts packed weights, items_per_second multiply-adds.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "backend/cpu/kernels/attention_whole.hpp"
#include "backend/cpu/kernels/select.hpp"
#include "backend/cpu/packing.hpp"
#include "base/aligned_buffer.hpp"
#include "base/cpu_features.hpp"
#include "base/thread_pool.hpp"
#include "base/topology.hpp"
#include "limits.hpp"

namespace lemma::cpu {
namespace {

/// More than any cache, so that one row's weights come from memory.
constexpr std::size_t kStreamedBytes = std::size_t{256} << 20;
/// For very many rows: a matrix of a small model, read from the caches.
constexpr std::size_t kManyRowsOutputs = 2048;
constexpr std::size_t kCols = 2048;
constexpr std::size_t kChunkPanels = 4;
/// Panels that stay in the second cache.
constexpr std::size_t kCachedPanels = 8;

/// One panel of random codes, repeated `count` times.
base::AlignedBuffer repeat_panel(weights::Format format, std::size_t count) {
  const std::size_t bytes = panel_bytes(format, kCols);
  auto panels = base::AlignedBuffer::uninitialized(count * bytes);
  std::vector<float> values(kPanelRows * kCols);
  std::uint32_t seed = 1;
  for (float& x : values) {
    seed = seed * 1664525u + 1013904223u;
    x = static_cast<float>(seed >> 8) * 0x1p-24f - 0.5f;
  }
  std::vector<std::byte> file(kPanelRows * weights::row_bytes(format, kCols));
  weights::traits(format).quantize(values, file.data());
  pack_panel({format, kPanelRows, kCols, file.data(), nullptr, ""}, 0, panels.data());
  for (std::size_t p = 1; p < count; ++p) {
    std::memcpy(panels.data() + p * bytes, panels.data(), bytes);
  }
  return panels;
}

struct Rows {
  explicit Rows(std::size_t rows)
      : x(rows * kCols, 0.25f),
        codes(rows * kCols),
        scales(rows * kCols / kGroup),
        scaled_sums(rows * kCols / kGroup),
        sums(rows * kCols / kGroup * 3) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 7 % 255) * 0.01f - 1.f;
    kScalarKernels.quantize(x.data(), x.size(), quantized());
  }
  QuantizedRows quantized() {
    return {codes.data(), scales.data(), scaled_sums.data(), sums.data()};
  }
  std::vector<float> x;
  std::vector<std::int8_t> codes;
  std::vector<float> scales, scaled_sums;
  std::vector<std::int32_t> sums;
};

/// Panels for a product from memory.
std::size_t panels_for(weights::Format format, std::size_t rows) {
  if (rows > 64) return kManyRowsOutputs / kPanelRows;
  return kStreamedBytes / panel_bytes(format, kCols) / kChunkPanels * kChunkPanels;
}

void project(benchmark::State& state, base::Isa isa, weights::Format format, std::size_t rows,
             int threads, std::size_t count) {
  const std::size_t panel = panel_bytes(format, kCols);
  const base::AlignedBuffer panels = repeat_panel(format, count);
  base::ThreadPool pool(threads);
  Rows input(rows);
  // Outputs stay in the caches, as a layer's do: panel p of any is panel p % kPlaces of `out`.
  constexpr std::size_t kPlaces = kManyRowsOutputs / kPanelRows;
  std::vector<float> out(rows * kManyRowsOutputs);
  const auto kernel = kernels(isa).project[static_cast<std::size_t>(kernel_of(format))][0];
  for (auto _ : state) {
    pool.parallel_for(count, kChunkPanels, [&](std::size_t begin, std::size_t end) {
      ProjectJob job;
      job.panel_bytes = panel;
      job.outputs = kChunkPanels * kPanelRows;
      job.cols = kCols;
      job.rows = rows;
      job.x = input.x.data();
      job.x_stride = kCols;
      job.quantized = input.quantized();
      job.out_stride = kManyRowsOutputs;
      for (std::size_t p = begin; p < end; p += kChunkPanels) {
        job.panels = panels.data() + p * panel;
        job.out = out.data() + p % kPlaces * kPanelRows;
        kernel(job);
      }
    });
    benchmark::ClobberMemory();
  }
  const auto runs = static_cast<std::int64_t>(state.iterations());
  state.SetBytesProcessed(runs * static_cast<std::int64_t>(count * panel));
  state.SetItemsProcessed(runs * static_cast<std::int64_t>(count * kPanelRows * kCols * rows));
}

void memory_read(benchmark::State& state, int threads) {
  auto memory = base::AlignedBuffer::zeroed(kStreamedBytes);
  std::memset(memory.data(), 1, memory.size());
  base::ThreadPool pool(threads);
  const std::span<const std::uint64_t> words = memory.as<std::uint64_t>();
  for (auto _ : state) {
    pool.parallel_for(words.size(), 1 << 14, [&](std::size_t begin, std::size_t end) {
      std::uint64_t sums[8] = {};
      for (std::size_t i = begin; i < end; i += 8) {
        __builtin_prefetch(words.data() + i + 256);
        for (std::size_t l = 0; l < 8; ++l) sums[l] += words[i + l];
      }
      benchmark::DoNotOptimize(sums);
    });
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) *
                          static_cast<std::int64_t>(memory.size()));
}

void multiply_limit(benchmark::State& state, base::Isa isa,
                    std::size_t (*run)(base::Isa, std::size_t)) {
  std::size_t done = 0;
  for (auto _ : state) done += run(isa, 1000);
  state.SetItemsProcessed(static_cast<std::int64_t>(done));
}

void quantize(benchmark::State& state, base::Isa isa) {
  Rows rows(16);
  for (auto _ : state) {
    kernels(isa).quantize(rows.x.data(), rows.x.size(), rows.quantized());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()) *
                          static_cast<std::int64_t>(rows.x.size()));
}

/// Queries whose products with a piece become weights.
struct SoftQueries {
  static constexpr std::size_t kWidth = 128;
  explicit SoftQueries(std::size_t queries)
      : weights(queries * kPiece), out(queries * kWidth), mass(queries * 16), largest(queries) {}
  void soften(const KernelTable& table, std::size_t q) {
    SoftenJob job;
    job.weights = weights.data() + q * kPiece;
    job.largest = largest.data() + q;
    job.mass = mass.data() + q * 16;
    job.sums = out.data() + q * kWidth;
    job.width = kWidth;
    table.soften(job);
  }
  std::vector<float> weights, out, mass, largest;
};

/// Queries of width 128 over a piece of 64 keys: transposition, products, softmax, weighted sum.
void attend_piece(benchmark::State& state, base::Isa isa, std::size_t queries) {
  constexpr std::size_t kWidth = SoftQueries::kWidth;
  const KernelTable& table = kernels(isa);
  std::vector<float> query(queries * kWidth, 0.1f), keys(kPiece * kWidth, 0.2f), values(keys),
      panels(keys);
  SoftQueries soft(queries);
  ProductJob score;
  score.panel = panels.data();
  score.k_stride = kPanelRows;
  score.panel_stride = kPanelRows * kWidth;
  score.k = kWidth;
  score.columns = kPiece;
  score.x = query.data();
  score.x_stride = kWidth;
  score.rows = queries;
  score.out = soft.weights.data();
  score.out_stride = kPiece;
  ProductJob add;
  add.panel = values.data();
  add.k_stride = kWidth;
  add.panel_stride = kPanelRows;
  add.k = kPiece;
  add.columns = kWidth;
  add.x = soft.weights.data();
  add.x_stride = kPiece;
  add.rows = queries;
  add.out = soft.out.data();
  add.out_stride = kWidth;
  add.accumulate = true;
  for (auto _ : state) {
    for (std::size_t place = 0; place < kPiece; place += kPanelRows) {
      table.transpose(keys.data() + place * kWidth, kWidth, kWidth, panels.data() + place * kWidth);
    }
    table.product(score);
    for (std::size_t q = 0; q < queries; ++q) {
      soft.soften(table, q);
    }
    table.product(add);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()) *
                          static_cast<std::int64_t>(2 * queries * kPiece * kWidth));
}

/// The same in whole numbers, keys and values in f16.
void attend_piece_whole(benchmark::State& state, base::Isa isa, std::size_t queries) {
  constexpr std::size_t kWidth = SoftQueries::kWidth, kPairs = whole_pairs(kWidth);
  const KernelTable& table = kernels(isa);
  const WholeAttention& whole = *table.whole_attention;
  const std::vector<float> query(kWidth, 0.1f);
  const std::vector<std::uint16_t> rows(kPiece * kWidth, 0x2e66);
  const auto* const bytes = reinterpret_cast<const std::byte*>(rows.data());
  std::vector<std::uint32_t> x(queries * kPairs), keys(kPiece * kPairs),
      codes(queries * kPiece / 2), values(kPiece / 2 * kWidth);
  std::vector<float> query_scales(queries), key_scales(kPiece), value_scales(kPiece),
      weight_scales(queries);
  SoftQueries soft(queries);
  for (std::size_t q = 0; q < queries; ++q) {
    whole.round_query(query.data(), kWidth, x.data() + q * kPairs, query_scales.data() + q);
  }
  const WholeProductJob score{keys.data(),
                              kPanelRows,
                              kPanelRows * kPairs,
                              kPairs,
                              kPiece,
                              x.data(),
                              kPairs,
                              queries,
                              query_scales.data(),
                              1,
                              key_scales.data(),
                              soft.weights.data(),
                              kPiece,
                              false};
  const WholeProductJob add{
      values.data(), kWidth,  kPanelRows,           kPiece / 2, kWidth,  codes.data(),
      kPiece / 2,    queries, weight_scales.data(), 1,          nullptr, soft.out.data(),
      kWidth,        true};
  for (auto _ : state) {
    for (std::size_t place = 0; place < kPiece; place += kPanelRows) {
      whole.turn_keys[0](bytes + place * kWidth * 2, kWidth, kWidth, keys.data() + place * kPairs,
                         key_scales.data() + place, kPiece);
    }
    whole.pair_values[0](bytes, kWidth, kWidth, 0, kPiece, values.data(), value_scales.data());
    whole.product(score);
    for (std::size_t q = 0; q < queries; ++q) {
      soft.soften(table, q);
      whole.round_weights({soft.weights.data() + q * kPiece, nullptr, value_scales.data(),
                           codes.data() + q * kPiece / 2, weight_scales.data() + q});
    }
    whole.product(add);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()) *
                          static_cast<std::int64_t>(2 * queries * kPiece * kWidth));
}

void silu(benchmark::State& state, base::Isa isa) {
  std::vector<float> gate(4096, 0.3f), up(4096, 0.7f), out(4096);
  for (auto _ : state) {
    kernels(isa).silu(gate.data(), up.data(), gate.size(), out.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()) * 4096);
}

void register_all() {
  const int all = base::default_threads(base::read_machine(base::allowed_cpus())).decode;
  std::vector<int> thread_counts = {1};
  if (all > 1) thread_counts.push_back(all);
  for (const int threads : thread_counts) {
    auto* const bench =
        benchmark::RegisterBenchmark(("memory_read/threads:" + std::to_string(threads)).c_str(),
                                     [=](benchmark::State& state) { memory_read(state, threads); });
    if (threads > 1) bench->UseRealTime();
  }
  for (const base::Isa isa : base::available_isas(base::cpu_features())) {
    const std::string name(base::to_string(isa));
    for (const weights::Format format : weights::kFormats) {
      for (const std::size_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 32, 48, 64, 512}) {
        const std::string what = "/" + name + "/" + std::string(weights::traits(format).name) +
                                 "/rows:" + std::to_string(rows);
        benchmark::RegisterBenchmark(("compute" + what).c_str(), [=](benchmark::State& state) {
          project(state, isa, format, rows, 1, kCachedPanels);
        });
        for (const int threads : thread_counts) {
          auto* const bench = benchmark::RegisterBenchmark(
              ("project" + what + "/threads:" + std::to_string(threads)).c_str(),
              [=](benchmark::State& state) {
                project(state, isa, format, rows, threads, panels_for(format, rows));
              });
          if (threads > 1) bench->UseRealTime();
        }
      }
    }
    const auto add = [&](const std::string& what, auto body) {
      benchmark::RegisterBenchmark((what + "/" + name).c_str(),
                                   [=](benchmark::State& state) { body(state, isa); });
    };
    if (run_f32_limit(isa, 1) > 0) {
      add("limit/f32", [](auto& s, base::Isa i) { multiply_limit(s, i, run_f32_limit); });
      add("limit/int8", [](auto& s, base::Isa i) { multiply_limit(s, i, run_int8_limit); });
    }
    if (run_int16_limit(isa, 1) > 0) {
      add("limit/int16", [](auto& s, base::Isa i) { multiply_limit(s, i, run_int16_limit); });
    }
    add("quantize", quantize);
    for (const std::size_t queries : {1u, 8u, 64u, 256u}) {
      add("attend_piece/queries:" + std::to_string(queries),
          [queries](benchmark::State& s, base::Isa i) { attend_piece(s, i, queries); });
      if (kernels(isa).whole_attention == nullptr) continue;
      add("attend_piece_whole/queries:" + std::to_string(queries),
          [queries](benchmark::State& s, base::Isa i) { attend_piece_whole(s, i, queries); });
    }
    add("silu", silu);
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
