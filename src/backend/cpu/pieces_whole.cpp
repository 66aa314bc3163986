// SPDX-License-Identifier: Apache-2.0
// The part of Pieces that computes in whole numbers.
#include "backend/cpu/pieces.hpp"

#include <algorithm>

namespace lemma::cpu {
namespace {

constexpr std::size_t kBytes16 = 2;  ///< of an element that is read in place

}  // namespace

const WholeAttention* whole_attention(const KernelTable& kernels,
                                      const std::deque<Weight>& weights) noexcept {
  const bool f32 = std::all_of(weights.begin(), weights.end(), [](const Weight& weight) {
    return weight.matrix.format == weights::Format::kF32 ||
           weight.matrix.format == weights::Format::kI32;  // a table of ids is no weight
  });
  return f32 ? nullptr : kernels.whole_attention;
}

void Pieces::make_codes(const WholeAttention& kernels, std::size_t queries) {
  codes_.kernels = &kernels;
  codes_.pairs = whole_pairs(key_dim_);
  codes_.blocks = whole_blocks(key_dim_);
  codes_.queries.resize(queries * codes_.pairs);
  codes_.query_scales.resize(queries * codes_.blocks);
  codes_.keys.resize(kPiece * codes_.pairs);
  codes_.key_scales.resize(codes_.blocks * kPiece);
  codes_.weights.resize(queries * kPiece / 2);
  codes_.weight_scales.resize(queries);
  codes_.values.resize(kPiece / 2 * value_width_);
  codes_.value_scales.resize(kPiece);
}

std::size_t Pieces::Codes::bytes() const noexcept {
  return sizeof(float) *
         (queries.size() + query_scales.size() + keys.size() + key_scales.size() + weights.size() +
          weight_scales.size() + values.size() + value_scales.size());
}

void Pieces::round_queries() noexcept {
  for (std::size_t q = 0; q < queries_.all(); ++q) {
    const std::size_t group = q / queries_.of_group(), rest = q % queries_.of_group();
    const float* const query = queries_.first + group * queries_.group_stride +
                               rest / queries_.heads * queries_.row_stride +
                               rest % queries_.heads * queries_.head_stride;
    codes_.kernels->round_query(query, key_dim_, codes_.queries.data() + q * codes_.pairs,
                                codes_.query_scales.data() + q * codes_.blocks);
  }
}

/// Keys and values of a piece, by whole panels of keys and by runs of values.
void Pieces::take_codes(Runs runs) noexcept {
  const WholeAttention& kernels = *codes_.kernels;
  for (std::size_t place = runs.front().begin / kPanelRows * kPanelRows; place < runs.back().end;
       place += kPanelRows) {
    const bool decoded = in_place_.keys == nullptr;
    const std::byte* const rows = decoded
                                      ? reinterpret_cast<const std::byte*>(key(place))
                                      : in_place_.keys + place * in_place_.key_stride * kBytes16;
    kernels.turn_keys[decoded ? WholeAttention::kF32 : in_place_.format](
        rows, decoded ? key_stride_ : in_place_.key_stride, key_dim_,
        codes_.keys.data() + place * codes_.pairs, codes_.key_scales.data() + place, kPiece);
  }
  const bool decoded = in_place_.values == nullptr;
  const std::byte* const values =
      decoded ? reinterpret_cast<const std::byte*>(shared_ ? key(0) : value(0)) : in_place_.values;
  for (const Run& run : runs) {
    kernels.pair_values[decoded ? WholeAttention::kF32 : in_place_.format](
        values, decoded ? value_stride_ : in_place_.value_stride, value_dim_, run.begin, run.end,
        codes_.values.data(), codes_.value_scales.data());
  }
}

void Pieces::multiply_codes(std::size_t row, std::size_t rows, Run places) noexcept {
  const std::size_t from = places.begin / kPanelRows * kPanelRows, q = query_of(row);
  WholeProductJob job;
  job.panel = codes_.keys.data() + from * codes_.pairs;
  job.k_stride = kPanelRows;
  job.panel_stride = kPanelRows * codes_.pairs;
  job.k = codes_.pairs;
  job.columns = padded(places.end) - from;
  job.x = codes_.queries.data() + q * codes_.pairs;
  job.x_stride = codes_.pairs;
  job.rows = rows * queries_.heads;
  job.row_scales = codes_.query_scales.data() + q * codes_.blocks;
  job.row_scale_stride = codes_.blocks;
  job.column_scales = codes_.key_scales.data() + from;
  job.out = weights_.data() + q * kPiece + from;
  job.out_stride = kPiece;
  codes_.kernels->product(job);
}

/// parts += weights x values of the whole piece.
void Pieces::add_coded_values(std::size_t row, std::size_t rows) noexcept {
  const std::size_t q = query_of(row);
  WholeProductJob job;
  job.panel = codes_.values.data();
  job.k_stride = value_width_;
  job.panel_stride = kPanelRows;
  job.k = kPiece / 2;
  job.columns = value_width_;
  job.x = codes_.weights.data() + q * kPiece / 2;
  job.x_stride = kPiece / 2;
  job.rows = rows * queries_.heads;
  job.row_scales = codes_.weight_scales.data() + q;
  job.row_scale_stride = 1;
  job.out = parts_.data() + q * value_width_;
  job.out_stride = value_width_;
  job.accumulate = true;
  codes_.kernels->product(job);
}

}  // namespace lemma::cpu
