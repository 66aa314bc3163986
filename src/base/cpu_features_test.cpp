// SPDX-License-Identifier: Apache-2.0
#include "base/cpu_features.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "lemma/error.hpp"

namespace lemma::base {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

CpuFeatures avx2_machine() {
  CpuFeatures f;
  f.avx2 = f.fma = f.f16c = true;
  return f;
}

CpuFeatures avx512_machine() {
  CpuFeatures f = avx2_machine();
  f.avx512f = f.avx512bw = f.avx512vl = f.avx512dq = f.avx512vnni = true;
  return f;
}

std::string refusal(const CpuFeatures& features, std::string_view cap) {
  try {
    choose_isa(features, cap);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.what();
  }
  return "accepted";
}

TEST(CpuFeatures, OfferTheLevelsWhoseEveryPartIsThere) {
  EXPECT_THAT(available_isas({}), ElementsAre(Isa::kScalar));
  EXPECT_THAT(available_isas(avx2_machine()), ElementsAre(Isa::kScalar, Isa::kAvx2));
  EXPECT_THAT(available_isas(avx512_machine()),
              ElementsAre(Isa::kScalar, Isa::kAvx2, Isa::kAvx512));
  for (auto missing : {&CpuFeatures::avx512f, &CpuFeatures::avx512bw, &CpuFeatures::avx512vl,
                       &CpuFeatures::avx512dq, &CpuFeatures::avx512vnni}) {
    CpuFeatures f = avx512_machine();
    f.*missing = false;
    EXPECT_THAT(available_isas(f), ElementsAre(Isa::kScalar, Isa::kAvx2));
  }
  for (auto missing : {&CpuFeatures::avx2, &CpuFeatures::fma, &CpuFeatures::f16c}) {
    CpuFeatures f = avx512_machine();
    f.*missing = false;
    EXPECT_THAT(available_isas(f), ElementsAre(Isa::kScalar));
  }
}

TEST(CpuFeatures, ChooseTheHighestLevelUnlessCapped) {
  EXPECT_EQ(choose_isa(avx512_machine(), ""), Isa::kAvx512);
  EXPECT_EQ(choose_isa(avx512_machine(), "avx512"), Isa::kAvx512);
  EXPECT_EQ(choose_isa(avx512_machine(), "avx2"), Isa::kAvx2);
  EXPECT_EQ(choose_isa(avx512_machine(), "scalar"), Isa::kScalar);
}

TEST(CpuFeatures, ChooseAvxVnniWhereThereIsNoAvx512) {
  CpuFeatures f = avx2_machine();
  f.avx_vnni = true;
  EXPECT_EQ(choose_isa(f, ""), Isa::kAvxVnni);
  EXPECT_EQ(choose_isa(f, "avx2"), Isa::kAvx2);
  f = avx512_machine();
  f.avx_vnni = true;
  EXPECT_THAT(available_isas(f),
              ElementsAre(Isa::kScalar, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512));
  EXPECT_EQ(choose_isa(f, ""), Isa::kAvx512);
}

TEST(CpuFeatures, ChooseTilesOnlyWhenAskedFor) {
  CpuFeatures f = avx512_machine();
  f.amx_tile = f.amx_bf16 = true;
  EXPECT_THAT(available_isas(f), ElementsAre(Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAmx));
  EXPECT_EQ(choose_isa(f, ""), Isa::kAvx512);
  EXPECT_EQ(choose_isa(f, "amx"), Isa::kAmx);
}

TEST(CpuFeatures, ChooseTilesOfBytesOnlyWhenAskedFor) {
  CpuFeatures f = avx512_machine();
  f.avx512vbmi = f.amx_tile = f.amx_int8 = true;
  EXPECT_THAT(available_isas(f),
              ElementsAre(Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAmxInt8));
  EXPECT_EQ(choose_isa(f, ""), Isa::kAvx512);
  EXPECT_EQ(choose_isa(f, "amxint8"), Isa::kAmxInt8);
  for (auto missing : {&CpuFeatures::avx512vbmi, &CpuFeatures::amx_tile, &CpuFeatures::amx_int8}) {
    CpuFeatures less = f;
    less.*missing = false;
    EXPECT_THAT(available_isas(less), ElementsAre(Isa::kScalar, Isa::kAvx2, Isa::kAvx512));
  }
}

TEST(CpuFeatures, RefuseACapThatIsUnknownOrAbsentAndListWhatThereIs) {
  EXPECT_THAT(refusal(avx2_machine(), "avx512"),
              AllOf(HasSubstr("'avx512'"), HasSubstr("not available"), HasSubstr("scalar, avx2")));
  EXPECT_THAT(refusal(avx2_machine(), "sse9"),
              AllOf(HasSubstr("'sse9'"), Not(HasSubstr("not available")),
                    HasSubstr("available here: scalar, avx2")));
  EXPECT_THAT(refusal({}, "AVX2"), HasSubstr("LEMMA_ISA"));
}

TEST(CpuFeatures, FollowTheEnvironmentVariable) {
  const char* const before = std::getenv("LEMMA_ISA");
  const std::string saved = before ? before : "";
  ::setenv("LEMMA_ISA", "scalar", 1);
  EXPECT_EQ(best_isa(), Isa::kScalar);
  ::setenv("LEMMA_ISA", "riscv", 1);
  EXPECT_THROW(best_isa(), Error);
  ::unsetenv("LEMMA_ISA");
  EXPECT_EQ(best_isa(), choose_isa(cpu_features(), ""));
  if (before) ::setenv("LEMMA_ISA", saved.c_str(), 1);
}

TEST(CpuFeatures, AgreeWithWhatTheKernelReports) {
  std::ifstream in("/proc/cpuinfo");
  std::string flags;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("flags") || line.starts_with("Features")) {
      flags = line.substr(line.find(':') + 1) + " ";
      break;
    }
  }
  if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo lists no flags";
  const auto has = [&](const char* flag) {
    return flags.find(std::string(" ") + flag + " ") != std::string::npos;
  };
  const CpuFeatures& f = cpu_features();
  EXPECT_EQ(f.avx2, has("avx2"));
  EXPECT_EQ(f.fma, has("fma"));
  EXPECT_EQ(f.f16c, has("f16c"));
  EXPECT_EQ(f.avx_vnni, has("avx_vnni"));
  EXPECT_EQ(f.avx512f, has("avx512f"));
  EXPECT_EQ(f.avx512bw, has("avx512bw"));
  EXPECT_EQ(f.avx512vl, has("avx512vl"));
  EXPECT_EQ(f.avx512dq, has("avx512dq"));
  EXPECT_EQ(f.avx512vnni, has("avx512_vnni"));
  EXPECT_EQ(f.avx512bf16, has("avx512_bf16"));
  EXPECT_EQ(f.neon, has("asimd"));
  EXPECT_EQ(f.neon_dotprod, has("asimddp"));
}

TEST(CpuFeatures, AreDescribedInWords) {
  EXPECT_EQ(describe({}), "none");
  EXPECT_EQ(describe(avx2_machine()), "avx2 fma f16c");
}

}  // namespace
}  // namespace lemma::base
