// SPDX-License-Identifier: Apache-2.0
// RouteTrace: which experts a model chose for each token of a text, as a file, so that an expert
// predictor can be judged without the model. `lemma capture --routes` writes one.
//
// All numbers are little-endian; nothing else is in the file (docs/formats.md, "Route traces"):
//
//   bytes  8 "lemroute"
//   u32    version, 1
//   u32    first layer with experts, layers L, experts E, chosen k
//   u32    tokens T
//   u32    look-ahead scores: 0 none, 1 there
//   u32    sequences N
//   u32    [N] index of each sequence's first token: 0 first, ascending
//   u16    [T, L, k] expert ids, in the order of the route
//   f16    [T, L, E] scores, if there: the router of the layer on the normed rows that entered the
//          experts of the layer before it; NaN in the first layer, which has none before it
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "algorithm/ffn/expert_predictor.hpp"

namespace lemma::eval {

struct RouteTrace {
  std::uint32_t first_layer = 0, layers = 0, experts = 0, chosen = 0;
  std::vector<std::uint32_t> starts;  ///< tokens that begin a sequence
  std::vector<std::uint16_t> routes;  ///< [T, L, k]
  std::vector<std::uint16_t> scores;  ///< [T, L, E] as f16, or empty

  std::size_t tokens() const noexcept {
    const std::size_t each = std::size_t{layers} * chosen;
    return each ? routes.size() / each : 0;
  }
  std::span<const std::uint16_t> route(std::size_t token, std::size_t layer) const noexcept {
    return std::span(routes).subspan((token * layers + layer) * chosen, chosen);
  }
  friend bool operator==(const RouteTrace&, const RouteTrace&) = default;
};

/// Throws kBadFile, naming `name` and what is wrong, for bytes that are no trace.
RouteTrace parse_routes(std::span<const std::byte> bytes, std::string_view name);
std::vector<std::byte> serialize(const RouteTrace& trace);

RouteTrace read_routes(const std::filesystem::path& path);
/// Throws kIo.
void write_routes(const RouteTrace& trace, const std::filesystem::path& path);

/// What a predictor would have named, token by token and layer by layer, and what came. `spec`
/// says how its signals count and how many experts it may name; the rest is the trace's.
algorithm::PredictorStatistics replay(const RouteTrace& trace, algorithm::ExpertPredictorSpec spec);

}  // namespace lemma::eval
