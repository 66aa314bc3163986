// SPDX-License-Identifier: Apache-2.0
// The table of kernels: what one instruction set offers to the cpu backend. Each instruction set
// is one translation unit that exports one table; which one runs is decided once, at run time.
// A kernel is chosen by (weight format, token class, instruction set) and never by the number of
// rows: every output element is computed by the same sequence of operations whatever else is
// computed beside it, so a row's bits do not depend on its company.
//
// Kernels are pure functions over plain pointers: no allocation, no threads, no errors. This
// header includes nothing with inline code, because an inline function that is compiled with the
// flags of one instruction set could be linked into code that runs on another.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lemma::cpu {

/// The layouts of packed weights that have kernels. Most are one format's; packing.hpp says which
/// formats share the others.
enum class WeightKernel : std::uint8_t {
  // clang-format off
  kF32, kF16, kBF16,
  kQ8_0, kQ4_0, kQ4_K, kQ6_K, kQ5_0, kQ4_1, kQ5_1, kQ2_K, kQ3_K, kQ5_K, kQ8_K,
  kTernary, kBase3,        ///< TQ2_0, TQ1_0: 2-bit codes or digits, one scale in 256 columns
  kTable32, kTable16,      ///< nibbles into a table, a small scale for 32 or 16 of 256 columns
  kSteps32, kSteps16,      ///< IQ1: 2-bit steps with shifts, a small scale for 32 or 16 columns
  kSigned16,               ///< IQ2_XS, IQ2_S: 2-bit magnitudes and signs, a small scale for 16
  kPointsIQ2_XXS, kPointsIQ3_XXS, kPointsIQ3_S,  ///< indices into a grid and signs
  kHalves32,               ///< nibbles into a table, an f16 scale for 32 columns
  kPowers32,               ///< the same, a power of two in 8 bits (E8M0) for 32 columns
  kEights16,               ///< the same, a number of 8 bits (E4M3) for 16 columns
  // clang-format on
};
inline constexpr std::size_t kWeightKernels = 27;
/// Token classes, in the order of state::TokenClass.
inline constexpr std::size_t kTokenClasses = 2;

/// Output rows that a panel interleaves: one 512-bit vector of f32 sums, two 256-bit ones, four of
/// 128 bits. So every instruction set reads the same packed weights without horizontal sums.
inline constexpr std::size_t kPanelRows = 16;
/// Activations that share an int8 scale: the block of Q8_0 and Q4_0, the sub-block of Q4_K.
inline constexpr std::size_t kGroup = 32;
/// Attention goes over keys in pieces of this many positions, cut at absolute multiples.
inline constexpr std::size_t kPiece = 64;
/// Kernels that read rows of the state in place, by their format: f16, bf16.
inline constexpr std::size_t kFormats16 = 2;

/// Rows rounded to int8: x[i] is about codes[i] * scales[i / 32]. A group that holds NaN or
/// infinity has scale NaN, so that what it feeds becomes NaN and is noticed.
struct QuantizedRows {
  std::int8_t* codes = nullptr;  ///< [rows, cols], each in [-127, 127]
  float* scales = nullptr;       ///< [rows, cols / 32]
  float* scaled_sums = nullptr;  ///< [rows, cols / 32]: scale * (sum of the group's codes)
  /// [rows, cols / 32, 3]: the sum of the group's codes, that of its first half, and both halves'
  /// as 16-bit numbers, the first in the lower bits.
  std::int32_t* sums = nullptr;
  /// [rows, cols]: the same rows rounded to bf16, where KernelTable::bf16_rows.
  std::uint16_t* bf16 = nullptr;
  /// [rows] of whole_row_bytes(cols) each: the same rows in whole numbers (project_whole.hpp), for
  /// weights of EnteredRows::kWhole.
  std::byte* whole = nullptr;
};

/// What entered rows are rounded to, for weights of a layout, where generated ones are not.
enum class EnteredRows : std::uint8_t { kAsGenerated, kBf16, kWhole };

/// out[r, o] = weights[o] . x[r] for consecutive panels of packed weights.
struct ProjectJob {
  const std::byte* panels = nullptr;
  std::size_t panel_bytes = 0;  ///< distance of one panel to the next
  std::size_t outputs = 0;      ///< valid outputs, at most 16 per panel; at least 1
  std::size_t cols = 0;         ///< K
  std::size_t rows = 0;         ///< rows of activations
  const float* x = nullptr;     ///< [rows, cols]: F32, F16, BF16
  std::size_t x_stride = 0;
  QuantizedRows quantized;  ///< [rows, cols]: quantized formats
  float* out = nullptr;     ///< [rows, outputs]
  std::size_t out_stride = 0;
};

/// Groups of 32 columns that are expanded at a time: two panels then have 64 KiB of codes, which
/// stay in the second cache. Fewer would fit the first, but every tile's sums would travel more.
inline constexpr std::size_t kExpandedGroups = 64;

/// A panel of quantized weights taken apart for many rows. A weight is (code - offset) * scale,
/// minus a minimum; see ExpandKernel.
struct ExpandedPanel {
  alignas(64) std::byte codes[kExpandedGroups * 512];  ///< [groups][8][16][4]
  alignas(64) float scales[kExpandedGroups * 32];      ///< [groups][parts][16] or [groups / 8][16]
  alignas(64) float minimums[kExpandedGroups * 16];    ///< [groups][16] or [groups / 8][16]
  /// Folded: [groups][16] pairs of 16 bits, the minimums of the halves in units of `minimums`.
  alignas(64) std::byte pairs[kExpandedGroups * 64];
};

/// How panels of one layout are expanded.
struct ExpandKernel {
  /// Groups [begin, end) of a panel of `cols` columns, at most kExpandedGroups.
  void (*expand)(const std::byte* panel, std::size_t cols, std::size_t begin, std::size_t end,
                 ExpandedPanel& to) = nullptr;
  /// What every code has too much; codes are then bytes in 0..255, and signed where it is 0.
  std::int32_t offset = 0;
  std::size_t parts = 1;  ///< scales of a group
  bool minimum = false;
  bool folded = false;  ///< scales of 16 columns are in the codes, and one in 256 columns is left
};

/// Memory to be asked for while other rows are read, as many rows of as many lines: line l of row r
/// is at first + r * stride + 64 l. Null: nothing.
struct Ahead {
  const std::byte* first = nullptr;
  std::size_t stride = 0;
};

/// out[r, c] (+)= sum over k, ascending, of x[r, k] * panel[k, c]. Columns are read in panels of
/// 16, and the last panel must be readable to its end.
struct ProductJob {
  const float* panel = nullptr;
  const std::byte* panel16 = nullptr;  ///< product16: the same in 16 bits
  Ahead ahead;                         ///< a row for each k, a line for 32 columns
  std::size_t k_stride = 0;            ///< elements from one k to the next
  std::size_t panel_stride = 0;        ///< elements from one panel of 16 columns to the next
  std::size_t k = 0;
  std::size_t columns = 0;
  const float* x = nullptr;
  std::size_t x_stride = 0;
  std::size_t rows = 0;
  float* out = nullptr;
  std::size_t out_stride = 0;
  bool accumulate = false;  ///< go on from the sums in `out`
};

/// One query on one piece of keys: its products with the keys become scores and then weights, and
/// the running state of its softmax goes on:
///
///   M' = max(M, scores);  weights = e^(scores - M');  f = e^(M - M')
///   sums *= f;  mass = mass * f + weights;  M = M'
///
/// The mass is kept in 16 lanes, which nobody adds up until all pieces are done. The caller adds
/// the weighted values to `sums`.
struct SoftenJob {
  float* weights = nullptr;               ///< [64]: products; then weights
  const std::int32_t* visible = nullptr;  ///< [64]: 0 where a key is not seen; null: all are
  float scale = 1.f, softcap = 0.f;
  float slope = 0.f, distance = 0.f;  ///< ALiBi: slope * (distance + j) joins score j
  float* largest = nullptr;           ///< M: -inf before the first piece
  float* mass = nullptr;              ///< [16]
  float* sums = nullptr;              ///< [width]
  std::size_t width = 0;
};

/// Turns one head by cos, sin [pairs]; element i is paired with element i + distance, i counted in
/// steps of `step`. `x` and `out` point at the rotary part and may be the same.
struct RotateJob {
  const float* x = nullptr;
  float* out = nullptr;
  const float* cos = nullptr;
  const float* sin = nullptr;
  std::size_t pairs = 0, step = 0, distance = 0;
  bool inverse = false;
};

/// Tokens of the gated delta rule for one head, in order: the matrix forgets, is corrected by beta
/// times what it answers wrongly to the key, and is read by the query.
struct DeltaJob {
  float* matrix = nullptr;  ///< [key_dim, value_dim]
  std::size_t key_dim = 0, value_dim = 0, rows = 0;
  const float* decay = nullptr;  ///< factors: key_dim a row, or one where decay_step is 0
  std::size_t decay_step = 0, decay_stride = 0;
  const float* query = nullptr;  ///< [rows, key_dim], like `key`; `value` is [rows, value_dim]
  const float* key = nullptr;
  const float* value = nullptr;
  std::size_t stride = 0;  ///< of all three
  const float* beta = nullptr;
  std::size_t beta_stride = 0;
  float* out = nullptr;  ///< [rows, value_dim]
  std::size_t out_stride = 0;
  float* scratch = nullptr;  ///< [rows, 2 key_dim + 1]
};

/// One row of a short convolution: out = silu(sum over taps, ascending, of weights[tap] *
/// rows[tap]), channel by channel.
struct ConvolveJob {
  const float* const* rows = nullptr;  ///< [taps]; null: zeros
  const float* weights = nullptr;      ///< [taps, weight_stride]
  std::size_t taps = 0, weight_stride = 0, channels = 0;
  float* out = nullptr;
};

struct WholeAttention;  // attention_whole.hpp

struct KernelTable {
  const char* name;

  void (*project[kWeightKernels][kTokenClasses])(const ProjectJob& job);
  ExpandKernel expand[kWeightKernels];  ///< of quantized formats
  EnteredRows entered[kWeightKernels];  ///< token class 0
  void (*product)(const ProductJob& job);
  void (*product16[kFormats16])(const ProductJob& job);
  /// Rounds `n` (a multiple of 32) elements to the int8 form, and to bf16 as well if `bf16_rows`.
  void (*quantize)(const float* x, std::size_t n, const QuantizedRows& out);
  bool bf16_rows;  ///< entered rows are multiplied as QuantizedRows::bf16 where they have it
  /// Rounds a row of any width to QuantizedRows::whole; null where nothing reads that.
  void (*round_whole)(const float* x, std::size_t cols, std::byte* row);

  void (*soften)(const SoftenJob& job);
  /// out[i][r] = rows[r][i] for 16 rows, `stride` floats apart, of `width` elements, a multiple of
  /// 16: keys as a panel of ProductJob. While it reads rows of 16-bit elements, which lie in the
  /// state and are finite, it also asks for what lies `ahead`.
  void (*transpose)(const float* rows, std::size_t stride, std::size_t width, float* out);
  void (*transpose16[kFormats16])(const std::byte* rows, std::size_t stride, std::size_t width,
                                  const Ahead& ahead, float* out);
  const WholeAttention* whole_attention;  ///< of entered rows; null: in f32 like generated ones
  /// out = out * a + part * b
  void (*merge)(float* out, float a, const float* part, float b, std::size_t n);
  void (*softcap)(float* x, std::size_t n, float cap);  ///< cap * tanh(x / cap)

  double (*sum)(const float* x, std::size_t n);
  double (*sum_of_squares)(const float* x, std::size_t n, double centre);
  /// out = (x - centre) / root * weight + bias, the latter two if not null.
  void (*normalize)(const float* x, std::size_t n, float centre, float root, const float* weight,
                    const float* bias, float* out);

  void (*silu)(const float* gate, const float* up, std::size_t n, float* out);  ///< up: or null
  void (*gelu_tanh)(const float* gate, const float* up, std::size_t n,
                    float* out);  ///< up: or null
  void (*gelu_erf)(const float* gate, const float* up, std::size_t n,
                   float* out);                                                 ///< up: or null
  void (*relu)(const float* gate, const float* up, std::size_t n, float* out);  ///< up: or null
  void (*relu_squared)(const float* gate, const float* up, std::size_t n,
                       float* out);  ///< up: or null
  /// The gated activations of algorithm/ffn/dense_mlp.hpp that have parameters; `up` is given.
  void (*silu_limited)(const float* gate, const float* up, std::size_t n, float limit, bool after,
                       float* out);
  void (*swiglu_oai)(const float* gate, const float* up, std::size_t n, float limit, float alpha,
                     float* out);
  void (*situ)(const float* gate, const float* up, std::size_t n, float beta, float linear_beta,
               float* out);
  void (*gate)(const float* x, const float* gate, std::size_t n,
               float* out);  ///< x * sigmoid(gate)
  void (*rotate)(const RotateJob& job);
  /// out = (a + b * b_scale) * out_scale
  void (*add)(const float* a, const float* b, float b_scale, float out_scale, std::size_t n,
              float* out);
  float (*dot)(const float* a, const float* b, std::size_t n);

  void (*delta_rows)(const DeltaJob& job);
  void (*convolve)(const ConvolveJob& job);
  /// The factors e^g of a recurrent mixer's forgetting, of x = raw + bias: g = -rate softplus(x),
  /// or with a bound below 0 bound * sigmoid(rate x).
  void (*decay)(const float* raw, const float* bias, const float* rate, float bound, std::size_t n,
                float* out);
  /// out[c] = the mean of values[t][c] over t by the softmax of gates[t][c]: `values` and `gates`
  /// are pointers to `tokens` rows of `width` elements.
  void (*pool)(const float* const* values, const float* const* gates, std::size_t tokens,
               std::size_t width, float* out);

  void (*decode_f16)(const std::byte* bytes, std::size_t n, float* out);
  void (*decode_bf16)(const std::byte* bytes, std::size_t n, float* out);
  /// n / group groups: codes and their f16 scales.
  void (*decode_q8)(const std::byte* codes, const std::byte* scales, std::size_t group,
                    std::size_t n, float* out);
};

/// What a level adds to the one below it: other arithmetic for entered rows of some layouts, which
/// the design allows for F16, BF16 and quantized weights. Null: as below.
struct EnteredKernels {
  const char* name;
  void (*project[kWeightKernels])(const ProjectJob& job);
  /// Not null: rounds rows for these kernels too, once for all products that read them.
  void (*quantize)(const float* x, std::size_t n, const QuantizedRows& out) = nullptr;
  /// Not null: these kernels round to whole numbers, and this a row. Null: they round to bf16.
  void (*round_whole)(const float* x, std::size_t cols, std::byte* row) = nullptr;
};

/// The same products with quantized weights by other instructions: the same bits. Null: as below.
struct Int8Kernels {
  const char* name;
  void (*project[kWeightKernels])(const ProjectJob& job);
};

extern const KernelTable kScalarKernels;
extern const KernelTable kAvx2Kernels;            ///< x86-64 builds
extern const Int8Kernels kAvxVnniKernels;         ///< beside kAvx2Kernels
extern const Int8Kernels kEvexVnniKernels;        ///< the same, in tests
extern const KernelTable kAvx512Kernels;          ///< x86-64 builds
extern const KernelTable kAvx512VbmiKernels;      ///< of it, what VBMI does faster
extern const EnteredKernels kAvx512WholeKernels;  ///< beside kAvx512Kernels
extern const EnteredKernels kAmxKernels;          ///< beside kAvx512Kernels
extern const Int8Kernels kAmxInt8Kernels;         ///< beside kAvx512Kernels with VBMI
extern const Int8Kernels kEmulatedTilesKernels;   ///< the same beside kAvx512Kernels, in tests
extern const KernelTable kNeonKernels;            ///< AArch64 builds

}  // namespace lemma::cpu
