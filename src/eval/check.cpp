// SPDX-License-Identifier: Apache-2.0
#include "eval/check.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include "backend/tensor_arena.hpp"
#include "base/check.hpp"
#include "base/raise.hpp"
#include "eval/data_bounds.hpp"
#include "runtime/step_runner.hpp"

namespace lemma::eval {
namespace {

/// Keeps the rows of every site of the last step.
class Recorder final : public backend::Observer, public RowSource {
 public:
  explicit Recorder(std::size_t tensors) : rows_(tensors) {}
  bool wants(const backend::Program::Site&) override { return true; }
  void observe(std::int32_t tensor, const backend::Program::Site&, const backend::Step&,
               std::span<float> rows) override {
    rows_[std::size_t(tensor)].assign(rows.begin(), rows.end());
  }
  std::span<const float> rows(std::int32_t tensor) const override {
    return rows_[std::size_t(tensor)];
  }

 private:
  std::vector<std::vector<float>> rows_;
};

/// Compares the rows of every site with those that a Recorder holds of the same step.
class Comparer final : public backend::Observer {
 public:
  /// With `bounds`, rows are replaced by the reference's once compared.
  Comparer(const Recorder& reference, std::vector<SiteReport>& sites, const DataBounds* bounds)
      : reference_(reference), sites_(sites), bounds_(bounds) {}
  bool wants(const backend::Program::Site&) override { return true; }
  void observe(std::int32_t tensor, const backend::Program::Site& site, const backend::Step& step,
               std::span<float> rows) override {
    const std::span<const float> want = reference_.rows(tensor);
    LEMMA_CHECK(want.size() == rows.size());
    std::span<const double> scale, slack;
    if (bounds_) scale = bounds_->scale(tensor);
    if (bounds_) slack = bounds_->slack(tensor);
    for (std::size_t row = 0; row < rows.size() / site.width; ++row) {
      const std::size_t begin = row * site.width;
      sites_[std::size_t(tensor)].distance.add(
          rows.subspan(begin, site.width), want.subspan(begin, site.width),
          step.segments[0].past + static_cast<std::uint32_t>(row), scale.empty() ? 1.0 : scale[row],
          slack.empty() ? slack : slack.subspan(begin, site.width));
    }
    if (bounds_) std::copy(want.begin(), want.end(), rows.begin());
  }

 private:
  const Recorder& reference_;
  std::vector<SiteReport>& sites_;
  const DataBounds* const bounds_;
};

void check_tokens(const ModelRun& run, std::span<const std::int32_t> tokens) {
  const std::uint32_t vocabulary = run.model().plan().vocabulary;
  for (const std::int32_t token : tokens)
    if (token < 0 || static_cast<std::uint32_t>(token) >= vocabulary)
      base::raise(ErrorKind::kUsage, "token id {} is outside the vocabulary of {}", token,
                  vocabulary);
  if (tokens.size() > run.model().context())
    base::raise(ErrorKind::kContextFull, "{} tokens do not fit into the context of {}",
                tokens.size(), run.model().context());
}

/// The sites with their tolerances. Formats of weights are known to a prepared backend only.
std::vector<SiteReport> blank_sites(ModelRun& backend, const CheckOptions& options) {
  backend.prepare({}, 1);
  const auto tolerances =
      site_tolerances(backend.model().program(), backend.space().executable().placements(),
                      {options.int8, options.teacher_forced, row_format(options.kv)});
  std::vector<SiteReport> sites;
  for (const SiteTolerance& site : tolerances) sites.push_back({site, RowDistance(site.tolerance)});
  return sites;
}

/// Which of the backend's operations round their activations.
std::vector<bool> rounding(const ModelRun& backend, const std::vector<SiteReport>& sites) {
  std::vector<bool> rounds;
  for (const backend::Operation& operation : backend.model().program().operations) {
    const auto outputs = backend::outputs(operation);
    rounds.push_back(!outputs.empty() && sites[std::size_t(outputs[0].id)].site.rounds);
  }
  return rounds;
}

/// One sequence in each of two models, stepped with the same tokens; collects the logits.
class Lockstep {
 public:
  /// Calls `between` when the reference has run a step and the backend has not.
  Lockstep(ModelRun& reference, ModelRun& backend, CheckReport& report,
           std::function<void()> between)
      : report_(report), between_(std::move(between)), reference_(reference), backend_(backend) {}

  void step(std::span<const std::int32_t> tokens, bool generated) {
    const std::size_t past = reference_.sequence.length();
    reference_.step(tokens, generated);
    between_();
    backend_.step(tokens, generated);
    for (std::size_t row = 0; row < tokens.size(); ++row) {
      const auto want = reference_.runner.logits(0, row), got = backend_.runner.logits(0, row);
      report_.sites.back().distance.add(got, want, static_cast<std::uint32_t>(past + row));
      report_.logits.add(got, want);
    }
  }

 private:
  struct Side {
    explicit Side(ModelRun& run) : sequence(run.space().pool()), runner(run.model(), run.space()) {}
    void step(std::span<const std::int32_t> tokens, bool generated) {
      const runtime::StepPart part{
          &sequence, tokens,
          generated ? state::TokenClass::kGenerated : state::TokenClass::kEntered,
          runtime::StepPart::Logits::kAll};
      runner.run({&part, 1});
      runner.check(0);
    }
    state::Sequence sequence;
    runtime::StepRunner runner;
  };
  CheckReport& report_;
  const std::function<void()> between_;
  Side reference_, backend_;
};

constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

}  // namespace

std::uint32_t check_rows(const backend::Program& program) noexcept {
  constexpr std::uint64_t kBytes = 64u << 20;
  std::uint64_t width = program.vocabulary;
  for (const backend::Program::Site& site : program.tensors) width += site.width;
  const std::uint64_t rows = kBytes / (sizeof(float) * std::max<std::uint64_t>(width, 1));
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(rows, 1, 64));
}

CheckReport check(ModelRun& reference, ModelRun& backend, std::span<const std::int32_t> tokens,
                  const CheckOptions& options) {
  check_tokens(reference, tokens);
  CheckReport report{.sites = blank_sites(backend, options)};
  Recorder recorder(reference.model().program().tensors.size());
  std::optional<DataBounds> bounds;
  if (options.teacher_forced) bounds.emplace(backend.model(), rounding(backend, report.sites));
  Comparer comparer(recorder, report.sites, bounds ? &*bounds : nullptr);
  backend::Observer* const record = &recorder;
  backend::Observer* const compare = &comparer;
  const std::uint32_t chunk = check_rows(reference.model().program());
  const std::size_t observers = options.logits_only ? 0 : 1;
  reference.prepare({&record, observers}, chunk);
  backend.prepare({&compare, observers}, chunk);

  Lockstep lockstep(reference, backend, report, [&] {
    if (bounds) bounds->enter(recorder);
  });
  const std::size_t generated_from = options.generated_from.value_or(kNever);
  for (std::size_t begin = 0; begin < tokens.size();) {
    const bool generated = begin >= generated_from;
    std::size_t end = std::min<std::size_t>(begin + chunk, tokens.size());
    if (!generated) end = std::min(end, generated_from);
    lockstep.step(tokens.subspan(begin, end - begin), generated);
    begin = end;
    if (options.progress) options.progress("checking", double(end) / double(tokens.size()));
  }
  if (options.logits_only) report.sites.erase(report.sites.begin(), report.sites.end() - 1);
  const auto failed = std::find_if(report.sites.begin(), report.sites.end(),
                                   [](const SiteReport& site) { return !site.passed(); });
  if (failed != report.sites.end())
    report.first_failed = static_cast<std::size_t>(failed - report.sites.begin());
  return report;
}

}  // namespace lemma::eval
