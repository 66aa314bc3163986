// SPDX-License-Identifier: Apache-2.0
// What tests of the public API share: requests and their answers, errors by kind, and a fixture
// that names the options of each backend.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lemma/engine.hpp"

namespace lemma {

using Ids = std::vector<TokenId>;

inline constexpr const char* kGolden =
    "goldens/llama-gqa/model.gguf";  ///< 512 tokens, trained on 256

inline Ids numbers(std::size_t count, TokenId first = 10) {
  Ids ids;
  for (std::size_t i = 0; i < count; ++i) ids.push_back(TokenId((first + 7 * i) % 500 + 3));
  return ids;
}

inline TokenId best(std::span<const float> logits) {
  return TokenId(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

struct Answer {
  Ids tokens;
  std::string text;
  Event last;
};

inline Answer collect(Generation& generation) {
  Answer answer;
  while (auto event = generation.next()) {
    answer.text += event->text;
    if (event->token) answer.tokens.push_back(*event->token);
    answer.last = std::move(*event);
  }
  return answer;
}

inline Request request(Ids prompt, std::size_t max_tokens, float temperature = 1.f) {
  Request made;
  made.prompt = std::move(prompt);
  made.max_tokens = max_tokens;
  made.sampling.temperature = temperature;
  made.seed = 11;
  made.stop_at_end = false;
  return made;
}

/// The message of the error of this kind that `function` throws; anything else fails the test.
template <typename Function>
std::string error_of(ErrorKind kind, Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error of kind " << to_string(kind);
  return {};
}

/// Runs on one backend after the other.
class AnyBackendTest : public testing::TestWithParam<BackendKind> {
 protected:
  EngineOptions options() const {
    EngineOptions made;
    made.backend = GetParam();
    made.threads = GetParam() == BackendKind::kCpu ? 2 : 0;
    made.kv = KvFormat::kF32;
    return made;
  }
};

inline std::string backend_name(const testing::TestParamInfo<BackendKind>& info) {
  return info.param == BackendKind::kCpu ? "Cpu" : "Reference";
}

}  // namespace lemma
