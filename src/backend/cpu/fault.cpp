// SPDX-License-Identifier: Apache-2.0
// A backend around the backend: it prepares a copy of the program in which one operation is another
// one, or watches the step as observers do and replaces rows. So a fault holds whatever the backend
// fuses or packs, and the operations' own code knows nothing of it.
//
//   mask         a row does not see the oldest key that it should see     -> the attention's heads
//   rope         pairs of the wrong layout are turned                     -> the turned rows
//   route-order  a row's first two experts have each other's weight       -> the chosen experts
//   row          one row of keys or values is stored one element off      -> the attention's heads
//   eps          a norm's epsilon is a hundred times as large             -> the normed rows
#include "backend/cpu/fault.hpp"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/host_state.hpp"
#include "backend/tensor_arena.hpp"
#include "base/check.hpp"
#include "base/log.hpp"
#include "base/raise.hpp"

namespace lemma::cpu {
namespace {

using backend::Operation;
using backend::Program;
using backend::Segment;
using backend::Step;

/// The kv index of the row that is stored wrongly: behind some others, and early enough for any
/// text.
constexpr std::uint32_t kStoredWrongly = 3;

/// Called with one tensor's rows [T, width], just written.
class Hook final : public backend::Observer {
 public:
  using Body = std::function<void(const Step&, std::span<float>)>;
  Hook(std::string site, Body body) : site_(std::move(site)), body_(std::move(body)) {}
  bool wants(const Program::Site& site) override { return site.name == site_; }
  void observe(std::int32_t, const Program::Site&, const Step& step,
               std::span<float> rows) override {
    body_(step, rows);
  }

 private:
  std::string site_;
  Body body_;
};

/// A program with a fault, and what has to watch it.
struct Planted {
  Program program;
  std::string site;                                   ///< of the operation that is wrong
  std::vector<std::unique_ptr<Hook>> before, behind;  ///< the other observers
  std::vector<float> query;                           ///< [T, H * d] of the running step

  explicit Planted(const Program& right) : program(right) {}

  const std::string& name(backend::Tensor tensor) const {
    return program.tensors[std::size_t(tensor.id)].name;
  }
  bool in_layer(backend::Tensor tensor) const { return name(tensor).starts_with("layers."); }
};

template <typename Body>
void each_row(const Step& step, const Body& body) {
  for (const Segment& segment : step.segments)
    for (std::uint32_t i = 0; i < segment.rows; ++i)
      body(segment, std::size_t{segment.first_row} + i, segment.past + i);
}

/// The middle one of the operations of this kind in layers that `fits`.
template <typename Op>
Op& choose(Planted& planted, std::string_view fault, backend::Tensor Op::*site,
           const std::function<bool(const Op&)>& fits) {
  std::vector<Op*> found;
  for (Operation& operation : planted.program.operations)
    if (Op* const op = std::get_if<Op>(&operation))
      if (planted.in_layer(op->*site) && fits(*op)) found.push_back(op);
  if (found.empty())
    base::raise(ErrorKind::kUsage, "LEMMA_FAULT={}: this model has no operation for it", fault);
  Op& op = *found[found.size() / 2];
  planted.site = planted.name(op.*site);
  return op;
}

/// Every head of one row again, over one key less.
void attend_one_less(const backend::Attend& op, backend::HostState& state, const Segment& segment,
                     std::uint32_t position, std::span<const float> query, std::span<float> out) {
  const algorithm::GqaSpec& spec = op.spec;
  algorithm::VisibleRange range = algorithm::visible_range(position, spec.window);
  if (range.end - range.begin < 2) return;
  ++range.begin;
  const std::vector<float> slopes =
      spec.alibi_max_bias > 0.f ? algorithm::alibi_slopes(spec.query_heads, spec.alibi_max_bias)
                                : std::vector<float>(spec.query_heads);
  std::vector<float> key(spec.head_dim), value(spec.value_dim);
  for (std::uint32_t h = 0; h < spec.query_heads; ++h) {
    const auto reader = [&](backend::SlotId slot, std::vector<float>& into) {
      return [&, slot](std::uint32_t i) -> std::span<const float> {
        const state::SlotPlace& place = state.layout().slots()[std::size_t(slot)];
        algorithm::decode_row(place.format, place.slot.group, place.slot.width,
                              state.row(slot, *segment.sequence, i),
                              std::size_t{spec.kv_head(h)} * into.size(), into, place.slot.tail);
        return into;
      };
    };
    algorithm::attend(spec, query.subspan(std::size_t{h} * spec.head_dim, spec.head_dim), position,
                      range, reader(op.key, key), reader(op.value, value), nullptr, slopes[h],
                      out.subspan(std::size_t{h} * spec.value_dim, spec.value_dim));
  }
}

void plant_mask(Planted& planted, std::string_view fault, backend::HostState& state) {
  const backend::Attend op = choose<backend::Attend>(
      planted, fault, &backend::Attend::out, [](const backend::Attend& attend) {
        return attend.spec.causal && !attend.spec.sinks && !attend.selection;
      });
  planted.behind.push_back(std::make_unique<Hook>(planted.name(op.query),
                                                  [&planted](const Step&, std::span<float> rows) {
                                                    planted.query.assign(rows.begin(), rows.end());
                                                  }));
  planted.before.push_back(std::make_unique<Hook>(
      planted.site, [&planted, &state, op](const Step& step, std::span<float> rows) {
        each_row(step, [&](const Segment& segment, std::size_t row, std::uint32_t position) {
          attend_one_less(op, state, segment, position,
                          std::span(planted.query).subspan(row * op.query.width, op.query.width),
                          rows.subspan(row * op.out.width, op.out.width));
        });
      }));
}

void plant_rope(Planted& planted, std::string_view fault, backend::HostState&) {
  auto& op = choose<backend::Rotate>(planted, fault, &backend::Rotate::out,
                                     [&](const backend::Rotate& rotate) {
                                       return planted.program.ropes[rotate.rope].rotary_dim > 2;
                                     });
  algorithm::RopeSpec spec = planted.program.ropes[op.rope];
  spec.layout = spec.layout == algorithm::RopeLayout::kSplitHalf
                    ? algorithm::RopeLayout::kInterleaved
                    : algorithm::RopeLayout::kSplitHalf;
  op.rope = planted.program.rope(spec);
}

void plant_route_order(Planted& planted, std::string_view fault, backend::HostState&) {
  const backend::Route op =
      choose<backend::Route>(planted, fault, &backend::Route::ids,
                             [](const backend::Route& route) { return route.ids.width > 1; });
  planted.before.push_back(
      std::make_unique<Hook>(planted.site, [op](const Step&, std::span<float> ids) {
        for (std::size_t at = 0; at < ids.size(); at += op.ids.width)
          std::swap(ids[at], ids[at + 1]);
      }));
}

void plant_row(Planted& planted, std::string_view fault, backend::HostState&) {
  const backend::Store op =
      choose<backend::Store>(planted, fault, &backend::Store::in, [&](const backend::Store& store) {
        // Rows that something else reads as well would be wrong before they are stored.
        std::size_t readers = 0;
        for (const Operation& operation : planted.program.operations)
          for (const backend::Tensor tensor : backend::inputs(operation))
            readers += tensor.id == store.in.id;
        return readers == 1;
      });
  planted.behind.push_back(
      std::make_unique<Hook>(planted.site, [op](const Step& step, std::span<float> rows) {
        each_row(step, [&](const Segment&, std::size_t row, std::uint32_t position) {
          if (position != kStoredWrongly) return;
          const std::span<float> values = rows.subspan(row * op.in.width, op.in.width);
          std::rotate(values.begin(), values.begin() + 1, values.end());
        });
      }));
}

void plant_eps(Planted& planted, std::string_view fault, backend::HostState&) {
  auto& op = choose<backend::Norm>(planted, fault, &backend::Norm::out,
                                   [](const backend::Norm& norm) { return norm.spec.eps > 0.f; });
  op.spec.eps *= 100.f;
}

struct Fault {
  std::string_view name;
  void (*plant)(Planted&, std::string_view, backend::HostState&);
};
constexpr Fault kFaults[] = {{"mask", plant_mask},
                             {"rope", plant_rope},
                             {"route-order", plant_route_order},
                             {"row", plant_row},
                             {"eps", plant_eps}};

/// Keeps the program and the observers of the backend's own executable.
class FaultyExecutable final : public backend::Executable {
 public:
  FaultyExecutable(backend::Backend& backend, std::unique_ptr<Planted> planted,
                   backend::StateStore& state, backend::PrepareOptions options)
      : planted_(std::move(planted)) {
    for (const auto& hook : planted_->before) observers_.push_back(hook.get());
    observers_.insert(observers_.end(), options.observers.begin(), options.observers.end());
    for (const auto& hook : planted_->behind) observers_.push_back(hook.get());
    options.observers = observers_;
    inner_ = backend.prepare(planted_->program, state, options);
  }
  std::span<const backend::SegmentResult> run(const Step& step) noexcept override {
    return inner_->run(step);
  }
  std::span<const float> logits(std::size_t i) const noexcept override { return inner_->logits(i); }
  std::vector<backend::Placement> placements() const override { return inner_->placements(); }
  std::size_t scratch_bytes() const noexcept override { return inner_->scratch_bytes(); }

 private:
  std::unique_ptr<Planted> planted_;
  std::vector<backend::Observer*> observers_;
  std::unique_ptr<backend::Executable> inner_;
};

class FaultyBackend final : public backend::Backend {
 public:
  FaultyBackend(std::unique_ptr<backend::Backend> right, const Fault& fault)
      : right_(std::move(right)), fault_(fault) {}
  std::string_view name() const noexcept override { return right_->name(); }
  std::string description() const override {
    return right_->description() + ", with the planted fault '" + std::string(fault_.name) + "'";
  }
  backend::WeightId add(weights::Matrix matrix, backend::WeightUse use) override {
    return right_->add(std::move(matrix), use);
  }
  std::size_t weight_bytes() const noexcept override { return right_->weight_bytes(); }
  std::unique_ptr<backend::StateStore> make_state(const state::Layout& layout,
                                                  std::span<const std::size_t> pages) override {
    return right_->make_state(layout, pages);
  }
  std::unique_ptr<backend::Executable> prepare(const Program& program, backend::StateStore& state,
                                               const backend::PrepareOptions& options) override {
    auto* const host = dynamic_cast<backend::HostState*>(&state);
    LEMMA_CHECK(host != nullptr);
    auto planted = std::make_unique<Planted>(program);
    fault_.plant(*planted, fault_.name, *host);
    base::log(base::LogLevel::kWarning, "the fault '{}' is planted at {}", fault_.name,
              planted->site);
    return std::make_unique<FaultyExecutable>(*right_, std::move(planted), state, options);
  }

 private:
  std::unique_ptr<backend::Backend> right_;
  const Fault& fault_;
};

}  // namespace

std::unique_ptr<backend::Backend> with_fault(std::unique_ptr<backend::Backend> backend) {
  const char* const name = std::getenv("LEMMA_FAULT");
  if (name == nullptr) return backend;
  for (const Fault& fault : kFaults)
    if (fault.name == name) return std::make_unique<FaultyBackend>(std::move(backend), fault);
  base::raise(ErrorKind::kUsage,
              "LEMMA_FAULT: expected mask, rope, route-order, row or eps, found '{}'", name);
}

}  // namespace lemma::cpu
