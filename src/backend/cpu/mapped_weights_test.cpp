// SPDX-License-Identifier: Apache-2.0
// Weights that stay as the file has them: the same bits as packed ones, for every format and
// instruction set, however many rows and threads.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/allocation_count.hpp"
#include "backend/cpu/conformance.hpp"
#include "backend/cpu/cpu_backend.hpp"
#include "base/mapped_file.hpp"

namespace lemma::cpu {
namespace {

using namespace backend::conformance;
using backend::WeightUse;
using weights::Format;

/// Outputs that fill neither a panel nor a chunk, from two rows of blocks.
Case mapped_case(Format format) {
  const std::uint32_t cols =
      std::max<std::uint32_t>(2 * weights::traits(format).block_elements, 96);
  CaseBuilder b("project " + std::string(weights::traits(format).name), 3);
  const backend::Tensor in = b.embed(cols), out = b.tensor(83);
  b.add(backend::Project{
      in, {{b.weight(format, 83, cols, WeightUse::kMatrix, 0.1f), b.vector(83), out}}});
  return b.finish(out, {});
}

std::vector<float> rows_of(const Case& c, const CpuOptions& options, const Schedule& schedule) {
  return run_case(*make_backend(options), c, {.schedule = schedule}).rows;
}

void expect_the_same_bits(const Case& c, const Schedule& schedule, base::Isa isa) {
  const auto packed = rows_of(c, {.threads = 1, .isa = isa}, schedule);
  ASSERT_FALSE(packed.empty());
  for (const int threads : {1, 3}) {
    const auto mapped = rows_of(c, {.threads = threads, .isa = isa, .repack = false}, schedule);
    ASSERT_EQ(packed.size(), mapped.size());
    EXPECT_EQ(std::memcmp(packed.data(), mapped.data(), packed.size() * sizeof(float)), 0)
        << c.name << ", " << base::to_string(isa) << ", " << threads << " threads";
  }
}

TEST(MappedWeights, GiveTheBitsOfPackedOnesInEveryFormat) {
  for (const Format format : weights::kFormats) {
    const Case c = mapped_case(format);
    for (const base::Isa isa : base::tested_isas()) {
      expect_the_same_bits(c, one_prefill(50), isa);
      expect_the_same_bits(c, chunks(20, {1, 9}), isa);
    }
  }
}

TEST(MappedWeights, GiveExpertsTheBitsOfPackedOnes) {
  for (const Case& c : expert_family_cases()) {
    for (const base::Isa isa : base::tested_isas()) {
      expect_the_same_bits(c, chunks(24, {1, 16, 3}), isa);
    }
  }
}

TEST(MappedWeights, GiveAWholeDecoderTheBitsOfPackedOnes) {
  for (const Format format : {Format::kF16, Format::kQ4_K, Format::kIQ2_XXS}) {
    expect_the_same_bits(decoder_case(format), chunks(60, {49, 1}), base::best_isa());
  }
}

TEST(MappedWeights, TakeNoMemoryAndAreSaidToBeMapped) {
  const auto backend = make_backend({.threads = 1, .repack = false});
  const Outcome outcome =
      run_case(*backend, mapped_case(Format::kQ4_K), {.schedule = one_prefill(1)});
  EXPECT_EQ(backend->weight_bytes(), 83 * sizeof(float));  // the bias
  EXPECT_NE(outcome.placements.back().implementation.find("q4_k mapped x int8"), std::string::npos)
      << outcome.placements.back().implementation;
}

TEST(MappedWeights, AreThoseThatAreNamed) {
  Case c = mapped_case(Format::kQ8_0);
  c.weights[1].matrix.name = "stays";
  for (const char* name : {"stays", "other"}) {
    const auto backend = make_backend({.threads = 1, .mapped = {name}});
    const Outcome outcome = run_case(*backend, c, {.schedule = one_prefill(1)});
    EXPECT_EQ(outcome.placements.back().implementation.find("mapped") != std::string::npos,
              name == std::string("stays"));
  }
}

/// Whether the system holds the page of a mapped file at `address` in memory.
bool is_cached(const std::byte* address) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto at = reinterpret_cast<std::uintptr_t>(address) / page * page;
  unsigned char held = 0;
  return ::mincore(reinterpret_cast<void*>(at), 1, &held) == 0 && (held & 1) != 0;
}

/// Writes a file through to the disk and makes the system forget what it holds of it.
void write_and_forget(const std::string& path, std::span<const std::span<const std::byte>> parts) {
  std::ofstream file(path, std::ios::binary);
  for (const std::span<const std::byte> part : parts) {
    file.write(reinterpret_cast<const char*>(part.data()),
               static_cast<std::streamsize>(part.size()));
  }
  file.close();
  const int descriptor = ::open(path.c_str(), O_RDONLY);
  ::fsync(descriptor);
  ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
  ::close(descriptor);
}

/// Sixteen experts of 256 KiB a matrix, of which every row chooses 3 and 9, in a file that nobody
/// has read yet.
TEST(MappedWeights, AreReadOnlyWhereExpertsAreChosen) {
  constexpr std::uint32_t kExperts = 16, kWidth = 64, kHidden = 1024;
  CaseBuilder b("experts in a file", 1);
  backend::Experts op;
  op.spec = {{}, false, kWidth, kHidden};
  op.experts = kExperts;
  op.up = b.weight(Format::kF32, kExperts * kHidden, kWidth, WeightUse::kMatrix);
  op.down = b.weight(Format::kF32, kExperts * kWidth, kHidden, WeightUse::kMatrix);
  for (backend::Tensor* const tensor : {&op.ids, &op.weights}) {
    *tensor = b.tensor(2);
    backend::Embed embed{
        .table = b.table(2, [](std::uint64_t, std::uint64_t i) { return i == 0 ? 3.f : 9.f; })};
    embed.out = *tensor;
    b.add(embed);
  }
  op.in = b.embed(kWidth);
  op.out = b.tensor(kWidth);
  b.add(op);
  Case c = b.finish(op.out, {});

  std::string name = (std::filesystem::temp_directory_path() / "experts_XXXXXX").string();
  const int descriptor = ::mkstemp(name.data());
  ASSERT_GE(descriptor, 0);
  ::close(descriptor);
  const weights::Matrix &up = c.weights[0].matrix, &down = c.weights[1].matrix;
  const std::span<const std::byte> parts[] = {{up.bytes, up.size_bytes()},
                                              {down.bytes, down.size_bytes()}};
  write_and_forget(name, parts);
  const base::MappedFile mapped = base::MappedFile::open(name);
  std::filesystem::remove(name);
  const std::size_t stack = c.weights[0].matrix.size_bytes(), expert = stack / kExperts;
  ASSERT_EQ(mapped.bytes().size(), 2 * stack);
  c.weights[0].matrix.bytes = mapped.bytes().data();
  c.weights[0].matrix.name = "up";
  c.weights[1].matrix.bytes = mapped.bytes().data() + stack;
  c.weights[1].matrix.name = "down";
  const auto middle = [&](std::size_t e) {
    return mapped.bytes().data() + e * expert + expert / 2;
  };
  if (is_cached(middle(0)) || is_cached(middle(3)))
    GTEST_SKIP() << "the system does not forget files in "
                 << std::filesystem::temp_directory_path();

  const auto backend = make_backend({.threads = 2, .mapped = {"down", "up"}});
  run_case(*backend, c, {.schedule = chunks(9, {8, 1})});
  for (const std::size_t stack_begin : {std::size_t{0}, std::size_t{kExperts}}) {
    for (const std::size_t e : {3u, 9u}) EXPECT_TRUE(is_cached(middle(stack_begin + e))) << e;
    for (const std::size_t e : {0u, 1u, 2u, 4u, 8u, 10u, 15u}) {
      EXPECT_FALSE(is_cached(middle(stack_begin + e))) << e;
    }
  }
}

TEST(MappedWeights, AllocateNothingWhileAStepRuns) {
  const Case c = decoder_case(Format::kQ6_K);
  counted_allocations = 0;
  run_case(
      *make_backend({.threads = 2, .repack = false}), c,
      {.schedule = chunks(70, {60, 1}), .around = [](bool runs) { counting_allocations = runs; }});
  EXPECT_EQ(counted_allocations, 0u);
}

}  // namespace
}  // namespace lemma::cpu
