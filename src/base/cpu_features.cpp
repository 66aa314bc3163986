// SPDX-License-Identifier: Apache-2.0
#include "base/cpu_features.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "base/raise.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace lemma::base {
namespace {

#if defined(__x86_64__)

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf) noexcept {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);  // zeros for an unknown leaf
  return r;
}

bool bit(unsigned value, int index) noexcept {
  return (value >> index & 1u) != 0;
}

// The register states that the system saves on a context switch (XCR0).
std::uint64_t saved_states() noexcept {
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<std::uint64_t>(high) << 32 | low;
}

// Linux gives a process the 8 KiB of tile registers only when asked (arch_prctl, permission for
// state component 18). Must happen before the first tile instruction of any thread.
bool request_tiles() noexcept {
  constexpr long kArchReqXcompPerm = 0x1023;
  constexpr long kTileData = 18;
  return ::syscall(SYS_arch_prctl, kArchReqXcompPerm, kTileData) == 0;
}

CpuFeatures detect() noexcept {
  CpuFeatures f;
  const Registers basic = cpuid(1, 0);
  if (!bit(basic.ecx, 27)) return f;  // OSXSAVE: without it no wide registers are saved
  const std::uint64_t saved = saved_states();
  const auto saves = [&](std::uint64_t mask) { return (saved & mask) == mask; };
  const Registers extended = cpuid(7, 0);
  const Registers more = cpuid(7, 1);
  if (saves(0x6)) {  // SSE and AVX
    f.avx2 = bit(extended.ebx, 5);
    f.fma = bit(basic.ecx, 12);
    f.f16c = bit(basic.ecx, 29);
    f.avx_vnni = bit(more.eax, 4);
  }
  if (saves(0xe6)) {  // and opmask, upper halves of ZMM0-15, ZMM16-31
    f.avx512f = bit(extended.ebx, 16);
    f.avx512dq = bit(extended.ebx, 17);
    f.avx512bw = bit(extended.ebx, 30);
    f.avx512vl = bit(extended.ebx, 31);
    f.avx512vbmi = bit(extended.ecx, 1);
    f.avx512vnni = bit(extended.ecx, 11);
    f.avx512bf16 = bit(more.eax, 5);
  }
  if (saves(0x60000) && bit(extended.edx, 24) && request_tiles()) {  // tile configuration and data
    f.amx_tile = true;
    f.amx_int8 = bit(extended.edx, 25);
    f.amx_bf16 = bit(extended.edx, 22);
  }
  return f;
}

#elif defined(__aarch64__)

// Bits of AT_HWCAP and AT_HWCAP2 in the kernel's AArch64 ABI.
CpuFeatures detect() noexcept {
  const unsigned long capabilities = getauxval(AT_HWCAP);
  const unsigned long capabilities2 = getauxval(AT_HWCAP2);
  CpuFeatures f;
  f.neon = (capabilities & (1ul << 1)) != 0;
  f.neon_fp16 = (capabilities & (1ul << 10)) != 0;
  f.neon_dotprod = (capabilities & (1ul << 20)) != 0;
  f.neon_i8mm = (capabilities2 & (1ul << 13)) != 0;
  return f;
}

#else

CpuFeatures detect() noexcept {
  return {};
}

#endif

constexpr Isa kAllIsas[] = {Isa::kScalar,  Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512,
                            Isa::kAmxInt8, Isa::kAmx,  Isa::kNeon};

bool allows(const CpuFeatures& f, Isa isa) noexcept {
  switch (isa) {
    case Isa::kScalar:
      return true;
    case Isa::kAvx2:
      return f.avx2 && f.fma && f.f16c;
    case Isa::kAvxVnni:
      return allows(f, Isa::kAvx2) && f.avx_vnni;
    case Isa::kAvx512:
      return allows(f, Isa::kAvx2) && f.avx512f && f.avx512bw && f.avx512vl && f.avx512dq &&
             f.avx512vnni;
    case Isa::kAmxInt8:
      return allows(f, Isa::kAvx512) && f.avx512vbmi && f.amx_tile && f.amx_int8;
    case Isa::kAmx:
      return allows(f, Isa::kAvx512) && f.amx_tile && f.amx_bf16;
    case Isa::kNeon:
      return f.neon && f.neon_dotprod && f.neon_fp16;
  }
  return false;
}

}  // namespace

std::string_view to_string(Isa isa) noexcept {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvxVnni:
      return "avxvnni";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAmxInt8:
      return "amxint8";
    case Isa::kAmx:
      return "amx";
    case Isa::kNeon:
      return "neon";
  }
  return "unknown";
}

const CpuFeatures& cpu_features() noexcept {
  static const CpuFeatures features = detect();
  return features;
}

std::vector<Isa> available_isas(const CpuFeatures& features) {
  std::vector<Isa> isas;
  for (Isa isa : kAllIsas) {
    if (allows(features, isa)) isas.push_back(isa);
  }
  return isas;
}

Isa choose_isa(const CpuFeatures& features, std::string_view cap) {
  const std::vector<Isa> available = available_isas(features);
  if (cap.empty()) {
    Isa best = Isa::kScalar;
    for (const Isa isa : available) {
      if (isa == Isa::kAmxInt8 || isa == Isa::kAmx) continue;
      best = isa;
    }
    return best;
  }
  std::string names;
  for (Isa isa : available) {
    if (to_string(isa) == cap) return isa;
    if (!names.empty()) names += ", ";
    names += to_string(isa);
  }
  const bool known = std::any_of(std::begin(kAllIsas), std::end(kAllIsas),
                                 [&](Isa isa) { return to_string(isa) == cap; });
  raise(ErrorKind::kUsage, "LEMMA_ISA: '{}' is {}; available here: {}", cap,
        known ? "not available on this machine" : "not an instruction set that lemma knows", names);
}

std::vector<Isa> tested_isas() {
  std::vector<Isa> isas = available_isas(cpu_features());
  const char* const amx = std::getenv("LEMMA_TEST_AMX");
  if (amx == nullptr || std::string_view(amx) != "1") {
    std::erase(isas, Isa::kAmxInt8);
    std::erase(isas, Isa::kAmx);
  }
  return isas;
}

Isa best_isa() {
  const char* const cap = std::getenv("LEMMA_ISA");
  return choose_isa(cpu_features(), cap ? cap : "");
}

std::string describe(const CpuFeatures& f) {
  const std::pair<bool, std::string_view> words[] = {
      {f.avx2, "avx2"},
      {f.fma, "fma"},
      {f.f16c, "f16c"},
      {f.avx_vnni, "avx_vnni"},
      {f.avx512f, "avx512f"},
      {f.avx512bw, "avx512bw"},
      {f.avx512vl, "avx512vl"},
      {f.avx512dq, "avx512dq"},
      {f.avx512vnni, "avx512vnni"},
      {f.avx512vbmi, "avx512vbmi"},
      {f.avx512bf16, "avx512bf16"},
      {f.amx_tile, "amx_tile"},
      {f.amx_int8, "amx_int8"},
      {f.amx_bf16, "amx_bf16"},
      {f.neon, "neon"},
      {f.neon_dotprod, "dotprod"},
      {f.neon_fp16, "fp16"},
      {f.neon_i8mm, "i8mm"},
  };
  std::string text;
  for (const auto& [present, word] : words) {
    if (!present) continue;
    if (!text.empty()) text += ' ';
    text += word;
  }
  return text.empty() ? "none" : text;
}

}  // namespace lemma::base
