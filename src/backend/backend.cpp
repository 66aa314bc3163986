// SPDX-License-Identifier: Apache-2.0
#include "backend/backend.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.hpp"

namespace lemma::backend {

std::string_view operation_name(const Operation& operation) noexcept {
  static constexpr auto kNames =
      std::to_array<std::string_view>({"embed",          "norm",          "project",
                                       "project groups", "rotate",        "store",
                                       "attend",         "attend latent", "attend compressed",
                                       "select",         "compress",      "recur",
                                       "gate",           "activate",      "mlp",
                                       "route",          "experts",       "add",
                                       "streams enter",  "streams read",  "streams write",
                                       "streams leave",  "mix residual",  "head",
                                       "receive"});
  static_assert(kNames.size() == std::variant_size_v<Operation>);
  return kNames[operation.index()];
}

Tensor Program::tensor(std::string site, std::uint32_t width) {
  LEMMA_CHECK(std::none_of(tensors.begin(), tensors.end(),
                           [&](const Site& other) { return other.name == site; }));
  tensors.push_back({std::move(site), width});
  return {static_cast<std::int32_t>(tensors.size() - 1), width};
}

std::uint32_t Program::rope(const algorithm::RopeSpec& spec) {
  const auto found = std::find(ropes.begin(), ropes.end(), spec);
  if (found != ropes.end()) return static_cast<std::uint32_t>(found - ropes.begin());
  ropes.push_back(spec);
  return static_cast<std::uint32_t>(ropes.size() - 1);
}

}  // namespace lemma::backend
