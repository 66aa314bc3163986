// SPDX-License-Identifier: Apache-2.0
#include "eval/site_tolerance.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <string_view>
#include <variant>

#include "backend/tensor_arena.hpp"
#include "base/overloaded.hpp"
#include "weights/format.hpp"

namespace lemma::eval {
namespace {

using algorithm::Tolerance;
using base::Overloaded;
namespace tolerance = algorithm::tolerance;

constexpr Tolerance kExact{};

/// What rounding of entered rows adds. Where rows are rounded to int8 as well, that is far less.
Tolerance rounded_project(Rounding rounds) {
  if (rounds.whole) return tolerance::kWholeProject;
  if (!rounds.bf16) return {};
  return rounds.both ? tolerance::kBf16BothProject : tolerance::kBf16Project;
}
Tolerance rounded_mlp(Rounding rounds) {
  if (rounds.whole) return tolerance::kWholeMlp;
  if (!rounds.bf16) return {};
  return rounds.both ? tolerance::kBf16BothMlp : tolerance::kBf16Mlp;
}

/// What attention in whole numbers adds.
Tolerance whole_attention(Rounding rounds) {
  return rounds.whole_attention ? tolerance::kWholeAttend : Tolerance{};
}

/// One operation on equal inputs and state: its output `index`, in the order of backend::outputs.
/// `rounds`: what it does to its activations. Every operation has its own line, so that a new one
/// does not compile without a thought about its rounding.
Tolerance own_tolerance(const backend::Operation& operation, std::size_t index, Rounding rounds) {
  const bool int8 = rounds.int8;
  const Tolerance rounded = rounded_project(rounds), rounded_block = rounded_mlp(rounds);
  const Tolerance attend = tolerance::kAttend + whole_attention(rounds);
  const auto product = [&](std::uint64_t k) {
    return int8 ? tolerance::kInt8Project : tolerance::project(k) + rounded;
  };
  const auto block = [&](const algorithm::MlpSpec& spec) {
    return int8 ? tolerance::kInt8Mlp : tolerance::mlp(spec.width, spec.hidden) + rounded_block;
  };
  const auto streams = [&](const algorithm::HyperConnectionSpec& spec) {
    return tolerance::hyper_connection(spec.state_size()) + rounded;
  };
  return std::visit(
      Overloaded{
          // Decoding rounds nothing; one product and two sums.
          [](const backend::Embed&) { return tolerance::kElementwise; },
          [](const backend::Receive&) { return kExact; },
          [](const backend::Norm&) { return tolerance::kNorm; },
          [&](const backend::Project& op) { return product(op.in.width); },
          [&](const backend::ProjectGroups& op) { return product(op.spec.in); },
          [](const backend::Rotate&) { return tolerance::kRotate; },
          [](const backend::Store&) { return kExact; },  // writes state only, in one format
          [&](const backend::Attend&) { return attend; },
          // Three products in a row where weights are quantized: queries, scores, means.
          [&](const backend::AttendLatent& op) {
            return int8 ? tolerance::kInt8Mlp
                        : tolerance::absorbed(op.spec.latent_rank) + rounded_block +
                              whole_attention(rounds);
          },
          // Entries are pooled by either side for itself, as exactly as a norm.
          [&](const backend::AttendCompressed&) { return attend + tolerance::kNorm; },
          // Whole numbers: the same choice, or a fault (or a tie within rounding).
          [](const backend::Select&) { return kExact; },
          [](const backend::Compress&) { return kExact; },  // writes state only
          // The matrix carries what both sides rounded at earlier tokens; the output norm and the
          // gate follow the reading of it.
          [](const backend::Recur&) {
            return tolerance::kDeltaCells + tolerance::kNorm + tolerance::kElementwise;
          },
          [](const backend::Gate&) { return tolerance::kElementwise; },
          [](const backend::Activate&) { return tolerance::kElementwise; },
          [&](const backend::Mlp& op) { return block(op.spec); },
          [&](const backend::Route&) { return index == 0 ? kExact : tolerance::kRoute; },
          // A mean of blocks by weights that are equal on both sides.
          [&](const backend::Experts& op) { return block(op.spec) + tolerance::kElementwise; },
          [](const backend::Add&) { return tolerance::kElementwise; },
          [](const backend::StreamsEnter&) { return kExact; },  // copies
          [&](const backend::StreamsRead& op) { return streams(op.spec); },
          // Sums of as many terms as there are streams, and one.
          [](const backend::StreamsWrite&) { return tolerance::kElementwise; },
          [&](const backend::StreamsLeave& op) { return streams(op.spec); },
          // Scores by a norm and a product, then a mean, as in attention.
          [](const backend::MixResidual& op) {
            return tolerance::kNorm + tolerance::project(op.spec.width) + tolerance::kAttend;
          },
          [&](const backend::Head& op) {
            return int8 ? tolerance::kInt8Project : tolerance::head(op.in.width) + rounded;
          }},
      operation);
}

/// True where data_bounds.hpp knows what rounded activations do to an operation's very data.
bool has_data_bounds(const backend::Operation& operation) {
  return std::holds_alternative<backend::Project>(operation) ||
         std::holds_alternative<backend::Mlp>(operation);
}

/// What a row carries after `layers` layers on the backend's own rows.
Tolerance inherited(std::uint32_t layers, Rounding rounds, const ToleranceOptions& options) {
  if (options.teacher_forced) return {};
  Tolerance sum = tolerance::hidden(layers);
  const Tolerance block =
      rounds.int8 ? tolerance::kInt8Mlp : rounded_mlp(rounds) + whole_attention(rounds);
  sum = sum + std::sqrt(double(std::max(layers, 1u))) * block;
  switch (options.state) {
    case algorithm::RowFormat::kF32:
      break;
    case algorithm::RowFormat::kF16:
      sum = sum + tolerance::kF16Activations;
      break;
    case algorithm::RowFormat::kBF16:
    case algorithm::RowFormat::kQ8:  // steps of 1/127 of a group's largest: as coarse as bf16
      sum = sum + tolerance::kBF16Activations;
      break;
    case algorithm::RowFormat::kFp8:  // three bits behind the point where bf16 has seven
    case algorithm::RowFormat::kFp4:
      sum = sum + 16.0 * tolerance::kBF16Activations;
      break;
  }
  return sum;
}

/// Looking up a row of a quantized table rounds nothing.
Rounding rounding_of(const backend::Placement& placement, const ToleranceOptions& options) {
  Rounding rounds;
  rounds.int8 = options.int8 && placement.operation != "embed" && is_quantized(placement.format);
  rounds.bf16 = placement.implementation.find("x bf16") != std::string::npos;
  rounds.whole = placement.implementation.find("x int13") != std::string::npos;
  rounds.whole_attention =
      placement.implementation.find("13-bit whole numbers entered") != std::string::npos;
  rounds.both = rounds.bf16 && placement.format != weights::traits(weights::Format::kBF16).name;
  return rounds;
}

/// Splits "layers.3.attention.query".
void split_name(SiteTolerance& site) {
  constexpr std::string_view kPrefix = "layers.";
  site.kind = site.name;
  if (!site.name.starts_with(kPrefix)) return;
  const char* const end = site.name.data() + site.name.size();
  std::uint32_t layer = 0;
  const auto [rest, error] = std::from_chars(site.name.data() + kPrefix.size(), end, layer);
  if (error != std::errc() || rest == end || *rest != '.') return;
  site.layer = layer;
  site.kind.assign(rest + 1, end);
}

}  // namespace

bool is_quantized(const std::string& formats) {
  return std::any_of(weights::kFormats.begin(), weights::kFormats.end(), [&](weights::Format f) {
    const weights::FormatTraits& traits = weights::traits(f);
    return traits.block_elements > 1 && formats.find(traits.name) != std::string::npos;
  });
}

std::vector<SiteTolerance> site_tolerances(const backend::Program& program,
                                           const std::vector<backend::Placement>& placements,
                                           const ToleranceOptions& options) {
  // By the first site that an operation writes; the head writes none.
  std::map<std::string, Rounding> rounds;
  Rounding any_rounds;
  for (const backend::Placement& placement : placements) {
    const Rounding does = rounding_of(placement, options);
    rounds[placement.site] = rounds[placement.site] | does;
    any_rounds = any_rounds | does;
  }

  const auto limit_rms = [&](SiteTolerance& site) {
    if (any_rounds && !options.teacher_forced) site.rms_limit = site.tolerance.absolute_of_max / 2;
  };

  std::vector<SiteTolerance> sites(program.tensors.size() + 1);
  std::uint32_t layers = 0;
  for (const backend::Operation& operation : program.operations) {
    const std::vector<backend::Tensor> outputs = backend::outputs(operation);
    if (outputs.empty()) continue;
    const std::string& first = program.tensors[std::size_t(outputs[0].id)].name;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const backend::Tensor output = outputs[i];
      SiteTolerance& site = sites[std::size_t(output.id)];
      site.name = program.tensors[std::size_t(output.id)].name;
      split_name(site);
      if (site.layer) layers = *site.layer + 1;
      site.operation = backend::operation_name(operation);
      site.rounds = rounds[first];
      const bool bounded = options.teacher_forced && has_data_bounds(operation);
      site.tolerance = own_tolerance(operation, i, bounded ? Rounding{} : site.rounds) +
                       inherited(layers, any_rounds, options);
      limit_rms(site);
    }
  }

  SiteTolerance& logits = sites.back();
  logits.name = logits.kind = "logits";
  logits.operation = "head";
  for (const backend::Operation& operation : program.operations) {
    if (!std::holds_alternative<backend::Head>(operation)) continue;
    logits.tolerance = own_tolerance(operation, 0, rounds[""]);
    // The final norm and the head carry the hidden state's error on, as tolerance::logits says.
    logits.tolerance = logits.tolerance + 2.0 * inherited(layers, any_rounds, options);
    limit_rms(logits);
  }
  return sites;
}

}  // namespace lemma::eval
