// SPDX-License-Identifier: Apache-2.0
// Check: a backend beside the reference, in lock-step over the same tokens, compared at every site
// of the forward pass. With teacher forcing each site of the backend is overwritten with the
// reference's rows once it has been compared, so that what follows starts from equal inputs and an
// error shows where it is made.
//
// Memory. Both run at the same time, site by site, and rows are dropped once compared: beyond what
// each of them needs by itself, at most kHeldBytes of the reference's rows are held, or what one
// site has (with teacher forcing: and what later operations still read). Steps are cut so that no
// site and no logits of a step take more; how tokens are cut does not change the bits. An encoder
// cannot be cut: its sites have the rows of the whole text.
//
//   ModelRun reference({.path = path, .backend = BackendKind::kReference}), backend({.path =
//   path}); CheckReport report = check(reference, backend, tokens, options);
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "eval/distance.hpp"
#include "eval/model_run.hpp"
#include "eval/site_tolerance.hpp"

namespace lemma::eval {

inline constexpr std::size_t kHeldBytes = std::size_t{16} << 20;

/// Layers first to last, both included.
struct LayerRange {
  std::uint32_t first = 0, last = 0;
};

struct CheckOptions {
  bool teacher_forced = false;
  bool int8 = false;  ///< the backend's numerics mode rounds activations (fast, not reference)
  KvFormat kv = KvFormat::kF32;
  /// Tokens from here on count as generated, so that the kernels of both classes are seen.
  std::optional<std::uint32_t> generated_from{};
  /// Compares the sites of these layers alone, and the logits.
  std::optional<LayerRange> layers{};
  /// Compares nothing but logits and observes no site, so that the backend runs as it always does.
  bool logits_only = false;
  ProgressCallback progress{};
};

struct SiteReport {
  SiteTolerance site;
  RowDistance distance;
  /// The share of what is allowed that is used up.
  double of_tolerance() const noexcept {
    return site.rms_limit ? distance.rms_error() / *site.rms_limit : distance.of_tolerance();
  }
  bool passed() const noexcept { return of_tolerance() <= 1.0; }  // false for NaN
};

struct CheckReport {
  /// In the program's order; the logits, which an encoder does not have, last or alone.
  std::vector<SiteReport> sites;
  LogitsDistance logits;
  /// The first site in the program's order that is past its tolerance.
  std::optional<std::size_t> first_failed;
  std::size_t most_held = 0;  ///< bytes of the reference's rows that were held at once
};

/// Rows of a step such that those of no site and the logits take more than kHeldBytes.
std::uint32_t check_rows(const backend::Program& program) noexcept;

/// Both models must be the same file, with the same context and state format. Throws what a step
/// fails with, kUsage for ids outside the vocabulary, for layers that there are not and for
/// generated tokens in an encoder, and kContextFull where the tokens do not fit.
CheckReport check(ModelRun& reference, ModelRun& backend, std::span<const std::int32_t> tokens,
                  const CheckOptions& options);

}  // namespace lemma::eval
