// SPDX-License-Identifier: Apache-2.0
#include "runtime/step_runner.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "base/raise.hpp"

namespace lemma::runtime {

void make_copies(state::Sequence& sequence, backend::StateStore& store) {
  for (const state::PageCopy& copy : sequence.take_copies())
    store.copy_page(copy.group, copy.from, copy.to, copy.positions);
}

void StepRunner::run(std::span<const StepPart> parts) {
  tokens_.clear();
  positions_.clear();
  received_.clear();
  segments_.clear();
  logit_rows_.clear();
  results_.clear();

  std::size_t reserved = 0;
  try {
    for (; reserved < parts.size(); ++reserved)
      parts[reserved].sequence->reserve(parts[reserved].tokens.size());
  } catch (...) {
    for (std::size_t p = 0; p < reserved; ++p) parts[p].sequence->abandon();
    throw;
  }
  for (const StepPart& part : parts) make_copies(*part.sequence, *machine_.store);

  for (const StepPart& part : parts) {
    const auto first = static_cast<std::uint32_t>(tokens_.size());
    const auto rows = static_cast<std::uint32_t>(part.tokens.size());
    const auto past = static_cast<std::uint32_t>(part.sequence->length());
    segments_.push_back({first, rows, past, part.token_class, part.sequence});
    tokens_.insert(tokens_.end(), part.tokens.begin(), part.tokens.end());
    for (std::uint32_t i = 0; i < rows; ++i) {
      const auto position = static_cast<std::int32_t>(past + i + part.ahead);
      positions_.push_back({position, position, position});
    }
    received_.insert(received_.end(), part.received.begin(), part.received.end());
    if (rows == 0 || part.logits == StepPart::Logits::kNone) continue;
    const std::uint32_t from = part.logits == StepPart::Logits::kAll ? 0 : rows - 1;
    for (std::uint32_t i = from; i < rows; ++i) logit_rows_.push_back(first + i);
  }
  LEMMA_CHECK(tokens_.size() <= machine_.max_rows);

  const backend::Step step{tokens_, positions_, segments_, logit_rows_, received_};
  const auto results = machine_.executable->run(step);
  results_.assign(results.begin(), results.end());
  rows_run_ += tokens_.size();
  for (std::size_t p = 0; p < parts.size(); ++p) {
    if (results_[p].status == backend::SegmentStatus::kOk)
      parts[p].sequence->commit(parts[p].tokens, parts[p].token_class);
    else
      parts[p].sequence->abandon();
  }
}

void StepRunner::check(std::size_t part) const {
  const backend::SegmentResult& result = results_[part];
  switch (result.status) {
    case backend::SegmentStatus::kOk:
      return;
    case backend::SegmentStatus::kOutOfMemory:
      base::raise(ErrorKind::kOutOfMemory, "the backend ran out of memory in a step");
    case backend::SegmentStatus::kDevice:
      base::raise(ErrorKind::kDevice, "the device failed in a step");
    case backend::SegmentStatus::kNonFinite:
      break;
  }
  const std::string site = result.site >= 0
                               ? machine_.sites[static_cast<std::size_t>(result.site)].name
                               : std::string("logits");
  base::raise(ErrorKind::kNonFinite, "NaN or infinity at '{}', at or after position {}", site,
              segments_[part].past);
}

std::span<const float> StepRunner::logits(std::size_t part, std::size_t row) const {
  const std::uint32_t absolute = segments_[part].first_row + static_cast<std::uint32_t>(row);
  const auto found = std::lower_bound(logit_rows_.begin(), logit_rows_.end(), absolute);
  LEMMA_CHECK(found != logit_rows_.end() && *found == absolute);
  return machine_.executable->logits(static_cast<std::size_t>(found - logit_rows_.begin()));
}

}  // namespace lemma::runtime
