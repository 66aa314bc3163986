// SPDX-License-Identifier: Apache-2.0
// Conformance: small programs, one around each operation, that any backend can be asked to run on
// chosen steps. The tests compare what two backends, or two ways of cutting the same tokens into
// steps, leave at the last site. Programs begin with an embedding, so a token id is the input.
//
//   const Case c = attend_case(spec, kSeed);
//   Rows rows = run_case(*backend, c, {.schedule = one_prefill(20)});
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "algorithm/tolerance.hpp"
#include "backend/backend.hpp"
#include "backend/cpu/kernels/kernels.hpp"

namespace lemma::backend::conformance {

using cpu::EnteredRows;

/// A weight of a case.
struct CaseWeight {
  weights::Matrix matrix;
  WeightUse use = WeightUse::kMatrix;
};

/// A program, its weights, and how far apart two backends may be at its last site.
struct Case {
  std::string name;
  std::vector<CaseWeight> weights;
  Program program;   ///< weight ids are indexes into `weights`
  std::string site;  ///< the site to compare; "logits" for the head's
  algorithm::Tolerance tolerance;
  /// On a level that rounds what meets F16 and BF16 weights, and those weights with it: to bf16, or
  /// to whole numbers.
  algorithm::Tolerance bf16 = tolerance, whole = tolerance;
};

/// The same case in a plan that also has a weight of 16 bits, which nothing uses: attention of a
/// plan of F32 alone is in f32.
Case beside_f16(Case c);
/// What attention of entered rows in whole numbers adds, on a level that has it: once for each
/// operation that attends, and as often again for what follows it in a layer.
algorithm::Tolerance whole_attention_bound(const Case& c);

/// How far `c` may be off on a level of kernels.
algorithm::Tolerance bound(const Case& c, EnteredRows entered);

/// Random weights and the operations around them.
class CaseBuilder {
 public:
  CaseBuilder(std::string name, std::uint64_t seed)
      : state_(seed * 2654435761u + 88172645463325252u) {
    case_.name = std::move(name);
  }
  /// A matrix of normal numbers times `scale`, encoded in `format`.
  WeightId weight(weights::Format format, std::uint64_t rows, std::uint64_t cols, WeightUse use,
                  float scale = 1.f);
  WeightId vector(std::uint64_t n, float scale = 1.f, float offset = 0.f);
  /// A looked-up table of `cols` columns whose elements are given by token and column.
  WeightId table(std::uint64_t cols,
                 const std::function<float(std::uint64_t token, std::uint64_t col)>& element);
  /// Embeds the tokens: rows of normal numbers times `scale`.
  Tensor embed(std::uint32_t width, float scale = 1.f);
  Tensor project(Tensor in, std::uint32_t width, weights::Format format);
  Tensor tensor(std::uint32_t width);
  void add(Operation operation) { case_.program.operations.push_back(std::move(operation)); }
  Program& program() { return case_.program; }
  /// The case, compared at `site`.
  Case finish(Tensor site, algorithm::Tolerance tolerance);
  /// The same where products with weights in `format` are `exact`, or if it is quantized `int8`.
  Case finish(Tensor site, weights::Format format, algorithm::Tolerance exact,
              algorithm::Tolerance int8);
  Case finish_with_logits(algorithm::Tolerance tolerance);

  static constexpr std::uint64_t kVocabulary = 97;

 private:
  float normal();

  Case case_;
  std::uint64_t state_;
};

Case embed_case(bool positions);
Case norm_case(algorithm::NormKind kind, std::uint32_t group, bool per_group);
Case project_case(weights::Format format, std::uint32_t cols, bool bias, float clamp);
Case rotate_case(const algorithm::RopeSpec& rope, std::uint32_t head_dim, bool inverse);
/// Projects queries, keys and values, stores and attends.
Case attend_case(const algorithm::GqaSpec& spec, const std::string& name);
Case gate_case();
Case mlp_case(algorithm::Activation activation, bool gated, weights::Format format);
Case add_case();
Case head_case(weights::Format format, float softcap);
// The families, each in a file of its own.
std::vector<Case> row_family_cases();
std::vector<Case> expert_family_cases();
std::vector<Case> attention_family_cases();
std::vector<Case> recurrent_family_cases();
/// The same attention over everything as a range and as a list.
std::vector<std::pair<Case, Case>> range_and_list_cases();
std::vector<Case> residual_family_cases();
/// Two whole layers of width 512 with head, all matrices in `format`.
Case decoder_case(weights::Format format);

/// Rows of one sequence in one step.
struct Part {
  std::uint32_t sequence = 0, rows = 0;
  state::TokenClass token_class = state::TokenClass::kEntered;
};
/// Steps; a step's parts name different sequences.
using Schedule = std::vector<std::vector<Part>>;

/// All `tokens` of sequence 0 at once, or cut so that parts have the given sizes in turn.
Schedule one_prefill(std::uint32_t tokens);
Schedule chunks(std::uint32_t tokens, std::vector<std::uint32_t> sizes);
/// Sequence 0 in chunks beside two others that are ahead and behind in the step.
Schedule in_company(std::uint32_t tokens, std::vector<std::uint32_t> sizes);

struct RunOptions {
  Schedule schedule;
  algorithm::RowFormat format = algorithm::RowFormat::kF32;
  std::uint32_t page_size = 16;
  std::uint32_t max_rows = 128;
  /// Token of a sequence at a position; by default spread over the vocabulary.
  std::function<std::int32_t(std::uint32_t sequence, std::uint32_t position)> token;
  std::vector<Observer*> observers;
  /// Called with true before each step runs and with false after.
  std::function<void(bool runs)> around;
  /// The same, with what runs.
  std::function<void(const Executable& executable, bool runs)> look = {};
};

/// What a run left of sequence 0, and how each step's segments ended.
struct Outcome {
  std::vector<float> rows;  ///< [tokens, width] at the case's site
  std::vector<std::vector<SegmentResult>> results;
  std::vector<Placement> placements;
};
Outcome run_case(Backend& backend, const Case& c, const RunOptions& options);

/// The largest excess of `got` over the tolerance of `want`, row by row: "" if none, else where.
std::string compare(std::span<const float> got, std::span<const float> want, std::size_t width,
                    algorithm::Tolerance tolerance);

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

}  // namespace lemma::backend::conformance
