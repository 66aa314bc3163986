// SPDX-License-Identifier: Apache-2.0
#include "eval/check.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include "backend/tensor_arena.hpp"
#include "base/check.hpp"
#include "base/raise.hpp"
#include "eval/data_bounds.hpp"
#include "eval/row_stream.hpp"
#include "runtime/step_runner.hpp"

namespace lemma::eval {
namespace {

/// Rows of fewer values are measured against the largest value that the site had in any row so far:
/// the only value of a row may have cancelled, and is then no measure of what was summed.
constexpr std::uint32_t kFewValues = 4;

/// Compares the rows of sites with those of the reference.
class Comparer final : public backend::Observer {
 public:
  /// Sites that are not `reported` take no part, except with `bounds`, where the rows of all are
  /// replaced by the reference's once compared.
  Comparer(RowStream& reference, std::vector<SiteReport>& sites, std::vector<bool> reported,
           DataBounds* bounds)
      : reference_(reference),
        sites_(sites),
        reported_(std::move(reported)),
        largest_(sites.size()),
        bounds_(bounds) {}
  bool wants(const backend::Program::Site& site) override { return reference_.wants(site); }
  void observe(std::int32_t tensor, const backend::Program::Site& site, const backend::Step& step,
               std::span<float> rows) override {
    if (bounds_) bounds_->advance(tensor, reference_);
    const std::span<const float> want = reference_.rows(tensor);
    if (want.empty()) return;  // the reference's step failed
    LEMMA_CHECK(want.size() == rows.size());
    if (reported_[std::size_t(tensor)]) compare(tensor, site.width, step, rows, want);
    if (bounds_) std::copy(want.begin(), want.end(), rows.begin());
    drop_what_is_done(tensor);
  }

 private:
  void compare(std::int32_t tensor, std::uint32_t width, const backend::Step& step,
               std::span<const float> rows, std::span<const float> want) {
    std::span<const double> scale, slack;
    if (bounds_) scale = bounds_->scale(tensor);
    if (bounds_) slack = bounds_->slack(tensor);
    float& largest = largest_[std::size_t(tensor)];
    if (width < kFewValues)
      for (const float w : want) largest = std::max(largest, std::abs(w));
    for (std::size_t row = 0; row < rows.size() / width; ++row) {
      const std::size_t begin = row * width;
      sites_[std::size_t(tensor)].distance.add(
          rows.subspan(begin, width), want.subspan(begin, width),
          {.position = step.segments[0].past + static_cast<std::uint32_t>(row),
           .largest = largest,
           .scale = scale.empty() ? 1.0 : scale[row],
           .slack = slack.empty() ? slack : slack.subspan(begin, width)});
    }
  }

  void drop_what_is_done(std::int32_t tensor) {
    if (!bounds_) return reference_.drop(tensor);
    bounds_->forget(tensor);
    kept_.push_back(tensor);
    const std::int32_t now = bounds_->writer(tensor);
    std::erase_if(kept_, [&](std::int32_t kept) {
      const bool done = bounds_->last_reader(kept) <= now;
      if (done) reference_.drop(kept);
      return done;
    });
  }

  RowStream& reference_;
  std::vector<SiteReport>& sites_;
  const std::vector<bool> reported_;
  std::vector<float> largest_;  ///< by tensor, of narrow rows
  DataBounds* const bounds_;
  std::vector<std::int32_t> kept_;  ///< compared, and still to be read by bounds_
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

/// What each of the backend's operations rounds its activations to.
std::vector<Rounding> rounding(const ModelRun& backend, const std::vector<SiteReport>& sites) {
  std::vector<Rounding> rounds;
  for (const backend::Operation& operation : backend.model().program().operations) {
    const auto outputs = backend::outputs(operation);
    rounds.push_back(outputs.empty() ? Rounding{} : sites[std::size_t(outputs[0].id)].site.rounds);
  }
  return rounds;
}

/// One sequence in each of two models, stepped at the same time with the same tokens; collects the
/// logits, where there are any.
class Lockstep {
 public:
  Lockstep(ModelRun& reference, ModelRun& backend, CheckReport& report, RowStream& stream)
      : report_(report), stream_(stream), reference_(reference), backend_(backend) {}

  void step(std::span<const std::int32_t> tokens, bool generated) {
    const std::size_t past = reference_.sequence.length();
    run_both(tokens, generated);
    if (!reference_.logits) return;
    for (std::size_t row = 0; row < tokens.size(); ++row) {
      const auto want = reference_.runner.logits(0, row), got = backend_.runner.logits(0, row);
      report_.sites.back().distance.add(got, want,
                                        {.position = static_cast<std::uint32_t>(past + row)});
      report_.logits.add(got, want);
    }
  }

 private:
  struct Side {
    explicit Side(ModelRun& run)
        : sequence(run.space().pool()),
          runner(run.model(), run.space()),
          logits(run.model().program().vocabulary > 0) {}
    void step(std::span<const std::int32_t> tokens, bool generated) {
      using Logits = runtime::StepPart::Logits;
      const runtime::StepPart part{
          &sequence, tokens,
          generated ? state::TokenClass::kGenerated : state::TokenClass::kEntered,
          logits ? Logits::kAll : Logits::kNone};
      runner.run({&part, 1});
      runner.check(0);
    }
    state::Sequence sequence;
    runtime::StepRunner runner;
    bool logits;
  };

  /// The reference on a thread of its own, so that its rows come while the backend's do.
  void run_both(std::span<const std::int32_t> tokens, bool generated) {
    std::exception_ptr failed;
    stream_.begin();
    std::thread other([&] {
      try {
        reference_.step(tokens, generated);
      } catch (...) {
        failed = std::current_exception();
      }
      stream_.end();
    });
    std::exception_ptr backend_failed;
    try {
      backend_.step(tokens, generated);
    } catch (...) {
      backend_failed = std::current_exception();
    }
    stream_.close();
    other.join();
    if (failed) std::rethrow_exception(failed);
    if (backend_failed) std::rethrow_exception(backend_failed);
  }

  CheckReport& report_;
  RowStream& stream_;
  Side reference_, backend_;
};

constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

/// By tensor and for the logits: whether the report has it.
std::vector<bool> reported_sites(const ModelRun& run, const std::vector<SiteReport>& sites,
                                 const CheckOptions& options) {
  const std::size_t layers = run.model().plan().layers.size();
  if (options.layers &&
      !(options.layers->first <= options.layers->last && options.layers->last < layers))
    base::raise(ErrorKind::kUsage, "layers {}..{}: the model has layers 0..{}",
                options.layers->first, options.layers->last, layers - 1);
  std::vector<bool> reported;
  for (const SiteReport& site : sites) {
    const std::optional<std::uint32_t> layer = site.site.layer;
    reported.push_back(!options.logits_only &&
                       (!options.layers || (layer && options.layers->first <= *layer &&
                                            *layer <= options.layers->last)));
  }
  reported.back() = run.model().program().vocabulary > 0;
  return reported;
}

/// Leaves what was asked for, and names what is wrong.
void conclude(CheckReport& report, const std::vector<bool>& reported) {
  std::size_t at = 0;
  std::erase_if(report.sites, [&](const SiteReport&) { return !reported[at++]; });
  const auto failed = std::find_if(report.sites.begin(), report.sites.end(),
                                   [](const SiteReport& site) { return !site.passed(); });
  if (failed != report.sites.end())
    report.first_failed = static_cast<std::size_t>(failed - report.sites.begin());
}

}  // namespace

std::uint32_t check_rows(const backend::Program& program) noexcept {
  std::uint64_t width = std::max(program.vocabulary, 1u);
  for (const backend::Program::Site& site : program.tensors)
    width = std::max<std::uint64_t>(width, site.width);
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(kHeldBytes / (sizeof(float) * width), 1, 64));
}

CheckReport check(ModelRun& reference, ModelRun& backend, std::span<const std::int32_t> tokens,
                  const CheckOptions& options) {
  check_tokens(reference, tokens);
  const backend::Program& program = reference.model().program();
  if (program.whole_prompts && options.generated_from)
    base::raise(ErrorKind::kUsage, "an encoder reads whole texts: it has no generated tokens");
  CheckReport report{.sites = blank_sites(backend, options)};
  const std::vector<bool> reported = reported_sites(backend, report.sites, options);
  std::optional<DataBounds> bounds;
  if (options.teacher_forced && !options.logits_only)
    bounds.emplace(backend.model(), rounding(backend, report.sites));
  // With teacher forcing every site is replaced, also where it is not reported.
  RowStream stream(program,
                   bounds ? std::vector<bool>(program.tensors.size(), true)
                          : std::vector<bool>(reported.begin(), reported.end() - 1),
                   kHeldBytes);
  Comparer comparer(stream, report.sites, reported, bounds ? &*bounds : nullptr);
  backend::Observer* const publish = &stream;
  backend::Observer* const compare = &comparer;
  const std::size_t chunk = program.whole_prompts ? tokens.size() : check_rows(program);
  const std::size_t observers = options.logits_only ? 0 : 1;
  reference.prepare({&publish, observers}, static_cast<std::uint32_t>(chunk));
  backend.prepare({&compare, observers}, static_cast<std::uint32_t>(chunk));

  Lockstep lockstep(reference, backend, report, stream);
  const std::size_t generated_from = options.generated_from.value_or(kNever);
  for (std::size_t begin = 0; begin < tokens.size();) {
    const bool generated = begin >= generated_from;
    std::size_t end = std::min<std::size_t>(begin + chunk, tokens.size());
    if (!generated) end = std::min(end, generated_from);
    if (bounds) bounds->begin(!generated);
    lockstep.step(tokens.subspan(begin, end - begin), generated);
    begin = end;
    if (options.progress) options.progress("checking", double(end) / double(tokens.size()));
  }
  report.most_held = stream.most_held();
  conclude(report, reported);
  return report;
}

}  // namespace lemma::eval
