// SPDX-License-Identifier: Apache-2.0
#include "eval/data_bounds.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <variant>

#include "algorithm/ffn/dense_mlp.hpp"
#include "algorithm/tolerance.hpp"
#include "backend/tensor_arena.hpp"
#include "base/check.hpp"
#include "base/overloaded.hpp"
#include "model/decoder.hpp"
#include "weights/format.hpp"

namespace lemma::eval {
namespace {

/// A backend that only takes weights: recording a plan into it tells which operation has which.
class Collector final : public backend::Backend {
 public:
  explicit Collector(std::vector<weights::Matrix>& matrices) : matrices_(matrices) {}
  std::string_view name() const noexcept override { return "collector"; }
  std::string description() const override { return "collector"; }
  backend::WeightId add(weights::Matrix matrix, backend::WeightUse) override {
    matrices_.push_back(std::move(matrix));
    return static_cast<backend::WeightId>(matrices_.size() - 1);
  }
  std::size_t weight_bytes() const noexcept override { return 0; }
  std::unique_ptr<backend::StateStore> make_state(const state::Layout&,
                                                  std::span<const std::size_t>) override {
    return nullptr;
  }
  std::unique_ptr<backend::Executable> prepare(const backend::Program&, backend::StateStore&,
                                               const backend::PrepareOptions&) override {
    return nullptr;
  }

 private:
  std::vector<weights::Matrix>& matrices_;
};

double norm(std::span<const float> x) {
  double sum = 0;
  for (const float v : x) sum += double(v) * double(v);
  return std::sqrt(sum);
}

/// Calls body(output, decoded weight row [k]) for each output of `matrix`.
template <typename Body>
void each_output(const weights::Matrix& matrix, const Body& body) {
  std::vector<float> row(matrix.cols);
  for (std::uint64_t o = 0; o < matrix.rows; ++o) {
    weights::traits(matrix.format).dequantize(matrix.row(o), row);
    body(o, std::span<const float>(row));
  }
}

/// A product's outputs and how far int8 activations may move them, [rows, outputs] each.
struct Product {
  std::vector<float> values;
  std::vector<double> bounds;
};

Product product(const weights::Matrix& matrix, const std::vector<float>& bias,
                std::span<const float> in) {
  const std::size_t rows = in.size() / matrix.cols;
  Product result{std::vector<float>(rows * matrix.rows), std::vector<double>(rows * matrix.rows)};
  each_output(matrix, [&](std::uint64_t o, std::span<const float> w) {
    for (std::size_t r = 0; r < rows; ++r) {
      const auto x = in.subspan(r * matrix.cols, matrix.cols);
      double sum = bias.empty() ? 0.0 : double(bias[o]);
      for (std::size_t i = 0; i < x.size(); ++i) sum += double(w[i]) * double(x[i]);
      result.values[r * matrix.rows + o] = static_cast<float>(sum);
      result.bounds[r * matrix.rows + o] = algorithm::tolerance::int8_bound(w, x);
    }
  });
  return result;
}

/// How far activate(g, u) moves when its inputs do by at most dg and du.
double moved(const algorithm::ActivationSpec& spec, float g, float u, double dg, double du) {
  const float at = algorithm::activate(spec, g, u);
  const auto step = [&](double by_g, double by_u) {
    return std::abs(double(algorithm::activate(spec, static_cast<float>(double(g) + by_g),
                                               static_cast<float>(double(u) + by_u))) -
                    double(at));
  };
  return std::hypot(std::max(step(dg, 0), step(-dg, 0)), std::max(step(0, du), step(0, -du)));
}

}  // namespace

DataBounds::DataBounds(const runtime::LoadedModel& model, std::vector<bool> rounds)
    : rounds_(std::move(rounds)) {
  Collector collector(weights_);
  program_ = model::record(model.plan(), model.checkpoint(), collector);
  LEMMA_CHECK(rounds_.size() == program_.operations.size());
  readers_.assign(program_.tensors.size(), -1);
  writers_ = readers_;
  for (std::size_t i = 0; i < program_.operations.size(); ++i) {
    const backend::Operation& operation = program_.operations[i];
    for (const backend::Tensor tensor : backend::outputs(operation))
      writers_[std::size_t(tensor.id)] = static_cast<std::int32_t>(i);
    if (const auto* attend = std::get_if<backend::Attend>(&operation)) {
      Stored& keys = stored_[attend->key];
      keys.head_dim = attend->spec.head_dim;
      keys.longest.resize(attend->spec.kv_heads);
    }
    if (!reads(i)) continue;
    for (const backend::Tensor tensor : backend::inputs(operation))
      readers_[std::size_t(tensor.id)] = static_cast<std::int32_t>(i);
  }
}

/// Whether anything is worked out from the inputs of an operation.
bool DataBounds::reads(std::size_t operation) const {
  const backend::Operation& op = program_.operations[operation];
  if (std::holds_alternative<backend::Store>(op)) return true;
  if (std::holds_alternative<backend::Attend>(op)) return true;
  return rounds_[operation] &&
         (std::holds_alternative<backend::Project>(op) || std::holds_alternative<backend::Mlp>(op));
}

void DataBounds::begin() {
  slack_.clear();
  scale_.clear();
  next_ = 0;
}

void DataBounds::forget(std::int32_t tensor) {
  slack_.erase(tensor);
  scale_.erase(tensor);
}

void DataBounds::advance(std::int32_t tensor, RowSource& source) {
  for (; static_cast<std::int32_t>(next_) <= writer(tensor); ++next_) {
    if (!reads(next_)) continue;
    std::visit(
        base::Overloaded{[&](const backend::Store& op) { enter(op, source); },
                         [&](const backend::Attend& op) { enter(op, source); },
                         [&](const backend::Project& op) { enter(op, source); },
                         [&](const backend::Mlp& op) { enter(op, source); }, [](const auto&) {}},
        program_.operations[next_]);
  }
}

void DataBounds::enter(const backend::Project& op, RowSource& source) {
  for (const backend::Project::Output& output : op.outputs)
    slack_[output.out.id] =
        product(weights_[std::size_t(output.weight)], {}, source.rows(op.in.id)).bounds;
}

void DataBounds::enter(const backend::Mlp& op, RowSource& source) {
  const auto bias = [&](backend::WeightId id) {
    return id == backend::kNoWeight ? std::vector<float>{} : to_f32(weights_[std::size_t(id)]);
  };
  const std::span<const float> in = source.rows(op.in.id);
  const Product up = product(weights_[std::size_t(op.up)], bias(op.up_bias), in);
  Product gate;
  if (op.spec.gated) gate = product(weights_[std::size_t(op.gate)], bias(op.gate_bias), in);

  std::vector<float> hidden(up.values.size());
  std::vector<double> variance(hidden.size());
  for (std::size_t i = 0; i < hidden.size(); ++i) {
    const float g = op.spec.gated ? gate.values[i] : up.values[i];
    const float u = op.spec.gated ? up.values[i] : 1.f;
    const double dg = op.spec.gated ? gate.bounds[i] : up.bounds[i];
    const double du = op.spec.gated ? up.bounds[i] : 0.0;
    hidden[i] = algorithm::activate(op.spec.activation, g, u);
    const double off = moved(op.spec.activation, g, u, dg, du);
    variance[i] = off * off;
  }
  const weights::Matrix& down = weights_[std::size_t(op.down)];
  const std::size_t rows = hidden.size() / down.cols;
  std::vector<double>& slack = slack_[op.out.id];
  slack.resize(rows * down.rows);
  each_output(down, [&](std::uint64_t o, std::span<const float> w) {
    for (std::size_t r = 0; r < rows; ++r) {
      const std::size_t begin = r * down.cols;
      double sum = 0;
      for (std::size_t i = 0; i < w.size(); ++i)
        sum += double(w[i]) * double(w[i]) * variance[begin + i];
      const double own = algorithm::tolerance::int8_bound(
          w, std::span<const float>(hidden).subspan(begin, down.cols));
      slack[r * down.rows + o] = std::hypot(std::sqrt(sum), own);
    }
  });
}

void DataBounds::enter(const backend::Store& op, RowSource& source) {
  const std::span<const float> rows = source.rows(op.in.id);
  Stored& stored = stored_[op.slot];
  for (const float x : rows) stored.largest = std::max(stored.largest, std::abs(double(x)));
  if (stored.head_dim == 0) return;
  const std::size_t width = stored.longest.size() * stored.head_dim;
  for (std::size_t i = 0; i + stored.head_dim <= rows.size(); i += stored.head_dim) {
    double& longest = stored.longest[i % width / stored.head_dim];
    longest = std::max(longest, norm(rows.subspan(i, stored.head_dim)));
  }
}

void DataBounds::enter(const backend::Attend& op, RowSource& source) {
  constexpr double kDerivedFor = 50.0;  // scores, see tolerance::kAttend
  const algorithm::GqaSpec& spec = op.spec;
  const std::span<const float> queries = source.rows(op.query.id);
  const std::size_t rows = queries.size() / op.query.width;
  // By the inequality of Cauchy and Schwarz no score is above |q| |k| scale. Keys of layers that
  // share a slot were entered by the layer that owns it.
  const Stored& keys = stored_[op.key];
  std::vector<double>& scale = scale_[op.out.id];
  scale.assign(rows, 1.0);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::uint32_t h = 0; h < spec.query_heads; ++h) {
      const auto query = queries.subspan(r * op.query.width + h * spec.head_dim, spec.head_dim);
      const double score =
          norm(query) * keys.longest[spec.kv_head(h)] * std::abs(double(spec.scale));
      scale[r] = std::max(scale[r], score / kDerivedFor);
    }
  // A merged sum of values that cancel keeps the rounding of the values.
  const double of_values =
      algorithm::tolerance::kAttend.absolute_of_max * stored_[op.value].largest;
  std::vector<double>& slack = slack_[op.out.id];
  for (std::size_t r = 0; r < rows; ++r)
    slack.insert(slack.end(), op.out.width, scale[r] * of_values);
}

std::span<const double> DataBounds::slack(std::int32_t tensor) const {
  const auto found = slack_.find(tensor);
  return found == slack_.end() ? std::span<const double>{} : found->second;
}
std::span<const double> DataBounds::scale(std::int32_t tensor) const {
  const auto found = scale_.find(tensor);
  return found == scale_.end() ? std::span<const double>{} : found->second;
}

}  // namespace lemma::eval
