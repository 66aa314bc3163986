// SPDX-License-Identifier: Apache-2.0
#include "model/plan.hpp"

#include <cmath>
#include <string>

#include "base/raise.hpp"

namespace lemma::model {
namespace {

using base::raise;

template <typename... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <typename... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

void require(bool condition, const char* what) {
  if (!condition) raise(ErrorKind::kUnsupported, "{}", what);
}

void validate(const Norm& norm) {
  norm.spec.validate();
}

void validate(const Gqa& gqa) {
  gqa.spec.validate();
  require(gqa.query && gqa.key && gqa.value && gqa.output,
          "query, key, value and output projections are required");
  require(!gqa.spec.sinks || gqa.sinks, "sinks are asked for, but no tensor is named");
  require(std::isfinite(gqa.clamp) && gqa.clamp >= 0.f, "clamp must be finite and not negative");
  if (gqa.rope) gqa.rope->validate(gqa.spec.head_dim);
  if (gqa.qk_norm) {
    validate(gqa.qk_norm->query);
    validate(gqa.qk_norm->key);
  }
}

void validate(const DenseMlp& mlp, std::uint32_t width) {
  mlp.spec.validate();
  require(mlp.spec.width == width, "the feed-forward block's width differs from the model's");
  require(mlp.up && mlp.down, "up and down projections are required");
  require(mlp.spec.gated == static_cast<bool>(mlp.gate),
          "a gate projection is required in a gated block, and only there");
}

void validate(const Site& site, const Site* previous, bool side_by_side, std::uint32_t width) {
  if (site.norm) validate(*site.norm);
  if (site.branch_norm) validate(*site.branch_norm);
  if (site.sum_norm) validate(*site.sum_norm);
  require(std::isfinite(site.scale), "the site's scale is not finite");
  require(!site.shares_norm || (previous && !site.norm && side_by_side),
          "a shared norm needs a site beside it that has one");
  require(!site.sum_norm || !side_by_side, "a norm after the sum needs sites one after the other");
  std::visit(Overloaded{[](const Gqa& gqa) { validate(gqa); },
                        [&](const DenseMlp& mlp) { validate(mlp, width); }},
             site.mixer);
}

}  // namespace

const char* mixer_name(const Mixer& mixer) noexcept {
  return std::visit(
      Overloaded{[](const Gqa&) { return "gqa"; }, [](const DenseMlp&) { return "dense_mlp"; }},
      mixer);
}

void Plan::validate() const {
  if (width == 0 || vocabulary == 0 || context == 0 || layers.empty())
    raise(ErrorKind::kUnsupported,
          "plan of '{}': width {}, vocabulary {}, context {} and {} layers; all must be positive",
          architecture, width, vocabulary, context, layers.size());
  require(static_cast<bool>(embedding.table), "the plan names no embedding table");
  if (!std::isfinite(embedding.scale) || !std::isfinite(head.scale) || !(head.softcap >= 0.f))
    raise(ErrorKind::kUnsupported,
          "plan of '{}': embedding scale {}, head scale {}, soft-cap {}; "
          "all must be finite and the soft-cap not negative",
          architecture, embedding.scale, head.scale, head.softcap);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Layer& layer = layers[i];
    for (std::size_t s = 0; s < layer.sites.size(); ++s) {
      try {
        model::validate(layer.sites[s], s ? &layer.sites[s - 1] : nullptr, layer.side_by_side,
                        width);
      } catch (const Error& error) {
        throw error.within("layer " + std::to_string(i) + ", " + mixer_name(layer.sites[s].mixer));
      }
    }
  }
}

}  // namespace lemma::model
