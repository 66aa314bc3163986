// SPDX-License-Identifier: Apache-2.0
#include "model/arch/kda.hpp"

#include <string>

#include "model/arch/parts.hpp"

namespace lemma::model::arch {

algorithm::KdaSpec kda_spec(const Reader& reader, std::uint32_t layer) {
  algorithm::KdaSpec spec;
  spec.heads = reader.heads(layer);
  spec.dim = positive(reader, "kda.head_dim");
  spec.kernel = positive(reader, "ssm.conv_kernel");
  spec.norm_eps = reader.epsilon(algorithm::NormKind::kRms);
  spec.lower_bound = reader.metadata().f32_or(reader.key("kda.gate_lower_bound"), 0.f);
  return spec;
}

Kda kimi_delta(const Reader& reader, std::uint32_t layer, const algorithm::KdaSpec& spec) {
  Kda kda{.spec = spec};
  for (const char* part : {"q", "k", "v"}) {
    kda.channels.push_back(reader.linear(layer, std::string("attn_") + part));
    kda.convolutions.push_back(
        {Reader::block(layer, std::string("ssm_conv1d_") + part + ".weight")});
  }
  // Decay and gate pass a bottleneck where the file has a second half for them.
  const auto through = [&](const std::string& stem, Linear& down, Linear& up) {
    up = reader.linear(layer, stem + "_a");
    if (!reader.has_tensor(Reader::block(layer, stem + "_b.weight"))) return;
    down = up;
    up = reader.linear(layer, stem + "_b");
  };
  through("ssm_f", kda.forget_down, kda.forget);
  through("ssm_g", kda.gate_down, kda.gate);
  kda.beta = reader.linear(layer, "ssm_beta");
  kda.rate.tensor = Reader::block(layer, "ssm_a");
  kda.dt_bias.tensor = Reader::block(layer, "ssm_dt.bias");
  kda.norm.tensor = Reader::block(layer, "ssm_norm.weight");
  kda.output = reader.linear(layer, "attn_output");
  return kda;
}

}  // namespace lemma::model::arch
