// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "algorithm/sampling.hpp"
#include "base/utf8.hpp"
#include "eval/explain.hpp"

namespace lemma::eval {
namespace {

constexpr std::size_t kBest = 8;

}  // namespace

std::string piece_of(const text::Tokenizer& tokenizer, std::int32_t id) {
  if (id < 0 || std::size_t(id) >= tokenizer.vocabulary_size()) return "(no token)";
  const std::string piece = tokenizer.piece(id, /*show_special=*/true);
  if (base::is_valid_utf8(piece)) return piece;
  return base::repair_utf8(tokenizer.token_text(id));  // part of a character: "<0xE4>"
}

// Each stage is the sampler itself with the later stages switched off.
std::vector<SamplingStage> sampling_stages(const Sampling& sampling, std::span<const float> logits,
                                           std::span<const std::int32_t> history,
                                           std::span<const std::uint8_t> fence,
                                           const text::Tokenizer& tokenizer) {
  std::vector<SamplingStage> stages;
  Sampling so_far;  // all stages off: what the logits themselves say
  const auto add = [&](const char* name) {
    algorithm::SamplingTrace trace;
    algorithm::Random unused(1);
    algorithm::sample(so_far, logits, history, fence, unused, &trace);
    SamplingStage stage{.name = name, .kept = trace.kept.size()};
    for (std::size_t i = 0; i < std::min(kBest, trace.kept.size()); ++i) {
      const algorithm::Candidate& candidate = trace.kept[i];
      stage.best.push_back({candidate.id, piece_of(tokenizer, candidate.id), candidate.logit,
                            candidate.probability});
    }
    stages.push_back(std::move(stage));
  };
  add("logits");
  so_far.logit_bias = sampling.logit_bias;
  if (!so_far.logit_bias.empty()) add("logit bias");
  so_far.repetition_penalty = sampling.repetition_penalty;
  so_far.presence_penalty = sampling.presence_penalty;
  so_far.frequency_penalty = sampling.frequency_penalty;
  if (so_far.repetition_penalty != 1.f || so_far.presence_penalty != 0.f ||
      so_far.frequency_penalty != 0.f)
    add("penalties");
  so_far.temperature = sampling.temperature;
  if (sampling.temperature == 0.f) {
    add("the likeliest alone");
    return stages;
  }
  if (so_far.temperature != 1.f) add("temperature");
  so_far.top_k = sampling.top_k;
  if (so_far.top_k > 0) add("top-k");
  so_far.top_p = sampling.top_p;
  if (so_far.top_p < 1.f) add("top-p");
  so_far.min_p = sampling.min_p;
  if (so_far.min_p > 0.f) add("min-p");
  return stages;
}

}  // namespace lemma::eval
