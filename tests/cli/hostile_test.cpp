// SPDX-License-Identifier: Apache-2.0
// Any bytes in the place of a model, given to the built program under an address limit of 2 GiB: it
// shows or runs a model, or says why not; it is never ended by a signal and never works for long.
// Small models are damaged in seeded ways: flipped bytes, truncations, lengths of 2^40, 2^63 and
// 2^64 - 1, numbers in JSON replaced. LEMMA_DEEP=1 tries twenty times as many.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "program.hpp"
#include "test_data.hpp"

namespace lemma::test {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

// Sanitizers reserve far more addresses than any limit would leave them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kSanitized = false;
#endif

constexpr long kLimitKib = 2L << 20;
constexpr int kSeconds = 20;  ///< of processor time; a sound file takes hundredths

/// Runs `lemma` with limits on its addresses and its processor time.
Outcome run_limited(const Arguments& arguments, long limit_kib = kLimitKib) {
  std::string limits = "ulimit -t " + std::to_string(kSeconds) + "; ";
  if (!kSanitized) limits += "ulimit -v " + std::to_string(limit_kib) + "; ";
  Arguments all = {"-c", limits + "exec \"$0\" \"$@\"", LEMMA_PROGRAM};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return run_program_at("/bin/sh", all, {"LEMMA_LOG=error"});
}

/// A model or an error with words: statuses 0 and 1.
void expect_answer(const Outcome& outcome, const std::string& what) {
  EXPECT_TRUE(outcome.status == 0 || outcome.status == 1) << what << ": " << outcome.status;
  if (outcome.status != 0) {
    EXPECT_FALSE(outcome.err.empty()) << what;
    EXPECT_THAT(outcome.err, ::testing::Not(HasSubstr("internal"))) << what;
    EXPECT_THAT(outcome.err, ::testing::Not(HasSubstr("bad_alloc"))) << what;
  }
}

bool deep() {
  const char* set = std::getenv("LEMMA_DEEP");
  return set && std::strcmp(set, "1") == 0;
}

int tries(int normally) {
  if (deep()) return normally * 20;
  return kSanitized ? normally / 4 : normally;
}

constexpr std::array<std::uint64_t, 5> kLengths = {0, std::uint64_t{1} << 40,
                                                   std::uint64_t{1} << 63, ~std::uint64_t{0}, 513};

/// One seeded damage to the first `reach` bytes.
std::string damage(std::string bytes, std::size_t reach, std::mt19937& random) {
  const auto at = [&](std::size_t size) { return random() % std::max<std::size_t>(size, 1); };
  reach = std::min(reach, bytes.size());
  switch (random() % 4) {
    case 0:
      for (std::size_t flips = 1 + at(4); flips > 0; --flips)
        bytes[at(reach)] ^= static_cast<char>(1u << at(8));
      break;
    case 1:
      bytes.resize(at(bytes.size()));
      break;
    case 2: {
      const std::uint64_t length = kLengths[at(kLengths.size())];
      const std::size_t size = random() % 2 ? 8 : 4;
      std::memcpy(bytes.data() + at(reach - std::min<std::size_t>(reach, 8)), &length, size);
      break;
    }
    default:
      bytes[at(reach)] = static_cast<char>(random());
  }
  return bytes;
}

/// One number or word of a JSON text becomes another.
std::string damage_json(std::string text, std::mt19937& random) {
  constexpr std::array kWords = {"-1",
                                 "0",
                                 "1.5",
                                 "1e999",
                                 "\"4\"",
                                 "null",
                                 "true",
                                 "[]",
                                 "{}",
                                 "1e40",
                                 "-0.0",
                                 "4294967296",
                                 "3",
                                 "NaN",
                                 "65536",
                                 "[[]]",
                                 "\"\"",
                                 "1000000",
                                 "18446744073709551615"};
  std::vector<std::size_t> places;  // behind "key":
  for (std::size_t i = 0; i + 2 < text.size(); ++i)
    if (text[i] == '"' && text[i + 1] == ':') places.push_back(i + 2);
  if (places.empty()) return text;
  const std::size_t begin = places[random() % places.size()];
  const std::size_t end = text.find_first_of(",}\n", begin);
  return text.replace(begin, end == std::string::npos ? end : end - begin,
                      kWords[random() % kWords.size()]);
}

class HostileBytes : public ::testing::Test {
 protected:
  const TemporaryFolder folder;
  std::mt19937 random{20261129};
};

TEST_F(HostileBytes, InGgufAreAModelOrAnError) {
  const fs::path path = folder / "model.gguf";
  for (const char* name : {"llama-factors", "gemma3", "qwen3moe", "deepseek2"}) {
    const std::string sound = read_file(source_dir() / "tests/goldens" / name / "model.gguf");
    // Keys and tensor list; the rest is weights.
    const std::size_t reach = std::min<std::size_t>(sound.size(), 24 << 10);
    for (int i = 0; i < tries(40); ++i) {
      write_file(path, damage(sound, reach, random));
      expect_answer(run_limited({"show", path}), name + std::string(" show ") + std::to_string(i));
    }
    for (int i = 0; i < tries(8); ++i) {
      write_file(path, damage(sound, random() % 2 ? 4096 : sound.size(), random));
      expect_answer(run_limited({"run", path, "a b", "--max-tokens", "2", "--threads", "1"}),
                    name + std::string(" run ") + std::to_string(i));
    }
  }
}

TEST_F(HostileBytes, InAFolderAreAModelOrAnError) {
  for (const char* name : {"qwen3", "deepseek_v3", "gpt_oss"}) {
    const fs::path from = source_dir() / "tests/safetensors/data" / name;
    const std::string config = read_file(from / "config.json");
    const std::string tensors = read_file(from / "model.safetensors");
    fs::create_directories(folder / name);
    const fs::path config_path = folder / name / "config.json";
    const fs::path tensors_path = folder / name / "model.safetensors";
    write_file(tensors_path, tensors);
    for (int i = 0; i < tries(30); ++i) {
      write_file(config_path, i % 3 ? damage_json(config, random) : damage(config, ~0u, random));
      expect_answer(run_limited({"show", folder / name}),
                    name + std::string(" config ") + std::to_string(i));
    }
    write_file(config_path, config);
    for (int i = 0; i < tries(30); ++i) {
      write_file(tensors_path, damage(tensors, 8 << 10, random));
      expect_answer(run_limited({"show", folder / name}),
                    name + std::string(" tensors ") + std::to_string(i));
    }
  }
}

TEST_F(HostileBytes, InTheConfigOfAnyFamilyAreAModelOrAnError) {
  std::vector<std::string> names = {"bert", "qwen3_next", "gemma4"};
  const fs::path data = source_dir() / "tests/safetensors/data";
  if (deep()) {
    names.clear();
    for (const auto& entry : fs::directory_iterator(data))
      if (fs::exists(entry.path() / "model.safetensors"))
        names.push_back(entry.path().filename().string());
  }
  for (const std::string& name : names) {
    fs::create_directories(folder / name);
    const std::string config = read_file(data / name / "config.json");
    write_file(folder / name / "model.safetensors", read_file(data / name / "model.safetensors"));
    for (int i = 0; i < tries(10); ++i) {
      write_file(folder / name / "config.json", damage_json(config, random));
      expect_answer(run_limited({"show", folder / name}), name + " config " + std::to_string(i));
    }
  }
}

// Field failure A3: what a file claims to hold is compared with its size before memory is taken.
TEST_F(HostileBytes, TakeNoMemoryForWhatALengthClaims) {
  const auto number = [](std::uint64_t value, std::size_t size = 8) {
    std::string bytes(size, '\0');
    std::memcpy(bytes.data(), &value, size);
    return bytes;
  };
  const std::string magic = "GGUF" + number(3, 4);
  const std::string one_key = magic + number(0) + number(1);
  const fs::path path = folder / "length.gguf";
  constexpr long kSmallKib = 256L << 10;
  for (const int shift : {40, 63, 64}) {
    const std::string huge = number(shift == 64 ? ~std::uint64_t{0} : std::uint64_t{1} << shift);
    const std::array files = {
        magic + huge + number(0),                                               // tensors
        magic + number(0) + huge,                                               // keys
        one_key + huge,                                                         // a key's length
        one_key + number(1) + "k" + number(8, 4) + huge,                        // a string's length
        one_key + number(1) + "k" + number(9, 4) + number(4, 4) + huge,         // numbers
        one_key + number(1) + "k" + number(9, 4) + number(8, 4) + huge,         // strings
        magic + number(1) + number(0) + huge,                                   // a tensor's name
        magic + number(1) + number(0) + number(1) + "t" + number(1, 4) + huge,  // a dimension
    };
    for (std::size_t i = 0; i < files.size(); ++i) {
      write_file(path, files[i]);
      const Outcome outcome = run_limited({"show", path}, kSmallKib);
      EXPECT_EQ(outcome.status, 1) << i << " at 2^" << shift;
      EXPECT_THAT(outcome.err, HasSubstr("length.gguf"));
      if (!kSanitized) {
        EXPECT_LT(outcome.peak_kib, 64L << 10) << i << " at 2^" << shift;
      }
    }
    const fs::path header = folder / "length.safetensors";
    write_file(header, huge + "{}");
    write_file(folder / "config.json", "{\"model_type\": \"llama\"}");
    const Outcome outcome = run_limited({"show", header}, kSmallKib);
    EXPECT_EQ(outcome.status, 1);
    if (!kSanitized) {
      EXPECT_LT(outcome.peak_kib, 64L << 10) << "header of 2^" << shift;
    }
  }
}

// A context that no memory holds is no reason to ask for it: the program opens at most 4096
// positions unless told otherwise.
TEST_F(HostileBytes, OfAHugeContextStillRunWithinTheLimit) {
  std::string bytes = read_file(source_dir() / "tests/goldens/llama-factors/model.gguf");
  const std::string key = "llama.context_length";
  const std::size_t at = bytes.find(key);
  ASSERT_NE(at, std::string::npos);
  const std::uint32_t context = 1u << 24;
  std::memcpy(bytes.data() + at + key.size() + 4, &context, 4);
  const fs::path path = folder / "context.gguf";
  write_file(path, bytes);
  const Outcome outcome = run_limited({"run", path, "a", "--max-tokens", "1", "--threads", "1"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

}  // namespace
}  // namespace lemma::test
