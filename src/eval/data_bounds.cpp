// SPDX-License-Identifier: Apache-2.0
#include "eval/data_bounds.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "algorithm/ffn/dense_mlp.hpp"
#include "algorithm/tolerance.hpp"
#include "backend/tensor_arena.hpp"
#include "base/check.hpp"
#include "base/overloaded.hpp"
#include "runtime/recorded_weights.hpp"
#include "weights/format.hpp"

namespace lemma::eval {
namespace {

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

/// How far one output of `matrix` may be moved by what rounds.
double bound(const weights::Matrix& matrix, Rounding rounds, std::span<const float> w,
             std::span<const float> x) {
  if (rounds.int8 && weights::traits(matrix.format).block_elements > 1)
    return algorithm::tolerance::int8_bound(w, x);  // all else rounds less
  if (matrix.format == weights::Format::kF32) return 0.0;
  if (rounds.whole) return algorithm::tolerance::whole_bound(w, x);
  if (!rounds.bf16) return 0.0;
  return algorithm::tolerance::bf16_bound(w, x, matrix.format != weights::Format::kBF16);
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

/// A product's outputs and how far rounded activations may move them, [rows, outputs] each.
struct DataBounds::Product {
  std::vector<float> values;
  std::vector<double> bounds;
};

DataBounds::Product DataBounds::product(backend::WeightId weight, const std::vector<float>& bias,
                                        std::span<const float> in) const {
  const weights::Matrix& matrix = weights_[std::size_t(weight)];
  const Rounding rounds = rounding();
  const std::size_t rows = in.size() / matrix.cols;
  Product result{std::vector<float>(rows * matrix.rows), std::vector<double>(rows * matrix.rows)};
  each_output(matrix, [&](std::uint64_t o, std::span<const float> w) {
    for (std::size_t r = 0; r < rows; ++r) {
      const auto x = in.subspan(r * matrix.cols, matrix.cols);
      double sum = bias.empty() ? 0.0 : double(bias[o]);
      for (std::size_t i = 0; i < x.size(); ++i) sum += double(w[i]) * double(x[i]);
      result.values[r * matrix.rows + o] = static_cast<float>(sum);
      result.bounds[r * matrix.rows + o] = bound(matrix, rounds, w, x);
    }
  });
  return result;
}

/// What the operation that is being entered does to the step's rows.
Rounding DataBounds::rounding() const {
  Rounding rounds = rounds_[next_];
  rounds.bf16 &= entered_;
  rounds.whole &= entered_;
  rounds.whole_attention &= entered_;
  return rounds;
}

DataBounds::DataBounds(const runtime::LoadedModel& model, std::vector<Rounding> rounds)
    : rounds_(std::move(rounds)) {
  runtime::RecordedWeights recorded = runtime::record_weights(model);
  program_ = std::move(recorded.program);
  weights_ = std::move(recorded.matrices);
  LEMMA_CHECK(rounds_.size() == program_.operations.size());
  readers_.assign(program_.tensors.size(), -1);
  writers_ = readers_;
  for (std::size_t i = 0; i < program_.operations.size(); ++i) {
    const backend::Operation& operation = program_.operations[i];
    for (const backend::Tensor tensor : backend::outputs(operation))
      writers_[std::size_t(tensor.id)] = static_cast<std::int32_t>(i);
    watch(operation);
    if (!reads(i)) continue;
    for (const backend::Tensor tensor : backend::inputs(operation))
      readers_[std::size_t(tensor.id)] = static_cast<std::int32_t>(i);
  }
}

/// Notes the longest rows of the slots that an attention reads.
void DataBounds::watch(const backend::Operation& operation) {
  if (const auto* attend = std::get_if<backend::Attend>(&operation))
    watch(attend->key, attend->spec.head_dim, attend->spec.kv_heads);
  if (const auto* latent = std::get_if<backend::AttendLatent>(&operation)) {
    watch(latent->latent, latent->spec.latent_rank, 1);
    if (latent->rope >= 0) watch(latent->rope, latent->spec.rope_dim, 1);
  }
  if (const auto* sparse = std::get_if<backend::AttendCompressed>(&operation))
    watch(sparse->rows, sparse->spec.head_dim, 1);
  if (const auto* compress = std::get_if<backend::Compress>(&operation);
      compress && compress->entry) {
    // An entry is normed: no longer than sqrt(width) times the largest weight.
    double largest = 0;
    for (const float w : to_f32(weights_[std::size_t(compress->norm)]))
      largest = std::max(largest, std::abs(double(w)));
    stored_[compress->rows].longest = {largest * std::sqrt(double(compress->spec.width))};
  }
}

void DataBounds::watch(backend::SlotId slot, std::uint32_t head_dim, std::size_t heads) {
  stored_[slot].head_dim = head_dim;
  stored_[slot].longest.resize(heads);
}

/// Whether anything is worked out from the inputs of an operation.
bool DataBounds::reads(std::size_t operation) const {
  const backend::Operation& op = program_.operations[operation];
  if (std::holds_alternative<backend::Store>(op)) return true;
  if (std::holds_alternative<backend::Attend>(op)) return true;
  if (std::holds_alternative<backend::AttendLatent>(op)) return true;
  if (std::holds_alternative<backend::AttendCompressed>(op)) return true;
  return rounds_[operation] &&
         (std::holds_alternative<backend::Project>(op) || std::holds_alternative<backend::Mlp>(op));
}

void DataBounds::begin(bool entered) {
  entered_ = entered;
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
                         [&](const backend::AttendLatent& op) { enter(op, source); },
                         [&](const backend::AttendCompressed& op) { enter(op, source); },
                         [&](const backend::Project& op) { enter(op, source); },
                         [&](const backend::Mlp& op) { enter(op, source); }, [](const auto&) {}},
        program_.operations[next_]);
  }
}

void DataBounds::enter(const backend::Project& op, RowSource& source) {
  for (const backend::Project::Output& output : op.outputs)
    slack_[output.out.id] = product(output.weight, {}, source.rows(op.in.id)).bounds;
}

void DataBounds::enter(const backend::Mlp& op, RowSource& source) {
  const auto bias = [&](backend::WeightId id) {
    return id == backend::kNoWeight ? std::vector<float>{} : to_f32(weights_[std::size_t(id)]);
  };
  const std::span<const float> in = source.rows(op.in.id);
  const Product up = product(op.up, bias(op.up_bias), in);
  Product gate;
  if (op.spec.gated) gate = product(op.gate, bias(op.gate_bias), in);

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
  const Rounding rounds = rounding();
  const std::size_t rows = hidden.size() / down.cols;
  std::vector<double>& slack = slack_[op.out.id];
  slack.resize(rows * down.rows);
  each_output(down, [&](std::uint64_t o, std::span<const float> w) {
    for (std::size_t r = 0; r < rows; ++r) {
      const std::size_t begin = r * down.cols;
      double sum = 0;
      for (std::size_t i = 0; i < w.size(); ++i)
        sum += double(w[i]) * double(w[i]) * variance[begin + i];
      const double own =
          bound(down, rounds, w, std::span<const float>(hidden).subspan(begin, down.cols));
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

// By the inequality of Cauchy and Schwarz no score is above |q| |k| scale. Keys of layers that
// share a slot were entered by the layer that owns it.

void DataBounds::enter(const backend::Attend& op, RowSource& source) {
  const algorithm::GqaSpec& spec = op.spec;
  const std::span<const float> queries = source.rows(op.query.id);
  std::vector<double> scores(queries.size() / op.query.width);
  const Stored& keys = stored_[op.key];
  for (std::size_t r = 0; r < scores.size(); ++r)
    for (std::uint32_t h = 0; h < spec.query_heads; ++h) {
      const auto query = queries.subspan(r * op.query.width + h * spec.head_dim, spec.head_dim);
      scores[r] = std::max(
          scores[r], norm(query) * keys.longest[spec.kv_head(h)] * std::abs(double(spec.scale)));
    }
  allow_scores(op.out, scores);
  // A merged sum of values that cancel keeps the rounding of the values.
  const double value = stored_[op.value].largest;
  const double of_values = algorithm::tolerance::kAttend.absolute_of_max * value;
  const double of_weights =
      rounding().whole_attention ? algorithm::tolerance::kWholeValues * value : 0.0;
  std::vector<double>& slack = slack_[op.out.id];
  for (const double times : scale_[op.out.id])
    slack.insert(slack.end(), op.out.width, times * of_values + of_weights);
}

void DataBounds::enter(const backend::AttendLatent& op, RowSource& source) {
  const algorithm::MlaSpec& spec = op.spec;
  const std::span<const float> queries = source.rows(op.query.id);
  std::vector<double> scores(queries.size() / op.query.width);
  const double latent = stored_[op.latent].longest[0];
  const double rope = op.rope >= 0 ? stored_[op.rope].longest[0] : 0.0;
  const std::vector<float> key_up = to_f32(weights_[std::size_t(op.key_up)]);
  const std::size_t c = spec.latent_rank, dn = spec.nope_dim;
  std::vector<float> absorbed(c);  // the query as a latent sees it
  for (std::size_t r = 0; r < scores.size(); ++r)
    for (std::size_t h = 0; h < spec.heads; ++h) {
      const auto query =
          queries.subspan(r * op.query.width + h * spec.query_dim(), spec.query_dim());
      std::fill(absorbed.begin(), absorbed.end(), 0.f);
      for (std::size_t d = 0; d < dn; ++d)
        for (std::size_t i = 0; i < c; ++i)
          absorbed[i] += query[d] * (op.key_up_transposed ? key_up[(h * c + i) * dn + d]
                                                          : key_up[(h * dn + d) * c + i]);
      const double score = norm(absorbed) * latent + norm(query.subspan(dn)) * rope;
      scores[r] = std::max(scores[r], score * std::abs(double(spec.scale)));
    }
  allow_scores(op.out, scores);
}

void DataBounds::enter(const backend::AttendCompressed& op, RowSource& source) {
  const algorithm::CompressedSparseSpec& spec = op.spec;
  const std::span<const float> queries = source.rows(op.query.id);
  std::vector<double> scores(queries.size() / op.query.width);
  double longest = stored_[op.rows].longest[0];
  if (op.entries >= 0) longest = std::max(longest, stored_[op.entries].longest[0]);
  for (std::size_t r = 0; r < scores.size(); ++r)
    for (std::size_t h = 0; h < spec.heads; ++h) {
      const auto query = queries.subspan(r * op.query.width + h * spec.head_dim, spec.head_dim);
      scores[r] = std::max(scores[r], norm(query) * longest * std::abs(double(spec.scale)));
    }
  allow_scores(op.out, scores);
}

void DataBounds::allow_scores(backend::Tensor out, std::span<const double> scores) {
  constexpr double kDerivedFor = 50.0;  // see tolerance::kAttend
  std::vector<double>& scale = scale_[out.id];
  scale.clear();
  for (const double score : scores) scale.push_back(std::max(1.0, score / kDerivedFor));
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
