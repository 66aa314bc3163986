// SPDX-License-Identifier: Apache-2.0
// `lemma check` against faults that are planted in the cpu backend (src/backend/cpu/fault.hpp):
// each must be named where it is, in the layer where it is, and nothing may be named without one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "program.hpp"
#include "test_data.hpp"

namespace lemma::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

struct PlantedFault {
  const char* name;
  const char* model;
  const char* planted_at;  ///< what the program says of itself
  const char* found_at;    ///< the first site that shows it
};

// A dense model of five layers and one with experts of two; the middle layer of those that have
// such an operation is layer 2 of the one and layer 1 of the other.
constexpr const char* kDense = kModel;
constexpr const char* kExperts = "goldens/llama-moe/model.gguf";
constexpr PlantedFault kFaults[] = {
    {"mask", kDense, "layers.2.attention.heads", "layers.2.attention.heads"},
    {"rope", kDense, "layers.2.attention.key_rope", "layers.2.attention.key_rope"},
    {"route-order", kExperts, "layers.1.ffn.experts_chosen", "layers.1.ffn.experts_chosen"},
    {"row", kDense, "layers.2.attention.value", "layers.2.attention.heads"},
    {"eps", kDense, "layers.2.ffn.norm", "layers.2.ffn.norm"},
};

class EachFault : public testing::TestWithParam<PlantedFault> {};

TEST_P(EachFault, IsNamedWhereItIs) {
  const PlantedFault& fault = GetParam();
  LEMMA_TEST_DATA_OR_SKIP(model, fault.model);
  for (const bool forced : {false, true}) {
    Arguments arguments = {"check", model.string(), "--json", "--threads", "1"};
    if (forced) arguments.push_back("--teacher-forced");
    const Outcome outcome =
        run_program_at(LEMMA_FAULTY_PROGRAM, arguments, {std::string("LEMMA_FAULT=") + fault.name});
    EXPECT_EQ(outcome.status, 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(std::string(" planted at ") + fault.planted_at + "\n"));
    const json report = json::parse(outcome.out);
    EXPECT_EQ(report["passed"], false);
    EXPECT_EQ(report["first_failed"], fault.found_at);
    std::cout << "fault " << fault.name << (forced ? ", teacher-forced" : "") << ": "
              << report["first_failed"] << "\n";
    if (!forced) continue;
    // Fed the reference's rows, no other site is past its tolerance: the fault stays where it is.
    for (const json& site : report["sites"]) {
      if (site["site"] == fault.found_at) continue;
      EXPECT_LE(site["of_tolerance"].get<double>(), 1.0) << site["site"];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Planted, EachFault, testing::ValuesIn(kFaults), [](const auto& param) {
  std::string name = param.param.name;
  if (const std::size_t dash = name.find('-'); dash != std::string::npos) name.erase(dash, 1);
  return name;
});

TEST(Faults, AreNotThereUnlessAskedFor) {
  for (const char* file : {kDense, kExperts}) {
    LEMMA_TEST_DATA_OR_SKIP(model, file);
    const Outcome outcome =
        run_program_at(LEMMA_FAULTY_PROGRAM, {"check", model.string(), "--threads", "1"}, {});
    EXPECT_EQ(outcome.status, 0) << outcome.out;
    EXPECT_THAT(outcome.out, HasSubstr("passed"));
  }
}

TEST(Faults, OfUnknownNamesAreRefused) {
  LEMMA_TEST_DATA_OR_SKIP(model, kDense);
  const Outcome unknown =
      run_program_at(LEMMA_FAULTY_PROGRAM, {"check", model.string()}, {"LEMMA_FAULT=maks"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.err, HasSubstr("expected mask, rope, route-order, row or eps"));
  // A dense model routes nothing.
  const Outcome idle =
      run_program_at(LEMMA_FAULTY_PROGRAM, {"check", model.string()}, {"LEMMA_FAULT=route-order"});
  EXPECT_EQ(idle.status, 2);
  EXPECT_THAT(idle.err, HasSubstr("no operation for it"));
}

TEST(Faults, AreNoPartOfTheProgramUnlessBuiltIn) {
  const bool built_in = LEMMA_TEST_FAULTS;
  const auto holds_faults = [](const char* program) {
    return read_file(program).find("is planted at") != std::string::npos;
  };
  EXPECT_TRUE(holds_faults(LEMMA_FAULTY_PROGRAM));
  EXPECT_EQ(holds_faults(LEMMA_PROGRAM), built_in);
}

TEST(Faults, ThatCannotBePlantedStopTheProgram) {
  if (LEMMA_TEST_FAULTS) GTEST_SKIP() << "the program plants faults";
  LEMMA_TEST_DATA_OR_SKIP(model, kDense);
  const Outcome outcome = run_program_at(
      LEMMA_PROGRAM, {"run", model.string(), "--max-tokens", "1"}, {"LEMMA_FAULT=mask"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("LEMMA_TEST_FAULTS"));
}

}  // namespace
}  // namespace lemma::test
