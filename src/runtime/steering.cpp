// SPDX-License-Identifier: Apache-2.0
#include "runtime/steering.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>
#include <tuple>

#include "base/mapped_file.hpp"
#include "base/raise.hpp"
#include "weights/safetensors/header.hpp"

namespace lemma::runtime {
namespace {

constexpr std::string_view kLayers = "layers.";

/// The number that `text` begins with, which is cut off it.
std::optional<std::uint32_t> take_number(std::string_view& text) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

/// "layers.3" and nothing behind it.
std::optional<std::uint32_t> whole_layer(std::string_view name) {
  if (!name.starts_with(kLayers)) return std::nullopt;
  name.remove_prefix(kLayers.size());
  const auto layer = take_number(name);
  return name.empty() ? layer : std::nullopt;
}

/// "layers.3.ffn2." of "layers.3.ffn2.part0.norm".
std::string_view prefix_of(std::string_view name) {
  const std::size_t dot = name.find('.', name.find('.', kLayers.size()) + 1);
  return dot == std::string_view::npos ? std::string_view() : name.substr(0, dot + 1);
}

std::vector<float> read_vector(const base::MappedFile& file,
                               const weights::SafetensorsEntry& entry) {
  const std::string what = fmt::format("{}: '{}'", file.path().string(), entry.name);
  if (entry.dtype != "F32")
    base::raise(ErrorKind::kBadFile, "{}: a steering vector is F32, found {}", what, entry.dtype);
  if (entry.shape.size() != 1)
    base::raise(ErrorKind::kBadFile, "{}: a steering vector has one dimension, found {}", what,
                entry.shape.size());
  std::vector<float> vector(static_cast<std::size_t>(entry.shape[0]));
  std::memcpy(vector.data(), file.bytes().data() + entry.begin, vector.size() * sizeof(float));
  for (const float x : vector)
    if (!std::isfinite(x)) base::raise(ErrorKind::kBadFile, "{}: holds {}", what, x);
  return vector;
}

struct Factors {
  float ffn = 0.f, attention = 0.f;
};

Factors factors_of(const Steering& steering) {
  const bool neither = !steering.ffn && !steering.attention;
  const Factors factors{steering.ffn.value_or(neither ? 1.f : 0.f),
                        steering.attention.value_or(neither ? 1.f : 0.f)};
  if (!std::isfinite(factors.ffn) || !std::isfinite(factors.attention))
    base::raise(ErrorKind::kUsage,
                "steering: expected finite factors, found {} (ffn) and {} "
                "(attention)",
                factors.ffn, factors.attention);
  if (steering.file.empty())
    base::raise(ErrorKind::kUsage, "steering: factors have no effect without a file of vectors");
  return factors;
}

}  // namespace

std::optional<LayerSite> layer_site(std::string_view name) {
  if (!name.starts_with(kLayers)) return std::nullopt;
  std::string_view rest = name.substr(kLayers.size());
  const auto layer = take_number(rest);
  if (!layer || prefix_of(name).empty()) return std::nullopt;
  if (rest.starts_with(".attention")) return LayerSite{*layer, true};
  if (rest.starts_with(".ffn")) return LayerSite{*layer, false};
  return std::nullopt;
}

// A site's tensors follow each other, the branch last; behind it stand the stream that it was added
// to and that stream's norm.
std::vector<std::int32_t> branches(const backend::Program& program) {
  std::vector<std::int32_t> found;
  std::string_view before;
  for (std::size_t i = 0; i < program.tensors.size(); ++i) {
    const std::string_view name = program.tensors[i].name;
    if (!layer_site(name)) continue;
    const std::string_view prefix = prefix_of(name), rest = name.substr(prefix.size());
    if (rest == "stream" || rest == "sum_norm") continue;
    if (prefix != before) found.push_back(0);
    found.back() = static_cast<std::int32_t>(i);
    before = prefix;
  }
  return found;
}

bool is_discrete(const backend::Program& program, std::int32_t tensor) {
  return std::any_of(program.operations.begin(), program.operations.end(), [&](const auto& any) {
    if (const auto* route = std::get_if<backend::Route>(&any)) return route->ids.id == tensor;
    const auto* select = std::get_if<backend::Select>(&any);
    return select && select->out.id == tensor;
  });
}

SteeringObserver::SteeringObserver(const Steering& steering, const backend::Program& program)
    : program_(program), added_(program.tensors.size()) {
  const Factors factors = factors_of(steering);
  const auto file = base::MappedFile::open(steering.file);
  const auto header = weights::parse_safetensors(file.bytes(), steering.file);
  std::map<std::string_view, std::int32_t> sites;
  for (std::size_t i = 0; i < program.tensors.size(); ++i)
    sites.emplace(program.tensors[i].name, static_cast<std::int32_t>(i));
  const std::vector<std::int32_t> all_branches = branches(program);

  bool ffn = false, attention = false;
  for (const weights::SafetensorsEntry& entry : header.entries) {
    std::vector<std::int32_t> targets;
    if (const auto layer = whole_layer(entry.name)) {
      for (const std::int32_t tensor : all_branches)
        if (layer_site(program.tensors[std::size_t(tensor)].name)->layer == *layer)
          targets.push_back(tensor);
    } else if (const auto found = sites.find(entry.name); found != sites.end() &&
                                                          layer_site(entry.name) &&
                                                          !is_discrete(program, found->second)) {
      targets.push_back(found->second);
    }
    const std::string what = fmt::format("{}: '{}'", steering.file.string(), entry.name);
    if (targets.empty())
      base::raise(
          ErrorKind::kUsage,
          "{} is neither an attention or feed-forward site with continuous rows nor a layer "
          "of this model (lemma capture --list shows the sites)",
          what);
    const std::vector<float> vector = read_vector(file, entry);
    for (const std::int32_t tensor : targets) {
      const bool attends = layer_site(program.tensors[std::size_t(tensor)].name)->attention;
      (attends ? attention : ffn) = true;
      add(program, tensor, attends ? factors.attention : factors.ffn, vector, what);
    }
  }
  if (!ffn && !attention)
    base::raise(ErrorKind::kBadFile, "{}: holds no steering vector", steering.file.string());
  for (const auto& [factor, there, name] : {std::tuple(steering.ffn, ffn, "ffn"),
                                            std::tuple(steering.attention, attention, "attention")})
    if (factor && !there)
      base::raise(ErrorKind::kUsage,
                  "steering: the {0} factor has no effect, since {1} holds no vector of {0} sites",
                  name, steering.file.string());
}

void SteeringObserver::add(const backend::Program& program, std::int32_t tensor, float factor,
                           std::span<const float> vector, const std::string& from) {
  const backend::Program::Site& site = program.tensors[std::size_t(tensor)];
  if (vector.size() != site.width)
    base::raise(ErrorKind::kUsage, "{}: expected {} numbers, the width of '{}', found {}", from,
                site.width, site.name, vector.size());
  if (factor == 0.f) return;
  std::vector<float>& added = added_[std::size_t(tensor)];
  added.resize(site.width);
  for (std::size_t i = 0; i < added.size(); ++i) {
    added[i] += factor * vector[i];
    if (!std::isfinite(added[i]))
      base::raise(ErrorKind::kUsage, "{}: times {} is not finite at '{}'", from, factor, site.name);
  }
}

bool SteeringObserver::wants(const backend::Program::Site& site) {
  for (std::size_t i = 0; i < added_.size(); ++i)
    if (!added_[i].empty() && program_.tensors[i].name == site.name) return true;
  return false;
}

void SteeringObserver::observe(std::int32_t tensor, const backend::Program::Site& site,
                               const backend::Step&, std::span<float> rows) {
  const std::vector<float>& added = added_[std::size_t(tensor)];
  for (std::size_t row = 0; row < rows.size(); row += site.width)
    for (std::size_t i = 0; i < site.width; ++i) rows[row + i] += added[i];
}

}  // namespace lemma::runtime
