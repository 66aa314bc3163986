// SPDX-License-Identifier: Apache-2.0
// Explain: the way of a prompt through a model, as data. The model runs twice. First as it always
// does, choosing tokens, which gives times, state and candidates; then over the same tokens with
// observers, which cannot change the bits, for what stands inside. Every number is measured, read
// off the program that ran, or recomputed from captured rows by the contract's functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "eval/model_run.hpp"
#include "lemma/sampling.hpp"

namespace lemma::eval {

/// Attention maps have a cell for each pair of tokens, so that a text must be short.
inline constexpr std::size_t kMostExplained = 256;

struct ExplainedToken {
  std::int32_t id = 0;
  std::string piece;  ///< valid UTF-8
  std::string kind;   ///< "normal", "control", "byte", ...
  bool generated = false;
};

/// One operation of the prefill: what comes in and what goes out. S is the prompt's length.
struct Stage {
  std::uint32_t first_layer = 0, last_layer = 0;  ///< that share it
  bool in_layers = false;
  std::string operation;
  std::string site;   ///< within its layer
  std::string shape;  ///< "[5, 64] -> [5, 4, 16]"
};

/// Lengths (Euclidean) of rows of the prompt.
struct RowNorms {
  std::string site;
  double mean = 0, last = 0;  ///< over all tokens of the prompt, and of its last one
};

struct AttentionView {
  std::string site;
  std::uint32_t heads = 0;
  std::string hidden;       ///< why there are no weights
  std::vector<float> mean;  ///< [T, T]: row i, column j: what i reads of j, averaged over heads
  struct Read {
    std::uint32_t position = 0;
    float weight = 0;
  };
  std::vector<Read> most;               ///< of the prompt's last token, averaged; heaviest first
  std::vector<Read> head_most;          ///< by head: its heaviest
  std::optional<std::uint32_t> chosen;  ///< entries that a selection named for that token
};

struct ExpertView {
  std::string site;
  std::uint32_t experts = 0, chosen = 0;
  std::vector<std::uint32_t> use;  ///< by expert: tokens that chose it
  std::vector<std::uint32_t> ids;  ///< of the prompt's last token, in rank order
  std::vector<float> weights;
};

struct LayerView {
  std::uint32_t layer = 0;
  std::string mixers;              ///< "gqa, moe"
  std::vector<RowNorms> branches;  ///< what each site adds
  std::optional<RowNorms> stream;  ///< behind the layer
  std::vector<AttentionView> attention;
  std::vector<ExpertView> experts;
};

struct SamplingStage {
  std::string name;      ///< "logits", "temperature", "top-k", ...
  std::size_t kept = 0;  ///< candidates that are left behind it
  struct Candidate {
    std::int32_t id = 0;
    std::string piece;
    float logit = 0, probability = 0;
  };
  std::vector<Candidate> best;  ///< likeliest first
};

struct Choice {
  std::uint32_t position = 0;  ///< of the token that was chosen
  std::int32_t id = 0;
  std::string piece;
  float probability = 0;  ///< among the candidates that it was drawn from
  bool ends = false;      ///< an end-of-text token: nothing is fed behind it
  std::vector<SamplingStage> stages;
};

struct StepView {
  bool prefill = false;
  std::uint32_t rows = 0, length = 0;  ///< rows of the step, and the sequence's length behind it
  double milliseconds = 0;
  std::uint64_t formula_bytes = 0, held_bytes = 0;  ///< of state, by formula and in pages
};

struct Explanation {
  ModelInfo info;
  std::size_t sites = 0;              ///< tensors of one forward pass
  std::optional<std::uint64_t> seed;  ///< of the draws; absent where nothing is drawn
  std::size_t prompt_tokens = 0;
  std::vector<ExplainedToken> tokens;  ///< prompt and generated
  std::vector<Stage> stages;
  std::vector<LayerView> layers;
  std::vector<Choice> choices;
  std::vector<StepView> steps;
  std::string state_format, state_formula;  ///< the formula at the last length
};

struct ExplainOptions {
  Sampling sampling;
  std::uint64_t seed = 0;
  std::uint32_t max_tokens = 8;
  KvFormat kv = KvFormat::kF32;
  ProgressCallback progress{};
};

/// Throws kUsage for parameters out of range or an empty prompt, kContextFull where the tokens are
/// more than the context or kMostExplained, and what a step fails with.
Explanation explain(ModelRun& run, std::span<const std::int32_t> prompt,
                    const ExplainOptions& options);

// Parts of it, each in its own file.

/// explain_shapes.cpp: the operations that change a shape, neighbouring equal layers folded.
std::vector<Stage> stages_of(const backend::Program& program, std::size_t tokens);

/// explain_layers.cpp: runs `tokens` with observers, of which `prompt` came in as a prompt.
std::vector<LayerView> look_inside(ModelRun& run, std::span<const std::int32_t> tokens,
                                   std::size_t prompt, const ProgressCallback& progress);

/// explain_sampling.cpp: what each stage of sampling leaves of the candidates.
std::vector<SamplingStage> sampling_stages(const Sampling& sampling, std::span<const float> logits,
                                           std::span<const std::int32_t> history,
                                           std::span<const std::uint8_t> fence,
                                           const text::Tokenizer& tokenizer);

/// A token's text for people; control tokens and parts of characters as the vocabulary spells them.
std::string piece_of(const text::Tokenizer& tokenizer, std::int32_t id);

}  // namespace lemma::eval
