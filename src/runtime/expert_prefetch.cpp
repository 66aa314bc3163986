// SPDX-License-Identifier: Apache-2.0
#include "runtime/expert_prefetch.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/log.hpp"
#include "base/mapped_file.hpp"
#include "base/raise.hpp"
#include "runtime/recorded_weights.hpp"

namespace lemma::runtime {
namespace {

/// Weights and numbers of the layers, from the program.
struct Found {
  std::uint32_t experts = 0, chosen = 0, layers = 0;
};

Found count(const backend::Program& program) {
  Found found;
  for (const backend::Operation& operation : program.operations) {
    const auto* const route = std::get_if<backend::Route>(&operation);
    if (!route) continue;
    if (found.layers > 0 &&
        (route->logits.width != found.experts || route->ids.width != found.chosen))
      base::raise(ErrorKind::kUnsupported,
                  "expert prefetch: a layer chooses {} of {} experts and others {} of {}",
                  route->ids.width, route->logits.width, found.chosen, found.experts);
    found = {route->logits.width, route->ids.width, found.layers + 1};
  }
  if (found.layers == 0)
    base::raise(ErrorKind::kUnsupported, "expert prefetch: this model has no experts");
  return found;
}

algorithm::ExpertPredictorSpec spec_of(const Found& found, std::uint32_t most) {
  algorithm::ExpertPredictorSpec spec;
  spec.layers = found.layers;
  spec.experts = found.experts;
  spec.chosen = found.chosen;
  spec.prefetch = std::min(most, found.experts);
  return spec;
}

}  // namespace

std::optional<std::uint32_t> chosen_experts(const backend::Program& program) {
  try {
    return count(program).chosen;
  } catch (const Error&) {
    return std::nullopt;
  }
}

ExpertPrefetch::ExpertPrefetch(const LoadedModel& model, std::uint32_t most, Eagerness eagerness)
    : ExpertPrefetch(model, most, {},
                     [](std::span<const std::byte> bytes) { base::prefetch(bytes); }) {
  eagerness_ = eagerness;
  const bool idle = std::all_of(layers_.begin(), layers_.end(),
                                [](const Layer& layer) { return layer.stacks.empty(); });
  if (idle)
    base::log(base::LogLevel::kWarning,
              "no experts are read ahead: the {} backend has packed all of them into memory",
              model.backend().name());
}

ExpertPrefetch::ExpertPrefetch(const LoadedModel& model, std::uint32_t most, Guess guess,
                               Fetch fetch)
    : predictor_(spec_of(count(model.program()), most)),
      guess_(std::move(guess)),
      fetch_(std::move(fetch)) {
  const RecordedWeights recorded = record_weights(model);
  const Found found = count(recorded.program);
  experts_ = found.experts;
  chosen_ = found.chosen;
  for (const backend::Operation& operation : recorded.program.operations) {
    if (const auto* route = std::get_if<backend::Route>(&operation)) {
      layers_.push_back({.number = static_cast<std::uint32_t>(layers_.size()),
                         .ids = route->ids.id,
                         .site = recorded.program.tensors[std::size_t(route->ids.id)].name,
                         .stacks = {}});
    }
    const auto* const op = std::get_if<backend::Experts>(&operation);
    if (!op) continue;
    for (Layer& layer : layers_) {
      if (layer.ids != op->ids.id) continue;
      for (const backend::WeightId id : {op->gate, op->up, op->down}) {
        if (id == backend::kNoWeight) continue;
        const weights::Matrix& stack = recorded.matrices[std::size_t(id)];
        if (model.reads_in_file(stack.name)) layer.stacks.push_back(stack);
      }
    }
  }
  if (!guess_) guess_ = [this](std::uint32_t layer) { return predictor_.predict(layer); };
}

bool ExpertPrefetch::wants(const backend::Program::Site& site) {
  return std::any_of(layers_.begin(), layers_.end(),
                     [&](const Layer& layer) { return layer.site == site.name; });
}

void ExpertPrefetch::observe(std::int32_t tensor, const backend::Program::Site&,
                             const backend::Step& step, std::span<float> rows) {
  const auto layer =
      std::find_if(layers_.begin(), layers_.end(), [&](const Layer& l) { return l.ids == tensor; });
  if (layer == layers_.end()) return;
  const auto index = static_cast<std::size_t>(layer - layers_.begin());
  // A step that begins or breaks off in the middle leaves nothing to go on from.
  if (index == 0) next_ = 0;
  if (index != next_) return;
  if (index == 0 && (step.segments[0].past == 0 || step.segments.size() > 1)) {
    predictor_.begin_sequence();
    open_ = false;
  }
  next_ = index + 1;
  if (step.segments.size() > 1) return;
  try {
    if (step.tokens.size() > 1)
      learn(index, rows, step.tokens.size());
    else
      decode(index, rows);
  } catch (const Error&) {
    // No route: a row that failed, or that another observer replaced. Nothing is learned of it.
    predictor_.begin_sequence();
    open_ = false;
    next_ = layers_.size();
  }
}

void ExpertPrefetch::decode(std::size_t index, std::span<const float> ids) {
  if (index == 0 && !open_) predictor_.begin_token();
  open_ = true;
  predictor_.observe(layers_[index].number, std::vector<std::uint32_t>(ids.begin(), ids.end()));
  if (index + 1 < layers_.size()) return fetch(layers_[index + 1]);
  predictor_.finish_token();
  wanted_.store(statistics().wanted, std::memory_order_relaxed);
  hits_.store(statistics().hits, std::memory_order_relaxed);
  predictor_.begin_token();  // the next token's first layer can be guessed already
  fetch(layers_[0]);
}

/// A prefill's routes come layer by layer and are learned when all are there.
void ExpertPrefetch::learn(std::size_t index, std::span<const float> ids, std::size_t tokens) {
  if (index == 0) prefill_.clear();
  if (index == 0 && open_) {
    predictor_.begin_sequence();  // drops the token that was begun for a guess
    open_ = false;
  }
  for (const float id : ids) prefill_.push_back(static_cast<std::uint32_t>(id));
  if (index + 1 == layers_.size() && prefill_.size() == layers_.size() * tokens * chosen_)
    predictor_.replay(prefill_);
}

void ExpertPrefetch::fetch(const Layer& layer) {
  const std::vector<std::uint32_t> named = guess_(layer.number);
  if (eagerness_ == Eagerness::kWhenRight && statistics().precision() < 0.5) return;
  for (const std::uint32_t expert : named) {
    if (expert >= experts_) continue;
    for (const weights::Matrix& stack : layer.stacks) {
      const std::size_t bytes = stack.size_bytes() / experts_;
      fetch_({stack.bytes + expert * bytes, bytes});
    }
  }
}

std::unique_ptr<ExpertPrefetch> prefetch_of_file(const LoadedModel& model) {
  const auto chosen = model.experts_in_file() > 0 ? chosen_experts(model.program()) : std::nullopt;
  if (!chosen) return nullptr;
  return std::make_unique<ExpertPrefetch>(model, *chosen, ExpertPrefetch::Eagerness::kWhenRight);
}

}  // namespace lemma::runtime
