// SPDX-License-Identifier: Apache-2.0
#include "wide_models.hpp"

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "algorithm/sampling.hpp"

namespace lemma::test {
namespace {

using weights::Format;

constexpr std::uint32_t kWidth = 512, kHeads = 8, kDim = 64;
constexpr std::uint32_t kExperts = 8, kChosen = 2, kExpertHidden = 256;
constexpr std::size_t kDistinctRows = 61;

/// Encoded rows of `cols` uniform numbers that keep the size of what they multiply.
const std::vector<std::byte>& distinct_rows(Format format, std::uint64_t cols) {
  static std::map<std::pair<Format, std::uint64_t>, std::vector<std::byte>> made;
  std::vector<std::byte>& rows = made[{format, cols}];
  if (!rows.empty()) return rows;
  algorithm::Random random(cols);
  const float high = std::sqrt(3.f / static_cast<float>(cols));
  std::vector<float> values(kDistinctRows * cols);
  for (float& value : values) value = (2.f * random.uniform() - 1.f) * high;
  rows.resize(kDistinctRows * weights::row_bytes(format, cols));
  weights::traits(format).quantize(values, rows.data());
  return rows;
}

class WideParts {
 public:
  WideParts(SeededWeights& weights, Format format) : weights_(weights), format_(format) {}

  /// Weights made from now on are named so.
  void enter(std::string prefix) { prefix_ = std::move(prefix); }

  model::Linear linear(const std::string& name, std::uint64_t rows, std::uint64_t cols) {
    const std::vector<std::byte>& distinct = distinct_rows(format_, cols);
    const std::size_t row_bytes = distinct.size() / kDistinctRows;
    std::vector<std::byte> bytes(rows * row_bytes);
    for (std::uint64_t r = 0; r < rows; ++r)
      std::memcpy(bytes.data() + r * row_bytes,
                  distinct.data() + (r + first_row_) % kDistinctRows * row_bytes, row_bytes);
    first_row_ += 17;
    return {.weight = weights_.stored(prefix_ + name, {rows, cols}, format_, std::move(bytes))};
  }
  model::Norm norm(const std::string& name, std::uint32_t width) {
    return {.spec = {}, .weight = vector(name, width, 0.75f, 1.25f), .bias = {}};
  }
  model::Site site(model::Mixer mixer) {
    model::Site site;
    site.norm = norm("norm", kWidth);
    site.mixer = std::move(mixer);
    return site;
  }

  model::Gqa attention(std::uint32_t kv_heads) {
    model::Gqa gqa;
    gqa.spec = {.query_heads = kHeads,
                .kv_heads = kv_heads,
                .head_dim = kDim,
                .value_dim = kDim,
                .scale = 1.f / std::sqrt(static_cast<float>(kDim))};
    gqa.query = linear("query", kHeads * kDim, kWidth);
    gqa.key = linear("key", kv_heads * kDim, kWidth);
    gqa.value = linear("value", kv_heads * kDim, kWidth);
    gqa.output = linear("output", kWidth, kHeads * kDim);
    gqa.rope = algorithm::RopeSpec{.rotary_dim = kDim};
    return gqa;
  }
  model::Gqa normed_attention() {
    model::Gqa gqa = attention(2);
    gqa.qk_norm = model::QkNorm{.query = norm("query_norm", kDim), .key = norm("key_norm", kDim)};
    return gqa;
  }
  model::Gqa window() {
    model::Gqa gqa = attention(4);
    gqa.spec.window = 8;
    gqa.spec.sinks = true;
    gqa.sinks = vector("sinks", kHeads, -1.f, 1.f);
    return gqa;
  }
  model::GatedDeltaNet delta_net() {
    constexpr std::uint32_t kValueHeads = 4, kValueDim = 128;
    model::GatedDeltaNet net;
    net.spec = {.key_heads = 2,
                .value_heads = kValueHeads,
                .key_dim = kDim,
                .value_dim = kValueDim,
                .kernel = 4};
    const std::uint32_t channels = net.spec.channels(), values = kValueHeads * kValueDim;
    net.channels = {linear("channels", channels, kWidth)};
    net.convolutions = {weights_.precise(prefix_ + "convolution", channels, net.spec.kernel)};
    net.alpha = linear("alpha", kValueHeads, kWidth);
    net.beta = linear("beta", kValueHeads, kWidth);
    net.gate = linear("gate", values, kWidth);
    net.output = linear("output", kWidth, values);
    net.rate = vector("rate", kValueHeads, -1.f, -0.05f);
    net.dt_bias = vector("dt_bias", kValueHeads, -2.f, 0.f);
    net.norm = vector("head_norm", kValueDim, 0.75f, 1.25f);
    return net;
  }

  model::DenseMlp dense(const std::string& name, std::uint32_t hidden) {
    model::DenseMlp mlp;
    mlp.spec = {.activation = {}, .gated = true, .width = kWidth, .hidden = hidden};
    mlp.gate = linear(name + "gate", hidden, kWidth);
    mlp.up = linear(name + "up", hidden, kWidth);
    mlp.down = linear(name + "down", kWidth, hidden);
    return mlp;
  }
  model::Moe experts(bool shared) {
    model::Moe moe;
    moe.routing.experts = kExperts;
    moe.routing.chosen = kChosen;
    moe.routing.normalize = true;
    moe.expert = {.activation = {}, .gated = true, .width = kWidth, .hidden = kExpertHidden};
    moe.router.weight = weights_.precise(prefix_ + "router", kExperts, kWidth);
    moe.gate = linear("experts.gate", kExperts * kExpertHidden, kWidth);
    moe.up = linear("experts.up", kExperts * kExpertHidden, kWidth);
    moe.down = linear("experts.down", kExperts * kWidth, kExpertHidden);
    if (shared) moe.shared = dense("shared.", kExpertHidden);
    return moe;
  }

 private:
  weights::WeightRef vector(const std::string& name, std::uint64_t size, float low, float high) {
    return weights_.vector(prefix_ + name, size, low, high);
  }

  SeededWeights& weights_;
  Format format_;
  std::string prefix_;
  std::size_t first_row_ = 0;
};

}  // namespace

WideModel make_wide(WideKind kind, Format format) {
  auto weights = std::make_unique<SeededWeights>(format);
  WideParts parts(*weights, format);
  model::Plan plan;
  plan.architecture = "wide";
  plan.width = kWidth;
  plan.vocabulary = kWideVocabulary;
  plan.context = kWideContext;
  plan.embedding.table = parts.linear("embedding", kWideVocabulary, kWidth).weight;
  const auto add = [&](auto token_mixer, auto channel_mixer) {
    const std::string layer = "layers." + std::to_string(plan.layers.size());
    model::Layer& added = plan.layers.emplace_back();
    parts.enter(layer + ".attention.");
    added.sites.push_back(parts.site(token_mixer()));
    parts.enter(layer + ".ffn.");
    added.sites.push_back(parts.site(channel_mixer()));
  };
  const auto dense = [&] { return parts.dense("", kWidth); };
  switch (kind) {
    case WideKind::kDense:
      add([&] { return parts.attention(4); }, dense);
      break;
    case WideKind::kExperts:
      add([&] { return parts.normed_attention(); }, [&] { return parts.experts(true); });
      break;
    case WideKind::kHybrid:
      add([&] { return parts.delta_net(); }, dense);
      add([&] { return parts.window(); }, [&] { return parts.experts(false); });
      break;
  }
  parts.enter("");
  plan.final_norm = parts.norm("final_norm", kWidth);
  plan.head.output = parts.linear("head", kWideVocabulary, kWidth);
  return {std::move(weights), std::move(plan)};
}

std::vector<std::int32_t> wide_tokens() {
  algorithm::Random random(53);
  std::vector<std::int32_t> tokens;
  while (tokens.size() < 40)
    tokens.push_back(static_cast<std::int32_t>(random.next() % kWideVocabulary));
  return tokens;
}

}  // namespace lemma::test
