// SPDX-License-Identifier: Apache-2.0
#include "golden_models.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>

#include <nlohmann/json.hpp>

#include "test_data.hpp"

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

std::vector<std::filesystem::path> own_goldens() {
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::directory_iterator(source_dir() / "tests" / "goldens"))
    if (std::filesystem::exists(entry.path() / "model.gguf")) folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  return folders;
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
  return under_test(runtime::LoadedModel::open(model, load_options(options)), options);
}

}  // namespace lemma::test
