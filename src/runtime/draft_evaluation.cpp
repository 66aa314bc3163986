// SPDX-License-Identifier: Apache-2.0
#include "runtime/draft_evaluation.hpp"

#include <algorithm>
#include <limits>
#include <memory>

#include "base/check.hpp"
#include "base/raise.hpp"

namespace lemma::runtime {
namespace {

StateOptions observed(StateOptions options, backend::Observer* const& observer) {
  options.observers = {&observer, 1};
  return options;
}

StepMachine machine_of(const LoadedModel& model, std::size_t block, StateSpace& space) {
  return {&space.executable(), &space.store(), model.draft_programs()[block].tensors,
          space.max_rows(), false};
}

/// The blocks, one behind the other.
class DraftChain {
 public:
  DraftChain(LoadedModel& model, const StateOptions& options, std::span<const std::int32_t> tokens,
             std::uint32_t generated_from, const DraftSink& sink)
      : tokens_(tokens), generated_from_(generated_from), sink_(sink) {
    for (std::size_t block = 0; block < model.draft_programs().size(); ++block)
      blocks_.push_back(std::make_unique<DraftRun>(model, block, options));
  }

  /// Runs rows [begin, ...) of all blocks, for which the model handed on `rows`.
  void run(std::uint32_t begin, std::span<const float> rows) {
    std::vector<float> received(rows.begin(), rows.end()), handed_on;
    for (std::size_t block = 0; block < blocks_.size(); ++block) {
      run_block(block, begin, received, handed_on);
      received.swap(handed_on);
    }
  }

 private:
  void run_block(std::size_t block, std::uint32_t begin, const std::vector<float>& received,
                 std::vector<float>& handed_on) {
    DraftRun& run = *blocks_[block];
    const auto ahead = static_cast<std::uint32_t>(block) + 1;
    const auto total = static_cast<std::uint32_t>(tokens_.size());
    handed_on.clear();
    const auto there = static_cast<std::uint32_t>(received.size() / run.width());
    const std::uint32_t end = std::min(begin + there, total > ahead ? total - ahead : 0);
    // A row has the class of its token, and a step has one class.
    const std::uint32_t change = generated_from_ > ahead ? generated_from_ - ahead : 0;
    for (std::uint32_t from = begin; from < end;) {
      const std::uint32_t to = from < change ? std::min(end, change) : end;
      run.run(tokens_.subspan(from + ahead, to - from),
              std::span(received).subspan((from - begin) * run.width(), (to - from) * run.width()),
              from < change ? state::TokenClass::kEntered : state::TokenClass::kGenerated);
      for (std::uint32_t row = from; row < to; ++row)
        sink_(block, row + ahead, run.logits(row - from));
      handed_on.insert(handed_on.end(), run.handed_on().begin(), run.handed_on().end());
      from = to;
    }
  }

  const std::span<const std::int32_t> tokens_;
  const std::uint32_t generated_from_;
  const DraftSink& sink_;
  std::vector<std::unique_ptr<DraftRun>> blocks_;
};

}  // namespace

HandedOnRows::HandedOnRows(const backend::Program& program)
    : name_(program.handed_on ? program.tensors[std::size_t(program.handed_on.id)].name : ""),
      width_(program.handed_on.width) {
  LEMMA_CHECK(bool(program.handed_on));
}

void HandedOnRows::observe(std::int32_t, const backend::Program::Site&, const backend::Step&,
                           std::span<float> rows) {
  rows_.assign(rows.begin(), rows.end());
}

DraftRun::DraftRun(LoadedModel& model, std::size_t block, const StateOptions& options)
    : rows_(model.draft_programs().at(block)),
      space_(model, model.draft_programs()[block], observed(options, observer_)),
      sequence_(space_.pool()),
      runner_(machine_of(model, block, space_)),
      ahead_(static_cast<std::uint32_t>(block) + 1) {}

void DraftRun::run(std::span<const std::int32_t> tokens, std::span<const float> received,
                   state::TokenClass token_class) {
  LEMMA_CHECK(received.size() == tokens.size() * rows_.width());
  const StepPart part{.sequence = &sequence_,
                      .tokens = tokens,
                      .token_class = token_class,
                      .logits = StepPart::Logits::kAll,
                      .received = received,
                      .ahead = ahead_};
  runner_.run({&part, 1});
  runner_.check(0);
}

void evaluate_with_drafts(LoadedModel& model, const StateOptions& options,
                          std::span<const std::int32_t> tokens, const Chunking& chunking,
                          const LogitsSink& sink, const DraftSink& draft_sink) {
  if (model.draft_programs().empty())
    base::raise(ErrorKind::kUnsupported, "architecture '{}': this model has no draft blocks",
                model.plan().architecture);
  HandedOnRows rows(model.program());
  std::vector<backend::Observer*> observers(options.observers.begin(), options.observers.end());
  observers.push_back(&rows);
  StateOptions own = options;
  own.observers = observers;
  StateSpace space(model, own);
  state::Sequence sequence(space.pool());

  constexpr std::uint32_t kNever = std::numeric_limits<std::uint32_t>::max();
  const std::uint32_t generated_from = chunking.generated_from.value_or(kNever);
  DraftChain chain(model, options, tokens, generated_from, draft_sink);
  const auto count = static_cast<std::uint32_t>(tokens.size());
  for (const auto& [begin, end] : steps_of(count, chunking, space.max_rows())) {
    Chunking whole;
    if (begin >= generated_from) whole.generated_from = 0;
    const std::uint32_t first = begin;
    evaluate(model, space, sequence, tokens.subspan(begin, end - begin), whole,
             sink ? LogitsSink([&](std::uint32_t position, std::span<const float> logits) {
               sink(first + position, logits);
             })
                  : LogitsSink());
    chain.run(begin, rows.rows());
  }
}

}  // namespace lemma::runtime
