// SPDX-License-Identifier: Apache-2.0
// Kernels for AArch64 with Advanced SIMD and the dot product instructions: 4 lanes, so a panel is
// four vectors wide. What the members of Simd mean is written in kernels_scalar.cpp.
#include <arm_neon.h>

#include "backend/cpu/kernels/make_table.hpp"

namespace lemma::cpu {
namespace {
namespace neon {

struct Simd {
  static constexpr std::size_t kLanes = 4;
  // 4 x 4 sums of f32 products in 32 registers; two rows of four i32 and four f32 sums.
  static constexpr std::size_t kProductRows = 4;
  static constexpr std::size_t kProductColumns4 = 4;
  static constexpr std::size_t kFloatRows = 3;
  static constexpr std::size_t kInt8Rows = 2;
  static constexpr std::size_t kExpandFrom = 48;
  using F = float32x4_t;
  using I = int32x4_t;

  static F zero() { return vdupq_n_f32(0.f); }
  static F set(float x) { return vdupq_n_f32(x); }
  static F load(const float* x) { return vld1q_f32(x); }
  static F load(const F16* x) { return load_f16(reinterpret_cast<const std::byte*>(x)); }
  static F load(const BF16* x) {
    const uint16x4_t half = vld1_u16(reinterpret_cast<const std::uint16_t*>(x));
    return vreinterpretq_f32_u32(vshll_n_u16(half, 16));
  }
  static void store(float* out, F x) { vst1q_f32(out, x); }
  static F add(F a, F b) { return vaddq_f32(a, b); }
  static F mul(F a, F b) { return vmulq_f32(a, b); }
  static F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
  static F fnma(F a, F b, F c) { return vfmsq_f32(c, a, b); }
  static void transpose(F (&x)[4]) {
    const float32x4x2_t a = vzipq_f32(x[0], x[2]), b = vzipq_f32(x[1], x[3]);
    const float32x4x2_t low = vzipq_f32(a.val[0], b.val[0]), high = vzipq_f32(a.val[1], b.val[1]);
    x[0] = low.val[0];
    x[1] = low.val[1];
    x[2] = high.val[0];
    x[3] = high.val[1];
  }

  static F load_f16(const std::byte* at) {
    uint16x4_t bits;
    __builtin_memcpy(&bits, at, 8);
    return vcvt_f32_f16(vreinterpret_f16_u16(bits));
  }
  static F load_f32(const std::byte* at) {
    F x;
    __builtin_memcpy(&x, at, 16);
    return x;
  }
  static F load_u8(const std::byte* at) { return vcvtq_f32_u32(four_u8(at)); }
  static F load_s8(const std::byte* at) {
    const int8x8_t bytes = vreinterpret_s8_u32(vdup_n_u32(four(at)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(bytes))));
  }

  static F load_e8m0(const std::byte* at) {
    const uint32x4_t doubled = vmaxq_u32(vshlq_n_u32(four_u8(at), 23), vdupq_n_u32(0x00400000));
    const int32x4_t lower = vsubq_s32(vreinterpretq_s32_u32(doubled), vdupq_n_s32(0x00800000));
    return vreinterpretq_f32_s32(vmaxq_s32(lower, vreinterpretq_s32_u32(vshrq_n_u32(doubled, 1))));
  }
  static F load_e4m3(const std::byte* at) {
    return vmulq_n_f32(vreinterpretq_f32_u32(vshlq_n_u32(four_u8(at), 20)), 0x1p119f);
  }

  static I set_int(std::int32_t x) { return vdupq_n_s32(x); }
  static F to_float(I x) { return vcvtq_f32_s32(x); }
  static I splat4(const std::int8_t* a) {
    return vreinterpretq_s32_u32(vdupq_n_u32(four(reinterpret_cast<const std::byte*>(a))));
  }
  static I codes(const std::byte* at) {
    return vreinterpretq_s32_u8(vld1q_u8(reinterpret_cast<const std::uint8_t*>(at)));
  }
  static void store_codes(std::byte* to, I x) {
    vst1q_u8(reinterpret_cast<std::uint8_t*>(to), vreinterpretq_u8_s32(x));
  }
  static I signed_codes(const std::byte* at) { return codes(at); }
  template <int Count, int From, int To = 0>
  static I bits(I x) {
    uint8x16_t bytes = vreinterpretq_u8_s32(x);
    if constexpr (From > To) bytes = vshrq_n_u8(bytes, From - To);
    if constexpr (From < To) bytes = vshlq_n_u8(bytes, To - From);
    return vreinterpretq_s32_u8(vandq_u8(bytes, vdupq_n_u8(((1 << Count) - 1) << To)));
  }
  static I bit_or(I a, I b) { return vorrq_s32(a, b); }
  template <int Count, int From, int To>
  static I or_bits(I into, I x) {
    return bit_or(into, bits<Count, From, To>(x));
  }

  template <int Count, int From, int To = 0>
  static I halves(I x) {
    uint16x8_t all = vreinterpretq_u16_s32(x);
    if constexpr (From > To) all = vshrq_n_u16(all, From - To);
    if constexpr (From < To) all = vshlq_n_u16(all, To - From);
    return vreinterpretq_s32_u16(vandq_u16(all, vdupq_n_u16(((1 << Count) - 1) << To)));
  }
  template <int Count, int From, int To>
  static I or_halves(I into, I x) {
    return bit_or(into, halves<Count, From, To>(x));
  }
  static I shift_halves(I x, int count) {
    const int16x8_t left = vdupq_n_s16(static_cast<std::int16_t>(-count));
    return vreinterpretq_s32_u16(vshlq_u16(vreinterpretq_u16_s32(x), left));
  }
  static I less_four_times(I a, I b) {
    return vreinterpretq_s32_s16(
        vsubq_s16(vreinterpretq_s16_s32(a), vshlq_n_s16(vreinterpretq_s16_s32(b), 2)));
  }
  template <int Down, int Up>
  static I join(I low, I high) {
    if constexpr (Down > 0) low = vshrq_n_s32(low, Down);
    return vbslq_s32(vdupq_n_u32(0xffff), low, vshlq_n_s32(high, Up));
  }
  using Table = int8x16_t;
  static Table table(const std::byte* at) {
    return vld1q_s8(reinterpret_cast<const std::int8_t*>(at));
  }
  static I lookup(Table t, I x) {
    return vreinterpretq_s32_s8(vqtbl1q_s8(t, vreinterpretq_u8_s32(x)));
  }

  template <int Byte>
  static I spread(I x) {
    const uint8x16_t from =
        vreinterpretq_u8_u32(uint32x4_t{0x01010101u * Byte, 0x01010101u * (4 + Byte),
                                        0x01010101u * (8 + Byte), 0x01010101u * (12 + Byte)});
    return vreinterpretq_s32_u8(vqtbl1q_u8(vreinterpretq_u8_s32(x), from));
  }
  static I times(I x, I factor) {
    return vreinterpretq_s32_s8(vmulq_s8(vreinterpretq_s8_s32(x), vreinterpretq_s8_s32(factor)));
  }
  template <int From>
  static I less_than(I x) {
    return vreinterpretq_s32_s8(vsubq_s8(vdupq_n_s8(From), vreinterpretq_s8_s32(x)));
  }
  static I as_signed(I x) { return x; }

  static constexpr int kSignedOffset = 0;
  static constexpr bool kDotsAreOne = true;
  static I dot_unsigned(I sum, I w, I a) { return dot_signed(sum, w, a); }  // 0..127 are signed too
  static constexpr bool kWideBytes = false;
  static I dot_bytes(I sum, I w, I a) { return dot_signed(sum, w, a); }
  static I dot_signed(I sum, I w, I a) {
    return vdotq_s32(sum, vreinterpretq_s8_s32(w), vreinterpretq_s8_s32(a));
  }
  static I dot_pairs(I a, I b) {
    const int16x8_t x = vreinterpretq_s16_s32(a), y = vreinterpretq_s16_s32(b);
    return vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y));
  }

 private:
  static uint32x4_t four_u8(const std::byte* at) {
    return vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four(at))))));
  }
  static std::uint32_t four(const std::byte* at) {
    std::uint32_t bytes;
    __builtin_memcpy(&bytes, at, 4);
    return bytes;
  }
};

}  // namespace neon
}  // namespace

constinit const KernelTable kNeonKernels = make_table<neon::Simd>("neon");

}  // namespace lemma::cpu
