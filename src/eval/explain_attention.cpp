// SPDX-License-Identifier: Apache-2.0
#include "eval/explain_attention.hpp"

#include <algorithm>

#include "algorithm/attention/lists.hpp"
#include "algorithm/attention/mla.hpp"
#include "algorithm/row_formats.hpp"
#include "base/check.hpp"
#include "runtime/steering.hpp"
#include "weights/view.hpp"

namespace lemma::eval {
namespace {

backend::Tensor stored_in(const backend::Program& program, backend::SlotId slot) {
  for (const backend::Operation& operation : program.operations)
    if (const auto* store = std::get_if<backend::Store>(&operation); store && store->slot == slot)
      return store->in;
  return {};
}

AttentionSite describe(const backend::Program& program, const backend::Attend& op) {
  return {.heads = op.spec.query_heads,
          .query = op.query,
          .key = stored_in(program, op.key),
          .selection = op.selection};
}
AttentionSite describe(const backend::Program& program, const backend::AttendLatent& op) {
  return {.heads = op.spec.heads,
          .query = op.query,
          .key = stored_in(program, op.latent),
          .rope = op.rope >= 0 ? stored_in(program, op.rope) : backend::Tensor{},
          .selection = op.selection};
}
AttentionSite describe(const backend::Program&, const backend::AttendCompressed& op) {
  return {.heads = op.spec.heads,
          .selection = op.selection,
          .hidden = "a window of rows and compressed entries, which stand at no site"};
}
AttentionSite describe(const backend::Program&, const backend::Recur&) {
  return {.hidden = "a recurrent state of fixed size, not single tokens"};
}

const std::string& output_site(const backend::Program& program, const backend::Tensor out) {
  return program.tensors[std::size_t(out.id)].name;
}

/// The mixers that look along the tokens, each with its layer.
std::vector<const model::Mixer*> token_mixers(const model::Plan& plan) {
  std::vector<const model::Mixer*> mixers;
  for (const model::Layer& layer : plan.layers)
    for (const model::Site& site : layer.sites)
      if (model::looks_along_tokens(site.mixer)) mixers.push_back(&site.mixer);
  return mixers;
}

/// `rows` [T, width] as a slot of the state holds them.
std::vector<float> as_stored(const state::SlotPlace& place, std::span<const float> rows) {
  const std::size_t width = place.slot.width;
  std::vector<float> stored(rows.begin(), rows.end());
  std::vector<std::byte> bytes(place.row_bytes);
  for (std::size_t at = 0; at < stored.size(); at += width) {
    const std::span<float> row = std::span(stored).subspan(at, width);
    // A row that does not fit the format has failed the step already.
    if (algorithm::encode_row(place.format, place.slot.group, row, bytes.data(), place.slot.tail))
      algorithm::decode_row(place.format, place.slot.group, width, bytes.data(), 0, row,
                            place.slot.tail);
  }
  return stored;
}

}  // namespace

std::vector<AttentionSite> attention_sites(const runtime::LoadedModel& model) {
  const backend::Program& program = model.program();
  const auto mixers = token_mixers(model.plan());
  std::vector<AttentionSite> sites;
  for (std::size_t i = 0; i < program.operations.size(); ++i) {
    std::visit(
        [&](const auto& op) {
          if constexpr (requires { describe(program, op); }) {
            AttentionSite site = describe(program, op);
            const std::string& name = output_site(program, op.out);
            site.name = name.substr(0, name.rfind('.'));
            const auto place = runtime::layer_site(name);
            LEMMA_CHECK(place && sites.size() < mixers.size());
            site.layer = place->layer;
            site.operation = i;
            site.mixer = mixers[sites.size()];
            sites.push_back(std::move(site));
          }
        },
        program.operations[i]);
  }
  return sites;
}

AttentionWeights::AttentionWeights(const runtime::LoadedModel& model, const state::Layout& layout,
                                   const AttentionSite& site, const SiteRows& rows)
    : site_(site), rows_(rows) {
  LEMMA_CHECK(site.hidden.empty());
  tokens_ = static_cast<std::uint32_t>(rows.rows(site.query.id).size() / site.query.width);
  one_.resize(2 * std::size_t{tokens_});
  one_[tokens_] = 1.f;
  const backend::Operation& operation = model.program().operations[site.operation];
  if (const auto* attend = std::get_if<backend::Attend>(&operation)) {
    spec_ = attend->spec;
    lists_ = spec_.kv_heads;
    const auto& sinks = std::get<model::Gqa>(*site.mixer).sinks;
    if (spec_.sinks)
      sinks_ = weights::to_f32(weights::bind(model.checkpoint(), sinks, 1, spec_.query_heads));
    if (spec_.alibi_max_bias != 0.f)
      slopes_ = algorithm::alibi_slopes(spec_.query_heads, spec_.alibi_max_bias);
    keys_ = as_stored(layout.slots()[std::size_t(attend->key)], rows.rows(site.key.id));
  } else {
    load_latents(model, layout, rows);
  }
}

void AttentionWeights::load_latents(const runtime::LoadedModel& model, const state::Layout& layout,
                                    const SiteRows& rows) {
  const auto& mixer = std::get<model::Mla>(*site_.mixer);
  const algorithm::MlaSpec& spec = mixer.spec;
  const auto& op = std::get<backend::AttendLatent>(model.program().operations[site_.operation]);
  spec_.query_heads = spec_.kv_heads = spec.heads;
  spec_.head_dim = spec.query_dim();
  spec_.scale = spec.scale;
  spec_.temperature_scale = spec.temperature_scale;
  spec_.temperature_floor = spec.temperature_floor;

  const std::size_t heads = spec.heads, rank = spec.latent_rank, nope = spec.nope_dim;
  std::vector<float> up;  // [H * dn, c]
  if (nope > 0 && !mixer.key_up_transposed) {
    up = weights::to_f32(weights::bind(model.checkpoint(), mixer.key_up, heads * nope, rank));
  } else if (nope > 0) {
    const auto stored =
        weights::to_f32(weights::bind(model.checkpoint(), mixer.key_up, heads * rank, nope));
    up.resize(stored.size());
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t c = 0; c < rank; ++c)
        for (std::size_t d = 0; d < nope; ++d)
          up[(h * nope + d) * rank + c] = stored[(h * rank + c) * nope + d];
  }
  const auto latents = as_stored(layout.slots()[std::size_t(op.latent)], rows.rows(site_.key.id));
  std::vector<float> turned;
  if (spec.rope_dim > 0)
    turned = as_stored(layout.slots()[std::size_t(op.rope)], rows.rows(site_.rope.id));

  keys_.resize(std::size_t{tokens_} * heads * spec_.head_dim);
  for (std::size_t t = 0; t < tokens_; ++t)
    for (std::size_t h = 0; h < heads; ++h) {
      const algorithm::MlaHead head{std::span(up).subspan(h * nope * rank, nope * rank), {}};
      algorithm::expand_latent(
          spec, head, std::span(latents).subspan(t * rank, rank),
          std::span(turned).subspan(t * spec.rope_dim, spec.rope_dim),
          std::span(keys_).subspan((t * heads + h) * spec_.head_dim, spec_.head_dim), {});
    }
}

// A list is its length and then its indices (backend.hpp, Select).
std::vector<std::uint32_t> AttentionWeights::selected(std::uint32_t head,
                                                      std::uint32_t position) const {
  const std::size_t stride = site_.selection.width / lists_;
  const std::size_t list = lists_ == 1 ? 0 : spec_.kv_head(head);
  const auto row = rows_.row(site_.selection.id, position).subspan(list * stride, stride);
  std::vector<std::uint32_t> indices;
  for (std::size_t i = 0; i < std::size_t(row[0]); ++i)
    indices.push_back(static_cast<std::uint32_t>(row[1 + i]));
  return indices;
}

std::vector<float> AttentionWeights::of(std::uint32_t head, std::uint32_t position) {
  const std::size_t d = spec_.head_dim, stride = d * spec_.kv_heads;
  const algorithm::RowReader key = [&](std::uint32_t j) {
    return std::span<const float>(keys_).subspan(j * stride + spec_.kv_head(head) * d, d);
  };
  const algorithm::VisibleRange range =
      algorithm::visible_range(position, spec_.window, spec_.causal ? 0 : tokens_);
  algorithm::GqaSpec spec = spec_;
  spec.value_dim = range.end;
  const algorithm::RowReader identity = [&](std::uint32_t j) {
    return std::span<const float>(one_).subspan(tokens_ - j, spec.value_dim);
  };
  const auto query = rows_.row(site_.query.id, position).subspan(head * d, d);
  const float* const sink = sinks_.empty() ? nullptr : &sinks_[head];
  std::vector<float> weights(spec.value_dim);
  if (site_.selection) {
    const auto indices = selected(head, position);
    const algorithm::RowSource source{indices, key, identity};
    algorithm::attend_lists(spec, query, position, {&source, 1}, sink, weights);
  } else {
    algorithm::attend(spec, query, position, range, key, identity, sink,
                      slopes_.empty() ? 0.f : slopes_[head], weights);
  }
  weights.resize(tokens_);
  return weights;
}

}  // namespace lemma::eval
