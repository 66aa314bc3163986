// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <memory>

#include <fmt/format.h>

#include "backend/cpu/conformance.hpp"
#include "base/check.hpp"
#include "state/layout.hpp"
#include "state/sequence.hpp"

namespace lemma::backend::conformance {
namespace {

/// Keeps the rows of one site of the running step.
class Capture final : public Observer {
 public:
  explicit Capture(std::string site) : site_(std::move(site)) {}
  bool wants(const Program::Site& site) override { return site.name == site_; }
  void observe(std::int32_t, const Program::Site&, const Step&, std::span<float> rows) override {
    rows_.assign(rows.begin(), rows.end());
  }
  const std::vector<float>& rows() const { return rows_; }

 private:
  std::string site_;
  std::vector<float> rows_;
};

std::int32_t spread_token(std::uint32_t sequence, std::uint32_t position) {
  return static_cast<std::int32_t>((position * 31 + sequence * 17 + 5) % CaseBuilder::kVocabulary);
}

/// A step with the memory that its spans point at.
struct BuiltStep {
  std::vector<std::int32_t> tokens;
  std::vector<algorithm::RopePosition> positions;
  std::vector<Segment> segments;
  std::vector<std::uint32_t> logit_rows;
  Step view() const { return {tokens, positions, segments, logit_rows}; }
};

BuiltStep build_step(const std::vector<Part>& parts, std::deque<state::Sequence>& sequences,
                     const RunOptions& options) {
  BuiltStep step;
  for (const Part& part : parts) {
    state::Sequence& sequence = sequences[part.sequence];
    const auto past = static_cast<std::uint32_t>(sequence.length());
    sequence.reserve(part.rows);
    step.segments.push_back({static_cast<std::uint32_t>(step.tokens.size()), part.rows, past,
                             part.token_class, &sequence});
    for (std::uint32_t p = past; p < past + part.rows; ++p) {
      const auto at = static_cast<std::int32_t>(p);
      step.logit_rows.push_back(static_cast<std::uint32_t>(step.tokens.size()));
      step.tokens.push_back(options.token ? options.token(part.sequence, p)
                                          : spread_token(part.sequence, p));
      step.positions.push_back({at, at, at});
    }
  }
  return step;
}

}  // namespace

Schedule one_prefill(std::uint32_t tokens) {
  return {{Part{0, tokens}}};
}

Schedule chunks(std::uint32_t tokens, std::vector<std::uint32_t> sizes) {
  Schedule schedule;
  for (std::uint32_t done = 0, i = 0; done < tokens; ++i) {
    const std::uint32_t rows = std::min(sizes[i % sizes.size()], tokens - done);
    schedule.push_back({Part{0, rows}});
    done += rows;
  }
  return schedule;
}

Schedule in_company(std::uint32_t tokens, std::vector<std::uint32_t> sizes) {
  Schedule schedule = chunks(tokens, std::move(sizes));
  for (std::size_t s = 0; s < schedule.size(); ++s) {
    schedule[s].insert(schedule[s].begin(), Part{1, static_cast<std::uint32_t>(1 + s % 3)});
    if (s % 2 == 0) schedule[s].push_back(Part{2, 2, state::TokenClass::kGenerated});
  }
  return schedule;
}

Outcome run_case(Backend& backend, const Case& c, const RunOptions& options) {
  constexpr std::size_t kPages = 64;
  constexpr std::uint32_t kSequences = 3;
  const WeightId first = [&] {
    WeightId id = kNoWeight;
    for (const CaseWeight& weight : c.weights) {
      const WeightId added = backend.add(weight.matrix, weight.use);
      if (id == kNoWeight) id = added;
    }
    return id;
  }();
  LEMMA_CHECK(first == 0);  // a case's ids are indexes: give it a backend of its own

  const state::Layout layout(c.program.slots, {options.format, options.page_size, 0});
  const std::vector<std::size_t> pages(layout.groups().size(), kPages);
  state::PagePool pool(layout, pages);
  const std::unique_ptr<StateStore> state = backend.make_state(layout, pages);
  std::deque<state::Sequence> sequences;
  for (std::uint32_t s = 0; s < kSequences; ++s) sequences.emplace_back(pool);

  Capture capture(c.site);
  std::vector<Observer*> observers = options.observers;
  observers.push_back(&capture);
  const std::unique_ptr<Executable> executable =
      backend.prepare(c.program, *state, {options.max_rows, 0, observers});

  Outcome outcome;
  outcome.placements = executable->placements();
  for (const std::vector<Part>& parts : options.schedule) {
    const BuiltStep step = build_step(parts, sequences, options);
    const Step view = step.view();
    if (options.look) options.look(*executable, true);
    if (options.around) options.around(true);
    const std::span<const SegmentResult> results = executable->run(view);
    if (options.around) options.around(false);
    if (options.look) options.look(*executable, false);
    outcome.results.emplace_back(results.begin(), results.end());
    for (const Segment& segment : step.segments) {
      if (segment.sequence != &sequences[0]) continue;
      for (std::uint32_t r = segment.first_row; r < segment.first_row + segment.rows; ++r) {
        const std::size_t width = capture.rows().size() / step.tokens.size();
        const std::span<const float> row =
            c.site == "logits" ? executable->logits(r)
                               : std::span(capture.rows()).subspan(r * width, width);
        outcome.rows.insert(outcome.rows.end(), row.begin(), row.end());
      }
    }
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const Segment& segment = step.segments[p];
      sequences[parts[p].sequence].commit(
          std::span(step.tokens).subspan(segment.first_row, segment.rows), segment.token_class);
    }
  }
  return outcome;
}

std::string compare(std::span<const float> got, std::span<const float> want, std::size_t width,
                    algorithm::Tolerance tolerance) {
  if (got.size() != want.size()) return fmt::format("{} elements, not {}", got.size(), want.size());
  for (std::size_t at = 0; at < want.size(); at += width) {
    double largest = 0;
    for (std::size_t i = 0; i < width; ++i) {
      largest = std::max(largest, std::fabs(double(want[at + i])));
    }
    for (std::size_t i = 0; i < width; ++i) {
      if (!tolerance.admits(got[at + i], want[at + i], largest)) {
        return fmt::format("row {} element {}: {} is too far from {} (largest {})", at / width, i,
                           got[at + i], want[at + i], largest);
      }
    }
  }
  return {};
}

}  // namespace lemma::backend::conformance
