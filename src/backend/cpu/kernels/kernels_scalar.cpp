// SPDX-License-Identifier: Apache-2.0
// Kernels for any processor: vectors of one lane. This file is also the specification of `Simd`:
// the other instruction sets give the same members at their own width.
#define LEMMA_ROLLED 1
#include "backend/cpu/kernels/make_table.hpp"

namespace lemma::cpu {
namespace {
namespace scalar {

struct Simd {
  static constexpr std::size_t kLanes = 1;            ///< f32 lanes; divides 16
  static constexpr std::size_t kProductRows = 4;      ///< tallest tile of f32 products
  static constexpr std::size_t kProductColumns4 = 1;  ///< vectors beside each other at 4 rows
  static constexpr std::size_t kFloatRows = 1;        ///< tallest tile of f32 with packed weights
  static constexpr std::size_t kInt8Rows = 1;         ///< tallest tile of int8 products
  /// Rows from which packed int8 panels are expanded, once for all; 0: never. No bits depend on it.
  static constexpr std::size_t kExpandFrom = 0;
  using F = float;         ///< kLanes f32
  using I = std::int32_t;  ///< kLanes i32, or as many groups of 4 bytes

  static F zero() { return 0.f; }
  static F set(float x) { return x; }
  static F load(const float* x) { return *x; }  ///< 16-bit elements may lie at any address
  static F load(const F16* x) { return load_f16(reinterpret_cast<const std::byte*>(x)); }
  static F load(const BF16* x) {
    std::uint16_t bits;
    __builtin_memcpy(&bits, x, 2);
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
  }
  static void store(float* out, F x) { *out = x; }
  static F add(F a, F b) { return a + b; }
  static F mul(F a, F b) { return a * b; }
  static F fma(F a, F b, F c) { return a * b + c; }   ///< fused where the instruction set can
  static F fnma(F a, F b, F c) { return c - a * b; }  ///< c - a * b
  static void transpose(F (&)[1]) {}                  ///< lane j of x[i] and lane i of x[j] trade

  /// kLanes elements at any address.
  static F load_f16(const std::byte* at) {
    std::uint16_t bits;
    __builtin_memcpy(&bits, at, 2);
    return widen(bits);
  }
  static F load_f32(const std::byte* at) {
    F x;
    __builtin_memcpy(&x, at, 4);
    return x;
  }
  static F load_u8(const std::byte* at) {
    return static_cast<float>(static_cast<std::uint8_t>(*at));
  }
  static F load_s8(const std::byte* at) {
    return static_cast<float>(static_cast<std::int8_t>(*at));
  }

  /// 2^(e - 128): half of an E8M0 number, subnormal for e < 2.
  static F load_e8m0(const std::byte* at) {
    const std::int32_t e = static_cast<std::uint8_t>(*at);
    return __builtin_bit_cast(float, e < 2 ? 0x00200000 << e : (e - 1) << 23);
  }
  /// Half of an unsigned E4M3 number: with its exponent in f32's place it is 2^119 too small.
  static F load_e4m3(const std::byte* at) {
    return __builtin_bit_cast(float, static_cast<std::int32_t>(*at) << 20) * 0x1p119f;
  }

  static I set_int(std::int32_t x) { return x; }
  static F to_float(I x) { return static_cast<float>(x); }
  static I splat4(const std::int8_t* a) {  ///< the same 4 bytes in every lane
    I x;
    __builtin_memcpy(&x, a, 4);
    return x;
  }
  static I codes(const std::byte* at) {  ///< 4 * kLanes bytes
    I x;
    __builtin_memcpy(&x, at, 4);
    return x;
  }
  static void store_codes(std::byte* to, I x) { __builtin_memcpy(to, &x, 4); }
  /// Signed codes, prepared for dot_signed.
  static I signed_codes(const std::byte* at) { return codes(at); }
  /// Bits [From, From + Count) of every byte, at [To, To + Count); the others are zero.
  template <int Count, int From, int To = 0>
  static I bits(I x) {
    constexpr std::uint32_t kMask = (((1u << Count) - 1u) << To) * 0x01010101u;
    const std::uint32_t all = static_cast<std::uint32_t>(x);
    return static_cast<I>(
        (From > To ? all >> (From > To ? From - To : 0) : all << (From > To ? 0 : To - From)) &
        kMask);
  }
  static I bit_or(I a, I b) { return a | b; }
  template <int Count, int From, int To>
  static I or_bits(I into, I x) {  ///< bit_or(into, bits<...>(x))
    return into | bits<Count, From, To>(x);
  }

  // The same for numbers of 16 bits.
  template <int Count, int From, int To = 0>
  static I halves(I x) {
    constexpr std::uint32_t kMask = (((1u << Count) - 1u) << To) * 0x00010001u;
    const std::uint32_t all = static_cast<std::uint32_t>(x);
    return static_cast<I>(
        (From > To ? all >> (From > To ? From - To : 0) : all << (From > To ? 0 : To - From)) &
        kMask);
  }
  template <int Count, int From, int To>
  static I or_halves(I into, I x) {
    return into | halves<Count, From, To>(x);
  }
  static I shift_halves(I x, int count) {  ///< down by 0..15
    const std::uint32_t all = static_cast<std::uint32_t>(x);
    return static_cast<I>((all & 0xffffu) >> count | (all >> 16 >> count) << 16);
  }
  static I less_four_times(I a, I b) {  ///< a - 4 b, modulo 2^16
    const std::uint32_t x = static_cast<std::uint32_t>(a), y = static_cast<std::uint32_t>(b);
    return static_cast<I>(((x - 4 * y) & 0xffffu) | ((x >> 16) - 4 * (y >> 16)) << 16);
  }
  /// Per lane: low / 2^Down (or its lower 16 bits) and high * 2^Up / 2^16 as two numbers of 16
  /// bits. The lower bits of high * 2^Up are zero.
  template <int Down, int Up>
  static I join(I low, I high) {
    const std::uint32_t x = static_cast<std::uint32_t>(low), y = static_cast<std::uint32_t>(high);
    return static_cast<I>((x >> Down & 0xffffu) | y << Up);
  }
  struct Table {  ///< 16 signed values, prepared for lookup
    std::int8_t values[16];
  };
  static Table table(const std::byte* at) {
    Table t;
    __builtin_memcpy(t.values, at, 16);
    return t;
  }
  // What AVX2 has beside these members for project_loaded.hpp, and AVX-512 for lookups among more
  // than 16 (project_points.hpp), is written there.
  /// The value of every byte's code (0..15), prepared for dot_signed as by signed_codes.
  static I lookup(const Table& t, I x) {
    std::uint8_t code[4];
    __builtin_memcpy(code, &x, 4);
    const std::int8_t value[4] = {t.values[code[0]], t.values[code[1]], t.values[code[2]],
                                  t.values[code[3]]};
    __builtin_memcpy(&x, value, 4);
    return x;
  }

  // Bytes of weights times small factors, modulo 256.
  template <int Byte>
  static I spread(I x) {  ///< the byte of each lane, four times
    return static_cast<I>((static_cast<std::uint32_t>(x) >> (8 * Byte) & 0xffu) * 0x01010101u);
  }
  static I times(I x, I factor) {
    return bytewise(x,
                    [&](std::uint32_t byte) { return byte * static_cast<std::uint32_t>(factor); });
  }
  template <int From>
  static I less_than(I x) {  ///< From - x
    return bytewise(x, [](std::uint32_t byte) { return From - byte; });
  }
  static I as_signed(I x) { return x; }  ///< prepared for dot_signed as by signed_codes

  /// Per lane: sum + the dot product of 4 weights and 4 activations. dot_unsigned takes weights in
  /// 0..127. dot_signed is too large by the sum of the activations times kSignedOffset.
  static constexpr int kSignedOffset = 0;
  static constexpr bool kDotsAreOne = true;  ///< dot_unsigned and dot_signed do the same
  static I dot_unsigned(I sum, I w, I a) { return dot_signed(sum, w, a); }
  static I dot_signed(I sum, I w, I a) {
    std::int8_t x[4], y[4];
    __builtin_memcpy(x, &w, 4);
    __builtin_memcpy(y, &a, 4);
    return sum + x[0] * y[0] + x[1] * y[1] + x[2] * y[2] + x[3] * y[3];
  }
  /// The same for weights up to 255 where kWideBytes, else up to 127.
  static constexpr bool kWideBytes = true;
  static I dot_bytes(I sum, I w, I a) {
    std::uint8_t x[4];
    std::int8_t y[4];
    __builtin_memcpy(x, &w, 4);
    __builtin_memcpy(y, &a, 4);
    return sum + x[0] * y[0] + x[1] * y[1] + x[2] * y[2] + x[3] * y[3];
  }
  /// Per lane: the dot product of two pairs of signed numbers of 16 bits.
  static I dot_pairs(I a, I b) {
    std::int16_t x[2], y[2];
    __builtin_memcpy(x, &a, 4);
    __builtin_memcpy(y, &b, 4);
    return x[0] * y[0] + x[1] * y[1];
  }

 private:
  template <typename Body>
  static I bytewise(I x, const Body& body) {
    std::uint8_t bytes[4];
    __builtin_memcpy(bytes, &x, 4);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(body(byte));
    __builtin_memcpy(&x, bytes, 4);
    return x;
  }
  static F widen(std::uint32_t half) {
    const std::uint32_t sign = (half & 0x8000u) << 16, magnitude = half & 0x7fffu;
    if (magnitude >= 0x7c00u) {  // infinity, or NaN made quiet
      const std::uint32_t quiet = magnitude > 0x7c00u ? 0x00400000u : 0u;
      return __builtin_bit_cast(float, sign | 0x7f800000u | quiet | (magnitude & 0x3ffu) << 13);
    }
    // With f16's exponent in f32's place the number is 2^112 too small, subnormals included.
    const float scaled = __builtin_bit_cast(float, magnitude << 13) * 0x1p112f;
    return __builtin_bit_cast(float, sign | __builtin_bit_cast(std::uint32_t, scaled));
  }
};

}  // namespace scalar
}  // namespace

constinit const KernelTable kScalarKernels = make_table<scalar::Simd>("scalar");

}  // namespace lemma::cpu
