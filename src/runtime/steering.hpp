// SPDX-License-Identifier: Apache-2.0
// Steering: vectors that are added to the rows of sites while the model runs. A steering file is a
// safetensors file of F32 vectors. A tensor is named after a site of a layer's attention or
// feed-forward ("layers.3.ffn.output"), or after a layer ("layers.3") and then meant for the
// branches of all its sites: what these add to the stream. Vectors of attention sites count with
// one factor, those of feed-forward sites with another.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.hpp"
#include "lemma/engine.hpp"

namespace lemma::runtime {

/// A site's place in the layers.
struct LayerSite {
  std::uint32_t layer = 0;
  bool attention = false;  ///< else feed-forward
};
/// The place that a site's name says, or nothing ("embedding", "final_norm").
std::optional<LayerSite> layer_site(std::string_view name);

/// The tensors that the layers' mixers add to the stream, one for each of their sites, in order.
std::vector<std::int32_t> branches(const backend::Program& program);

/// True where a tensor holds whole numbers that choose something (experts, selected keys).
bool is_discrete(const backend::Program& program, std::int32_t tensor);

/// Adds factor * vector to each row of its sites.
class SteeringObserver final : public backend::Observer {
 public:
  /// Reads the file. Throws kNotFound, kIo and kBadFile for the file, kUsage for factors that are
  /// not finite or have nothing to act on, and kUsage naming site and width where the file does not
  /// fit the program.
  SteeringObserver(const Steering& steering, const backend::Program& program);

  bool wants(const backend::Program::Site& site) override;
  void observe(std::int32_t tensor, const backend::Program::Site& site, const backend::Step& step,
               std::span<float> rows) override;

 private:
  void add(const backend::Program& program, std::int32_t tensor, float factor,
           std::span<const float> vector, const std::string& from);

  const backend::Program& program_;
  std::vector<std::vector<float>> added_;  ///< by tensor: factor * vector; mostly empty
};

}  // namespace lemma::runtime
