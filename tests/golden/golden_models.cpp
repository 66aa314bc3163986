// SPDX-License-Identifier: Apache-2.0
#include "golden_models.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include <nlohmann/json.hpp>

namespace lemma::test {

std::vector<std::string> golden_variants() {
  return {"llama-mha",
          "llama-gqa",
          "llama-mqa-tied-bias",
          "llama-rope-freqs",
          "llama-rope-linear",
          "llama-yarn",
          "llama-yarn-attnfactor",
          "qwen2",
          "qwen3",
          "gemma",
          "gemma2",
          "gemma3",
          "gemma3-linear",
          "mistral3",
          "phi3",
          "phi3-longrope-long",
          "phi3-longrope-short",
          "granite",
          "smollm3",
          "olmo2",
          "cohere2",
          "command-r",
          "stablelm",
          "stablelm-parallel-qknorm",
          "starcoder2",
          "gpt2",
          "llama-moe",
          "qwen2moe",
          "qwen3moe",
          "olmoe",
          "granitemoe",
          "granitemoe-shared",
          "phi2",
          "falcon",
          "falcon-40b",
          "bloom",
          "mpt",
          "gptneox",
          "gptneox-sequential",
          "olmo",
          "starcoder",
          "glm4",
          "glm4moe",
          "glm4moe-nextn",
          "minimax-m2",
          "gpt-oss",
          "bailingmoe2",
          "gemma4",
          "gemma4-moe",
          "gemma4-sharedkv",
          "minimax-m3",
          "minimax-m3-dense",
          "deepseek2-v2lite-kvb",
          "deepseek2-noq-mla",
          "deepseek2-lite26",
          "deepseek2-v3-mla",
          "mistral4",
          "deepseek32",
          "glm-dsa",
          "glm-dsa-shared",
          "glm-dsa-576",
          "deepseek4",
          "deepseek4-hash",
          "deepseek4-clamp-shexp",
          "deepseek4-csa",
          "deepseek4-hca-long",
          "qwen3next",
          "qwen3next-legacy-ssm-in",
          "qwen35",
          "qwen35-state128",
          "qwen35moe",
          "kimi-linear",
          "bailingmoe3"};
}

std::vector<float> read_f32(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(in)), {});
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

Golden read_golden(const std::filesystem::path& folder) {
  const auto json = [&](const char* file) {
    std::ifstream in(folder / file);
    return nlohmann::json::parse(in);
  };
  Golden golden;
  golden.model = folder / "model.gguf";
  golden.tokens = json("tokens.json").get<std::vector<std::int32_t>>();
  const auto tolerance = json("info.json").at("tolerance");
  if (std::filesystem::exists(folder / "reference.f32")) {
    golden.logits = read_f32(folder / "reference.f32");
    golden.tolerance = tolerance.at("max_abs_against_reference_f32").get<double>();
  } else {
    golden.logits = read_f32(folder / "logits.f32");
    golden.tolerance = tolerance.at("max_abs").get<double>();
  }
  return golden;
}

GoldenRun open_golden(const std::filesystem::path& model, const GoldenOptions& options) {
  runtime::LoadOptions load;
  load.backend = options.backend;
  load.threads = options.threads;
  load.numerics = options.numerics;
  GoldenRun run;
  run.model = runtime::LoadedModel::open(model, load);
  runtime::StateOptions state;
  state.format = options.format;
  state.page_size = options.page_size;
  state.sequences = options.sequences;
  run.space = std::make_unique<runtime::StateSpace>(*run.model, state);
  return run;
}

std::vector<float> evaluate(GoldenRun& run, std::span<const std::int32_t> tokens,
                            const runtime::Chunking& chunking) {
  std::vector<float> all;
  all.reserve(tokens.size() * run.model->plan().vocabulary);
  state::Sequence sequence(run.space->pool());
  runtime::evaluate(*run.model, *run.space, sequence, tokens, chunking,
                    [&](std::uint32_t, std::span<const float> logits) {
                      all.insert(all.end(), logits.begin(), logits.end());
                    });
  return all;
}

double largest_difference(std::span<const float> a, std::span<const float> b) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (a.size() != b.size() || a.empty()) return kInfinity;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return kInfinity;
    largest = std::max(largest, std::fabs(double{a[i]} - double{b[i]}));
  }
  return largest;
}

std::string bit_difference(std::span<const float> expected, std::span<const float> found,
                           std::size_t row_width) {
  if (expected.size() != found.size()) return "sizes differ";
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (std::bit_cast<std::uint32_t>(expected[i]) != std::bit_cast<std::uint32_t>(found[i]))
      return "row " + std::to_string(i / row_width) + " differs first, by " +
             std::to_string(std::fabs(double{expected[i]} - double{found[i]}));
  return "";
}

}  // namespace lemma::test
