// SPDX-License-Identifier: Apache-2.0
// Qwen 3 Next and Qwen 3.5 (dense and with experts): three of four layers are Gated DeltaNet, the
// fourth is attention with normed heads, a partial split-half rotation and an output gate, whose
// projection stands beside each head's query. Qwen 3 Next keeps value heads beside the key head
// that they read; files of Qwen 3.5 have them reordered, so that head h reads h modulo the key
// heads. The norm before the feed-forward block is called post_attention_norm. A block
// behind the last layer drafts; it attends.
#include <optional>

#include "base/raise.hpp"
#include "model/arch/parts.hpp"

namespace lemma::model::arch {
namespace {

using algorithm::Activation;
using algorithm::GatedDeltaNetSpec;
using algorithm::KeyHeads;
using algorithm::NormKind;
using algorithm::RopeLayout;
using algorithm::RouteScore;
using base::raise;

/// Every so many layers attention takes the place of the recurrence, where files do not say.
constexpr std::uint32_t kInterval = 4;

GatedDeltaNetSpec net_spec(const Reader& reader, KeyHeads mapping) {
  GatedDeltaNetSpec spec;
  spec.key_heads = positive(reader, "ssm.group_count");
  spec.value_heads = positive(reader, "ssm.time_step_rank");
  spec.key_dim = positive(reader, "ssm.state_size");
  spec.kernel = positive(reader, "ssm.conv_kernel");
  spec.mapping = mapping;
  spec.norm_eps = reader.epsilon(NormKind::kRms);
  const std::uint32_t inner = positive(reader, "ssm.inner_size");
  if (inner % spec.value_heads != 0)
    raise(ErrorKind::kBadFile, "key '{}': expected a multiple of the {} value heads, found {}",
          reader.key("ssm.inner_size"), spec.value_heads, inner);
  spec.value_dim = inner / spec.value_heads;
  if (spec.value_heads % spec.key_heads != 0)
    raise(ErrorKind::kBadFile, "key '{}': expected a divisor of the {} value heads, found {}",
          reader.key("ssm.group_count"), spec.value_heads, spec.key_heads);
  return spec;
}

// Rows [begin, end) of each group of `stride` rows of a matrix without bias.
Linear group_rows(std::uint32_t layer, const char* stem, std::uint64_t stride, std::uint64_t begin,
                  std::uint64_t end) {
  return {
      .weight = {Reader::block(layer, stem) + ".weight", View::strided_rows(stride, begin, end)}};
}

// The projections in front of the convolution and the gate, and the convolution's rows for each.
void read_channels(const Reader& reader, std::uint32_t layer, GatedDeltaNet& net) {
  const GatedDeltaNetSpec& spec = net.spec;
  const std::string convolution = Reader::block(layer, "ssm_conv1d.weight");
  if (reader.has_tensor(Reader::block(layer, "attn_qkv.weight"))) {
    net.channels = {reader.linear(layer, "attn_qkv")};
    net.convolutions = {{convolution}};
    net.gate = reader.linear(layer, "attn_gate");
    return;
  }
  // Older files keep one matrix with the rows [q | k | v | z] of each key head.
  const std::uint64_t key = spec.key_dim;
  const std::uint64_t value = std::uint64_t{spec.value_heads} / spec.key_heads * spec.value_dim;
  const std::uint64_t ends[] = {key, 2 * key, 2 * key + value, 2 * (key + value)};
  for (std::size_t part = 0; part < 3; ++part) {
    const std::uint64_t begin = part ? ends[part - 1] : 0;
    net.channels.push_back(group_rows(layer, "ssm_in", ends[3], begin, ends[part]));
    net.convolutions.push_back(
        {convolution, View::rows(begin * spec.key_heads, ends[part] * spec.key_heads)});
  }
  net.gate = group_rows(layer, "ssm_in", ends[3], ends[2], ends[3]);
}

GatedDeltaNet recurrence(const Reader& reader, std::uint32_t layer, const GatedDeltaNetSpec& spec) {
  GatedDeltaNet net{.spec = spec};
  const std::uint64_t ratio = spec.value_heads / spec.key_heads;
  read_channels(reader, layer, net);
  if (reader.has_tensor(Reader::block(layer, "ssm_ba.weight"))) {
    net.beta = group_rows(layer, "ssm_ba", 2 * ratio, 0, ratio);
    net.alpha = group_rows(layer, "ssm_ba", 2 * ratio, ratio, 2 * ratio);
  } else {
    net.beta = reader.linear(layer, "ssm_beta");
    net.alpha = reader.linear(layer, "ssm_alpha");
  }
  net.rate.tensor = Reader::block(layer, "ssm_a");
  net.dt_bias.tensor = Reader::block(layer, "ssm_dt.bias");
  net.norm.tensor = Reader::block(layer, "ssm_norm.weight");
  net.output = reader.linear(layer, "ssm_out");
  return net;
}

Gqa attention(const Reader& reader, std::uint32_t layer, const algorithm::RopeSpec& rope) {
  Gqa gqa = reader.gqa(layer);
  const std::uint64_t head = reader.head_dim();
  gqa.query = group_rows(layer, "attn_q", 2 * head, 0, head);
  gqa.gate = group_rows(layer, "attn_q", 2 * head, head, 2 * head);
  gqa.qk_norm = reader.qk_norm(layer, NormKind::kRms, QkNorm::Extent::kPerHead);
  gqa.rope = rope;
  return gqa;
}

// Sections of dims for time, height and width, taken in turns. Text has one position for all.
void read_sections(const Reader& reader, algorithm::RopeSpec& rope) {
  const std::string key = reader.key("rope.dimension_sections");
  if (!reader.metadata().has(key)) return;
  const std::vector<std::uint32_t> sections = reader.metadata().u32s(key);
  if (sections.size() < rope.sections.size() ||
      (sections.size() > rope.sections.size() && sections[rope.sections.size()] != 0))
    raise(ErrorKind::kUnsupported, "key '{}': expected sections for three axes, found {} numbers",
          key, sections.size());
  for (std::size_t axis = 0; axis < rope.sections.size(); ++axis)
    rope.sections[axis] = sections[axis];
  rope.interleaved_sections = true;
}

Plan hybrid(const Reader& reader, KeyHeads mapping) {
  Plan plan = reader.base_plan(NormKind::kRms);
  algorithm::RopeSpec rope = reader.rope(RopeLayout::kSplitHalf);
  read_sections(reader, rope);
  const GatedDeltaNetSpec spec = net_spec(reader, mapping);
  const algorithm::RoutingSpec routing = reader.routing(RouteScore::kSoftmax, true);
  const std::uint32_t interval = reader.metadata().has(reader.key("full_attention_interval"))
                                     ? positive(reader, "full_attention_interval")
                                     : kInterval;
  const auto layer = [&](std::uint32_t i) {
    const bool attends = (i + 1) % interval == 0 || i >= reader.layers();
    Mixer mixer = attends ? Mixer(attention(reader, i, rope)) : Mixer(recurrence(reader, i, spec));
    return reader.pre_norm(i, NormKind::kRms, std::move(mixer),
                           reader.ffn(i, {.kind = Activation::kSilu}, routing),
                           "post_attention_norm");
  };
  for (std::uint32_t i = 0; i < reader.layers(); ++i) plan.layers.push_back(layer(i));
  reader.add_drafts(plan, layer);
  return plan;
}

}  // namespace

Plan qwen3next(const Reader& reader) {
  return hybrid(reader, KeyHeads::kGrouped);
}

Plan qwen35(const Reader& reader) {
  return hybrid(reader, KeyHeads::kTiled);
}

}  // namespace lemma::model::arch
