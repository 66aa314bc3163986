// SPDX-License-Identifier: Apache-2.0
#include "model/arch/parts.hpp"

#include <cmath>

#include "base/raise.hpp"

namespace lemma::model::arch {
namespace {

using algorithm::NormKind;
using algorithm::RopeLayout;
using algorithm::RopePlacement;
using base::raise;

constexpr std::uint32_t kMaxDimension = 1u << 24;

// The norms of both latents keep this eps in the published models, whatever the layer has.
constexpr float kLatentEps = 1e-6f;

Norm latent_norm(const Reader& reader, std::uint32_t layer, const char* stem) {
  Norm norm = reader.norm(layer, stem, NormKind::kRms);
  norm.spec.eps = kLatentEps;
  return norm;
}

// Width of an expanded key or value: its own key, or the one of attention in general.
std::uint32_t expanded(const Reader& reader, std::string_view suffix, std::uint32_t fallback) {
  return reader.metadata().has(reader.key(suffix)) ? positive(reader, suffix) : fallback;
}

void read_expansion(const Reader& reader, std::uint32_t layer, Mla& mla) {
  const std::string key_half = Reader::block(layer, "attn_k_b.weight");
  if (reader.has_tensor(key_half)) {
    mla.key_up.tensor = key_half;
    mla.key_up_transposed = true;
    mla.value_up.tensor = Reader::block(layer, "attn_v_b.weight");
    return;
  }
  // Older files hold both halves in one matrix, [dn | dv] rows for each head.
  const std::string both = Reader::block(layer, "attn_kv_b.weight");
  const std::uint64_t nope = mla.spec.nope_dim, group = nope + mla.spec.value_dim;
  mla.key_up = {both, View::strided_rows(group, 0, nope)};
  mla.value_up = {both, View::strided_rows(group, nope, group)};
}

}  // namespace

std::uint32_t positive(const Reader& reader, std::string_view suffix) {
  const std::string key = reader.key(suffix);
  const std::uint32_t value = reader.metadata().u32(key);
  if (value == 0 || value > kMaxDimension)
    raise(ErrorKind::kBadFile, "key '{}': expected 1 to {}, found {}", key, kMaxDimension, value);
  return value;
}

Mla latent_attention(const Reader& reader, std::uint32_t layer) {
  Mla mla;
  algorithm::MlaSpec& spec = mla.spec;
  const std::uint32_t head = expanded(reader, "attention.key_length_mla", reader.head_dim());
  spec.heads = reader.heads(layer);
  spec.latent_rank = positive(reader, "attention.kv_lora_rank");
  if (reader.metadata().has(reader.key("rope.dimension_count")))
    spec.rope_dim = positive(reader, "rope.dimension_count");
  if (spec.rope_dim > head)
    raise(ErrorKind::kBadFile, "key '{}': expected at most the {} dims of a head, found {}",
          reader.key("rope.dimension_count"), head, spec.rope_dim);
  spec.nope_dim = head - spec.rope_dim;
  spec.value_dim = expanded(reader, "attention.value_length_mla", reader.value_dim());
  spec.scale = 1.f / std::sqrt(static_cast<float>(head));
  spec.latent_eps = kLatentEps;
  spec.use_rope = false;

  reader.key("attention.q_lora_rank");
  if (reader.has_tensor(Reader::block(layer, "attn_q.weight"))) {
    mla.query = reader.linear(layer, "attn_q");
  } else {
    spec.q_rank = positive(reader, "attention.q_lora_rank");
    mla.query_down = reader.linear(layer, "attn_q_a");
    mla.query_norm = latent_norm(reader, layer, "attn_q_a_norm");
    mla.query = reader.linear(layer, "attn_q_b");
  }
  const std::uint64_t rank = spec.latent_rank;
  mla.latent = reader.linear_rows(layer, "attn_kv_a_mqa", 0, rank);
  if (spec.rope_dim > 0)
    mla.rope_key = reader.linear_rows(layer, "attn_kv_a_mqa", rank, rank + spec.rope_dim);
  mla.latent_norm = latent_norm(reader, layer, "attn_kv_a_norm");
  read_expansion(reader, layer, mla);
  mla.output = reader.linear(layer, "attn_output");
  return mla;
}

LatentRope latent_rope(const Reader& reader, bool unit_magnitude) {
  LatentRope latent{.rope = reader.rope(RopeLayout::kInterleaved)};
  latent.rope.placement = RopePlacement::kSuffix;
  if (const std::string key = reader.key("rope.scaling.attn_factor");
      reader.scale("rope.scaling.attn_factor", 1.f) != 1.f)
    raise(ErrorKind::kUnsupported, "key '{}': expected 1 or none with latent attention", key);
  const auto* yarn = std::get_if<algorithm::YarnScaling>(&latent.rope.scaling);
  const float stored = reader.scale("rope.scaling.yarn_log_multiplier", 0.f);
  if (!yarn || stored == 0.f) return latent;
  // Files store a tenth of the multiplier for all dims.
  const float all_dims = algorithm::yarn_magnitude(yarn->factor, 10.f * stored);
  latent.score_factor = all_dims * all_dims;
  latent.rope.attention_factor =
      unit_magnitude ? 1.f : algorithm::yarn_magnitude(yarn->factor, 1.f) / all_dims;
  return latent;
}

void turn(Mla& mla, const LatentRope& rope) {
  mla.rope = rope.rope;
  mla.spec.use_rope = true;
  mla.spec.scale *= rope.score_factor;
}

algorithm::Activation gelu_kind(const Reader& reader) {
  const std::string key = reader.key("feed_forward_activation");
  const std::string name = reader.metadata().string_or(key, "gelu_tanh");
  if (name == "gelu_erf") return algorithm::Activation::kGeluErf;
  if (name == "gelu_tanh") return algorithm::Activation::kGeluTanh;
  raise(ErrorKind::kUnsupported, "key '{}': expected gelu_erf or gelu_tanh, found '{}'", key, name);
}

Temperature temperature(const Reader& reader) {
  Temperature found;
  found.scale = reader.scale("attention.temperature_scale", 0.f);
  // It rises once per original context; a file may state another length.
  const std::uint32_t length =
      reader.metadata().u32_or(reader.key("attention.temperature_length"), 0);
  if (found.scale != 0.f) found.floor = length ? length : reader.original_context();
  return found;
}

algorithm::IndexerSpec indexer_spec(const Reader& reader) {
  algorithm::IndexerSpec spec;
  spec.heads = positive(reader, "attention.indexer.head_count");
  spec.dim = positive(reader, "attention.indexer.key_length");
  spec.top_k = positive(reader, "attention.indexer.top_k");
  spec.rope_dim = positive(reader, "rope.dimension_count");
  return spec;
}

std::vector<float> limits(const Reader& reader, std::string_view suffix, float fallback) {
  const std::string key = reader.key(suffix);
  const weights::Value* value = reader.metadata().find(key);
  const std::size_t blocks = std::size_t{reader.layers()} + reader.drafts();
  if (!value) return std::vector<float>(blocks, fallback);
  if (std::holds_alternative<double>(value->data))
    return std::vector<float>(blocks, reader.metadata().f32(key));
  std::vector<float> found = reader.metadata().floats(key);
  if (found.size() < reader.layers())
    raise(ErrorKind::kBadFile, "key '{}': expected {} numbers, one for each layer, found {}", key,
          reader.layers(), found.size());
  const float last = found.back();
  found.resize(blocks, last);
  return found;
}

}  // namespace lemma::model::arch
