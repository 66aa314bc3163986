// SPDX-License-Identifier: Apache-2.0
#include "eval/route_trace.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include "base/half.hpp"
#include "base/mapped_file.hpp"
#include "base/raise.hpp"

namespace lemma::eval {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read as they lie");

constexpr std::string_view kMagic = "lemroute";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kNumbers = 8;  ///< u32 behind the magic
constexpr std::size_t kHeader = 8 + 4 * kNumbers;
/// So that no product below leaves 64 bits: 2^16 experts, 2^12 layers, 2^32 tokens.
constexpr std::uint32_t kMostLayers = 4096, kMostExperts = 65536;

void check_header(const RouteTrace& trace, std::uint32_t tokens, std::uint32_t sequences,
                  std::string_view name) {
  const auto refuse = [&](std::string_view what, std::uint32_t low, std::uint32_t high,
                          std::uint32_t found) {
    if (found < low || found > high)
      base::raise(ErrorKind::kBadFile, "{}: {}: expected {} to {}, found {}", name, what, low, high,
                  found);
  };
  refuse("layers", 1, kMostLayers, trace.layers);
  refuse("first layer", 0, kMostLayers, trace.first_layer);
  refuse("experts", 1, kMostExperts, trace.experts);
  refuse("chosen experts", 1, trace.experts, trace.chosen);
  refuse("sequences", tokens > 0 ? 1 : 0, tokens, sequences);
}

void check_contents(const RouteTrace& trace, std::size_t tokens, std::string_view name) {
  for (std::size_t i = 0; i < trace.starts.size(); ++i) {
    const bool first = i == 0;
    if (first ? trace.starts[i] != 0
              : trace.starts[i] <= trace.starts[i - 1] || trace.starts[i] >= tokens)
      base::raise(ErrorKind::kBadFile, "{}: sequence {} begins at token {} of {}", name, i,
                  trace.starts[i], tokens);
  }
  std::vector<std::size_t> seen(trace.experts, std::numeric_limits<std::size_t>::max());
  for (std::size_t at = 0; at < tokens * trace.layers; ++at) {
    for (const std::uint16_t expert : trace.route(at / trace.layers, at % trace.layers)) {
      if (expert >= trace.experts || seen[expert] == at)
        base::raise(ErrorKind::kBadFile, "{}: token {}, layer {}: expert {} of {}{}", name,
                    at / trace.layers, at % trace.layers, expert, trace.experts,
                    expert < trace.experts ? " twice" : "");
      seen[expert] = at;
    }
  }
}

template <typename T>
std::vector<T> take(std::span<const std::byte>& bytes, std::size_t count) {
  std::vector<T> values(count);
  if (count > 0) std::memcpy(values.data(), bytes.data(), count * sizeof(T));
  bytes = bytes.subspan(count * sizeof(T));
  return values;
}

/// Puts `values` at `to` and returns what lies behind them.
template <typename T>
std::byte* put(std::byte* to, const std::vector<T>& values) {
  if (!values.empty()) std::memcpy(to, values.data(), values.size() * sizeof(T));
  return to + values.size() * sizeof(T);
}

}  // namespace

RouteTrace parse_routes(std::span<const std::byte> bytes, std::string_view name) {
  if (bytes.size() < kHeader || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    base::raise(ErrorKind::kBadFile, "{}: is no route trace: it does not begin with '{}'", name,
                kMagic);
  std::span<const std::byte> rest = bytes.subspan(kMagic.size());
  const std::vector<std::uint32_t> head = take<std::uint32_t>(rest, kNumbers);
  if (head[0] != kVersion)
    base::raise(ErrorKind::kBadFile, "{}: version: expected {}, found {}", name, kVersion, head[0]);
  RouteTrace trace{
      .first_layer = head[1], .layers = head[2], .experts = head[3], .chosen = head[4]};
  const std::uint32_t tokens = head[5], scored = head[6], sequences = head[7];
  check_header(trace, tokens, sequences, name);
  if (scored > 1)
    base::raise(ErrorKind::kBadFile, "{}: look-ahead scores: expected 0 or 1, found {}", name,
                scored);
  const std::uint64_t each = std::uint64_t{tokens} * trace.layers;
  const std::uint64_t wanted = 4 * std::uint64_t{sequences} + 2 * each * trace.chosen +
                               2 * each * (scored ? trace.experts : 0);
  if (rest.size() != wanted)
    base::raise(ErrorKind::kBadFile, "{}: expected {} bytes behind the header, found {}", name,
                wanted, rest.size());
  trace.starts = take<std::uint32_t>(rest, sequences);
  trace.routes = take<std::uint16_t>(rest, each * trace.chosen);
  if (scored) trace.scores = take<std::uint16_t>(rest, each * trace.experts);
  check_contents(trace, tokens, name);
  return trace;
}

std::vector<std::byte> serialize(const RouteTrace& trace) {
  const std::vector<std::uint32_t> head = {kVersion,
                                           trace.first_layer,
                                           trace.layers,
                                           trace.experts,
                                           trace.chosen,
                                           static_cast<std::uint32_t>(trace.tokens()),
                                           trace.scores.empty() ? 0u : 1u,
                                           static_cast<std::uint32_t>(trace.starts.size())};
  std::vector<std::byte> bytes(kHeader + 4 * trace.starts.size() + 2 * trace.routes.size() +
                               2 * trace.scores.size());
  std::memcpy(bytes.data(), kMagic.data(), kMagic.size());
  std::byte* to = put(bytes.data() + kMagic.size(), head);
  to = put(to, trace.starts);
  to = put(to, trace.routes);
  put(to, trace.scores);
  return bytes;
}

RouteTrace read_routes(const std::filesystem::path& path) {
  const auto file = base::MappedFile::open(path);
  return parse_routes(file.bytes(), path.string());
}

void write_routes(const RouteTrace& trace, const std::filesystem::path& path) {
  const std::vector<std::byte> bytes = serialize(trace);
  const std::filesystem::path unfinished = path.string() + ".part";
  {
    std::ofstream file(unfinished, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
    file.flush();
    if (!file) base::raise(ErrorKind::kIo, "{}: cannot be written", path.string());
  }
  std::error_code failed;
  std::filesystem::rename(unfinished, path, failed);
  if (failed) base::raise(ErrorKind::kIo, "{}: {}", path.string(), failed.message());
}

algorithm::PredictorStatistics replay(const RouteTrace& trace,
                                      algorithm::ExpertPredictorSpec spec) {
  spec.first_layer = trace.first_layer;
  spec.layers = trace.layers;
  spec.experts = trace.experts;
  spec.chosen = trace.chosen;
  algorithm::ExpertPredictor predictor(spec);
  std::vector<std::uint32_t> route(trace.chosen);
  std::vector<float> scores(trace.scores.empty() ? 0 : trace.experts);
  auto start = trace.starts.begin();
  for (std::size_t token = 0; token < trace.tokens(); ++token) {
    if (start != trace.starts.end() && *start == token) {
      predictor.begin_sequence();
      ++start;
    }
    predictor.begin_token();
    for (std::uint32_t layer = 0; layer < trace.layers; ++layer) {
      const std::size_t at = (token * trace.layers + layer) * scores.size();
      for (std::size_t e = 0; e < scores.size(); ++e)
        scores[e] = base::f16_to_f32(trace.scores[at + e]);
      predictor.predict(trace.first_layer + layer, scores);
      const auto chosen = trace.route(token, layer);
      std::copy(chosen.begin(), chosen.end(), route.begin());
      predictor.observe(trace.first_layer + layer, route);
    }
    predictor.finish_token();
  }
  return predictor.statistics();
}

}  // namespace lemma::eval
