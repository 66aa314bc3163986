// SPDX-License-Identifier: Apache-2.0
// Check: a backend beside the reference, in lock-step over the same tokens, compared at every site
// of the forward pass. Chunks are kept small enough that the reference's rows of one chunk take at
// most 64 MiB; how tokens are cut does not change the bits. With teacher forcing each site of the
// backend is overwritten with the reference's rows once it has been compared, so that what follows
// starts from equal inputs and an error shows where it is made.
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

struct CheckOptions {
  bool teacher_forced = false;
  bool int8 = false;  ///< the backend's numerics mode rounds activations (fast, not reference)
  KvFormat kv = KvFormat::kF32;
  /// Tokens from here on count as generated, so that the kernels of both classes are seen.
  std::optional<std::uint32_t> generated_from{};
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
  std::vector<SiteReport> sites;  ///< in the program's order; the logits last, or alone
  LogitsDistance logits;
  /// The first site in the program's order that is past its tolerance.
  std::optional<std::size_t> first_failed;
};

/// Rows of a step such that all sites' rows take at most 64 MiB.
std::uint32_t check_rows(const backend::Program& program) noexcept;

/// Both models must be the same file, with the same context and state format. Throws what a step
/// fails with, kUsage for ids outside the vocabulary and kContextFull where the tokens do not fit.
CheckReport check(ModelRun& reference, ModelRun& backend, std::span<const std::int32_t> tokens,
                  const CheckOptions& options);

}  // namespace lemma::eval
