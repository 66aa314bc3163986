// SPDX-License-Identifier: Apache-2.0
// Latent attention in its absorbed form. Three passes, each over all rows of the step: every head's
// query is taken through the transposed key half, so that it meets latents; all heads attend to the
// same latent rows; and the mean latent is taken through the value half. Nothing is expanded, so a
// cached token is read once for a group of heads.
//
//   absorbed [T, H, c + dr padded]: queries first; the mean latent then takes a query's place
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <vector>

#include "algorithm/attention/gqa.hpp"
#include "backend/cpu/executor.hpp"
#include "backend/cpu/linear.hpp"
#include "backend/cpu/pieces.hpp"
#include "base/check.hpp"
#include "base/half.hpp"

namespace lemma::cpu {
namespace {

/// Heads that share a piece of decoded latents: enough to pay for decoding it, few enough for their
/// sums to stay in the cache, and for one row's heads to be spread over threads.
constexpr std::size_t kHeadGroup = 16;
constexpr float kLargestF16 = 65504.f;

class AttendLatentExecutor final : public Executor {
 public:
  AttendLatentExecutor(const backend::AttendLatent& op, const Context& context)
      : op_(op),
        heads_(op.spec.heads),
        rank_(op.spec.latent_rank),
        nope_(op.spec.nope_dim),
        width_(padded(rank_ + op.spec.rope_dim)),
        list_limit_(op.selection ? op.selection.width - 1 : 0),
        value_up_(context, op.value_up, backend::kNoWeight) {
    const algorithm::MlaSpec& spec = op.spec;
    LEMMA_CHECK(op.query.width == spec.heads * spec.query_dim());
    LEMMA_CHECK(op.out.width == spec.heads * spec.value_dim);
    LEMMA_CHECK(value_up_.outputs() == op.out.width && value_up_.cols() == rank_);
    if (op.key_up_transposed && nope_ > 0) {
      key_up_ = Linear(context, op.key_up, backend::kNoWeight);
      LEMMA_CHECK(key_up_.outputs() == heads_ * rank_ && key_up_.cols() == nope_);
    }
    const std::size_t rows = context.max_rows;
    absorbed_ = base::AlignedBuffer::uninitialized(rows * heads_ * width_ * sizeof(float));
    if (key_up_ && key_up_.wants_int8())
      quantized_ = QuantizedBuffer(context.kernels, rows, heads_ * nope_);
    if (value_up_.wants_int8())
      quantized_mean_ = QuantizedBuffer(context.kernels, rows, heads_ * rank_);
    if (!op.key_up_transposed && nope_ > 0) take_key_rows(context);
    const bool decodes = !op.key_up_transposed && nope_ > 0 && key_rows_.first == nullptr;
    const std::size_t group = std::min(kHeadGroup, heads_);
    const WholeAttention* const whole = whole_attention(context.kernels, context.weights);
    whole_ = whole != nullptr;
    for (int t = 0; t < context.pool.threads(); ++t) {
      scratch_.push_back(
          {std::vector<float>(decodes ? nope_ * padded(rank_) : 0),
           std::vector<std::uint32_t>(list_limit_),
           Pieces(whole, Context::kRowBlock * group, rank_ + spec.rope_dim, rank_, true)});
    }
    temper_.temperature_scale = spec.temperature_scale;
    temper_.temperature_floor = spec.temperature_floor;
  }

  void run(Context& context) noexcept override {
    absorb(context);
    attend(context);
    expand(context);
    if (op_.selection) context.settle(op_.selection);
  }

  std::string implementation() const override {
    const std::string whole = whole_ ? std::string(", ") + kWholeImplementation : "";
    if (key_up_) return "absorbed, " + implementations({&key_up_, &value_up_}) + whole;
    const char* const key = !key_copy_.empty() ? ", key half as f16" : "";
    return "absorbed, " + value_up_.describe() + key + whole;
  }
  std::string format() const override { return formats({&key_up_, &value_up_}); }
  std::size_t scratch_bytes() const noexcept override {
    const Scratch& s = scratch_.front();
    return absorbed_.size() + key_copy_.size() + quantized_.bytes() + quantized_mean_.bytes() +
           scratch_.size() * (s.key_up.size() * sizeof(float) +
                              s.list.size() * sizeof(std::uint32_t) + s.pieces.bytes());
  }

 private:
  struct Scratch {
    std::vector<float> key_up;  ///< one head's [dn, c padded], decoded
    std::vector<std::uint32_t> list;
    Pieces pieces;
  };

  float* absorbed(std::size_t row, std::size_t head) noexcept {
    return reinterpret_cast<float*>(absorbed_.data()) + (row * heads_ + head) * width_;
  }

  // The queries.

  void absorb(Context& context) noexcept {
    const std::size_t rows = context.rows(), query = op_.spec.query_dim();
    if (!quantized_.empty()) {  // by head, and then by row: a head's rows must be neighbours
      context.each(heads_ * rows, rows * heads_ * nope_, [&](std::size_t item, int) {
        context.kernels.quantize(context.arena.row(op_.query, item % rows) + item / rows * query,
                                 nope_, quantized_.rows(nope_, item));
      });
    }
    // A head is cut along the latent where its product is one of packed panels.
    const std::size_t chunks = key_up_ ? (rank_ + Linear::kChunk - 1) / Linear::kChunk : 1;
    context.each(heads_ * chunks, rows * heads_ * nope_ * rank_, [&](std::size_t item, int thread) {
      const std::size_t head = item / chunks, chunk = item % chunks;
      if (key_up_) {
        multiply_transposed(context, head, chunk * Linear::kChunk);
      } else if (nope_ > 0) {
        multiply_rows(context, head, scratch_[static_cast<std::size_t>(thread)].key_up.data());
      }
    });
    context.each_rows([&](std::size_t begin, std::size_t end) {
      for (std::size_t r = begin; r < end; ++r) complete_queries(context, r);
    });
  }

  /// Outputs [first, ...) of one head's query from a weight [H * c, dn].
  void multiply_transposed(Context& context, std::size_t head, std::size_t first) noexcept {
    const std::size_t query = op_.spec.query_dim();
    ProductInput in{
        context.arena.data(op_.query) + head * query, {}, context.runs(), op_.query.width};
    if (!quantized_.empty()) in.quantized = quantized_.rows(nope_, head * context.rows());
    key_up_.run(context.kernels, in, head * rank_ + first, std::min(Linear::kChunk, rank_ - first),
                absorbed(0, head) + first, heads_ * width_);
  }

  /// A key half [H * dn, c] in 16 bits, whose rows are the terms of a sum over dn: panels as they
  /// lie, in the file where it has them like that. Of a quantized one a copy in f16 is made, whose
  /// rounding is far below that of the int8 rows which the value half meets; where that meets none,
  /// as in strict numerics, the key half stays as it is and is decoded for every step.
  void take_key_rows(const Context& context) {
    const weights::Matrix& matrix = context.weight(op_.key_up).matrix;
    const bool bf16 = matrix.format == weights::Format::kBF16;
    if ((bf16 || matrix.format == weights::Format::kF16) && rank_ % kPanelRows == 0) {
      key_rows_ = {matrix.bytes, rank_, bf16 ? std::size_t{1} : std::size_t{0}};
      return;
    }
    if (!value_up_.wants_int8()) return;
    const std::size_t stride = padded(rank_);
    key_copy_ = base::AlignedBuffer::zeroed(heads_ * nope_ * stride * sizeof(std::uint16_t));
    std::atomic<bool> fits = true;
    context.pool.parallel_for(heads_ * nope_, nope_, [&](std::size_t begin, std::size_t end) {
      std::vector<float> row(rank_);
      for (std::size_t r = begin; r < end; ++r) {
        weights::traits(matrix.format).dequantize(matrix.row(r), row);
        std::uint16_t* const to = key_copy_.as<std::uint16_t>().data() + r * stride;
        std::transform(row.begin(), row.end(), to, base::f32_to_f16);
        for (const float x : row) {
          if (!(std::fabs(x) <= kLargestF16)) fits = false;
        }
      }
    });
    if (!fits) {
      key_copy_ = {};
      return;
    }
    key_rows_ = {key_copy_.data(), stride, 0};
  }

  /// One head's query from a weight [H * dn, c].
  void multiply_rows(Context& context, std::size_t head, float* panel) noexcept {
    ProductJob job;
    if (key_rows_.first != nullptr) {
      job.panel16 = key_rows_.first + head * nope_ * key_rows_.stride * sizeof(std::uint16_t);
      job.k_stride = key_rows_.stride;
    } else {
      const weights::Matrix& matrix = context.weight(op_.key_up).matrix;
      job.k_stride = padded(rank_);
      for (std::size_t d = 0; d < nope_; ++d) {
        weights::traits(matrix.format)
            .dequantize(matrix.row(head * nope_ + d), {panel + d * job.k_stride, rank_});
      }
      job.panel = panel;
    }
    job.panel_stride = kPanelRows;
    job.k = nope_;
    job.columns = rank_;
    job.x = context.arena.data(op_.query) + head * op_.spec.query_dim();
    job.x_stride = op_.query.width;
    job.rows = context.rows();
    job.out = absorbed(0, head);
    job.out_stride = heads_ * width_;
    if (key_rows_.first != nullptr) {
      context.kernels.product16[key_rows_.format](job);
    } else {
      context.kernels.product(job);
    }
  }

  /// Puts the shared part and zeros behind the absorbed ones, and the temperature on all.
  void complete_queries(const Context& context, std::size_t row) noexcept {
    const std::size_t query = op_.spec.query_dim(), rope = op_.spec.rope_dim;
    const float temperature = algorithm::query_temperature(temper_, context.position_of(row));
    for (std::size_t h = 0; h < heads_; ++h) {
      const float* const in = context.arena.row(op_.query, row) + h * query + nope_;
      float* const out = absorbed(row, h);
      if (nope_ == 0) std::fill_n(out, rank_, 0.f);
      std::copy_n(in, rope, out + rank_);
      for (std::size_t i = 0; i < rank_ + rope; ++i) out[i] *= temperature;
      std::fill(out + rank_ + rope, out + width_, 0.f);
    }
  }

  // The latents.

  void attend(Context& context) noexcept {
    const std::size_t groups = (heads_ + kHeadGroup - 1) / kHeadGroup;
    if (op_.selection) {
      context.each(context.rows() * groups, context.rows() * heads_ * list_limit_ * 2 * width_,
                   [&](std::size_t item, int thread) {
                     attend_list(context, item / groups, item % groups * kHeadGroup,
                                 scratch_[static_cast<std::size_t>(thread)]);
                   });
      return;
    }
    const std::span<const RowBlock> blocks = context.row_blocks();
    std::size_t work = 0;
    for (const backend::Segment& segment : context.step().segments) {
      work += std::size_t{segment.rows} * (segment.past + segment.rows);
    }
    context.each(blocks.size() * groups, work * heads_ * 2 * width_,
                 [&](std::size_t item, int thread) {
                   attend_ranges(context, blocks[item / groups], item % groups * kHeadGroup,
                                 scratch_[static_cast<std::size_t>(thread)]);
                 });
  }

  auto decoder(Context& context, const backend::Segment& segment, Pieces& pieces) const noexcept {
    return [this, &context, &segment, &pieces](std::uint32_t first, std::size_t count,
                                               std::size_t place, std::size_t) {
      float* const out = pieces.key(place);
      const std::size_t stride = pieces.key_stride(), rope = op_.spec.rope_dim;
      context.decode_rows(op_.latent, *segment.sequence, first, count, 0, rank_, out, stride);
      if (rope > 0) {
        context.decode_rows(op_.rope, *segment.sequence, first, count, 0, rope, out + rank_,
                            stride);
      }
      return Pieces::InPlace{};
    };
  }

  void attend_ranges(Context& context, const RowBlock& block, std::size_t head,
                     Scratch& scratch) noexcept {
    const backend::Segment& segment = context.step().segments[block.segment];
    const std::size_t first = segment.first_row + block.first;
    const std::size_t heads = std::min(kHeadGroup, heads_ - head);
    std::array<algorithm::VisibleRange, Context::kRowBlock> ranges;
    for (std::uint32_t i = 0; i < block.rows; ++i) {
      ranges[i] = algorithm::visible_range(segment.past + block.first + i, 0);
    }
    begin(first, block.rows, head, heads, is_entered(segment), scratch);
    scratch.pieces.attend(context.kernels, {op_.spec.scale}, {ranges.data(), block.rows},
                          decoder(context, segment, scratch.pieces));
    finish(first, block.rows, head, heads, scratch.pieces);
  }

  void attend_list(Context& context, std::size_t row, std::size_t head, Scratch& scratch) noexcept {
    const std::size_t heads = std::min(kHeadGroup, heads_ - head);
    const std::span<const std::uint32_t> list =
        read_list(context.arena.row(op_.selection, row), list_limit_, context.position_of(row) + 1,
                  scratch.list);
    begin(row, 1, head, heads, is_entered(context.segment_of(row)), scratch);
    if (list.empty()) {
      context.mark(row);
    } else {
      scratch.pieces.attend(context.kernels, {op_.spec.scale}, list,
                            decoder(context, context.segment_of(row), scratch.pieces));
    }
    finish(row, 1, head, heads, scratch.pieces);
  }

  void begin(std::size_t row, std::size_t rows, std::size_t head, std::size_t heads, bool entered,
             Scratch& scratch) noexcept {
    scratch.pieces.begin({.first = absorbed(row, head),
                          .head_stride = width_,
                          .row_stride = heads_ * width_,
                          .heads = heads,
                          .rows = rows},
                         entered);
  }

  void finish(std::size_t row, std::size_t rows, std::size_t head, std::size_t heads,
              const Pieces& pieces) noexcept {
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t h = 0; h < heads; ++h) {
        pieces.finish(i * heads + h, nullptr, absorbed(row + i, head + h));
      }
    }
  }

  // The values.

  void expand(Context& context) noexcept {
    const std::size_t rows = context.rows(), dim = op_.spec.value_dim;
    if (!quantized_mean_.empty()) {
      context.each(heads_ * rows, rows * heads_ * rank_, [&](std::size_t item, int) {
        context.kernels.quantize(absorbed(item % rows, item / rows), rank_,
                                 quantized_mean_.rows(rank_, item));
      });
    }
    const std::size_t chunks = (dim + Linear::kChunk - 1) / Linear::kChunk;
    context.each(heads_ * chunks, value_up_.work(rows), [&](std::size_t item, int) {
      const std::size_t head = item / chunks, first = item % chunks * Linear::kChunk;
      ProductInput in{absorbed(0, head), {}, context.runs(), heads_ * width_};
      if (!quantized_mean_.empty()) in.quantized = quantized_mean_.rows(rank_, head * rows);
      value_up_.run(context.kernels, in, head * dim + first, std::min(Linear::kChunk, dim - first),
                    context.arena.data(op_.out) + head * dim + first, op_.out.width);
    });
  }

  backend::AttendLatent op_;
  std::size_t heads_, rank_, nope_;
  std::size_t width_;       ///< of an absorbed query, padded
  std::size_t list_limit_;  ///< tokens of a list
  Linear key_up_;           ///< a transposed one
  Linear value_up_;
  struct {
    const std::byte* first = nullptr;  ///< null: the key half is transposed, or decoded
    std::size_t stride = 0;            ///< elements
    std::size_t format = 0;            ///< index of product16
  } key_rows_;
  bool whole_ = false;              ///< entered rows: scores and means in whole numbers
  base::AlignedBuffer key_copy_;    ///< [H * dn, c padded] in f16, where key_rows_ are a copy
  algorithm::GqaSpec temper_;       ///< only its query temperature counts
  base::AlignedBuffer absorbed_;    ///< [max_rows, H, width]
  QuantizedBuffer quantized_;       ///< [H, max_rows, dn]: queries for a transposed int8 key half
  QuantizedBuffer quantized_mean_;  ///< [H, max_rows, c]
  std::vector<Scratch> scratch_;    ///< by thread
};

}  // namespace

std::unique_ptr<Executor> plan(const backend::AttendLatent& op, const Context& context) {
  return std::make_unique<AttendLatentExecutor>(op, context);
}

}  // namespace lemma::cpu
