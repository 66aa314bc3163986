// SPDX-License-Identifier: Apache-2.0
// Templates of models with their tokenizers: what a person writes stays text.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "lemma/chat.hpp"
#include "lemma/tokenizer.hpp"
#include "test_data.hpp"
#include "weights/gguf/writer.hpp"

namespace lemma {
namespace {

class ModelTemplate : public testing::TestWithParam<const char*> {};

/// The tokens that are structure and no text: they add nothing to a text.
std::vector<TokenId> control_tokens(const Tokenizer& tokenizer) {
  std::vector<TokenId> ids;
  const auto size = static_cast<TokenId>(tokenizer.vocabulary_size());
  for (TokenId id = 0; id < size; ++id)
    if (tokenizer.piece(id).empty() && !tokenizer.token_text(id).empty()) ids.push_back(id);
  return ids;
}

Message user(std::vector<std::string> parts) {
  Message message;
  message.parts = std::move(parts);
  return message;
}

Conversation conversation(const std::string& content) {
  Conversation result;
  const std::size_t half = content.size() / 2;
  Message result_of_tool = user({content});
  result_of_tool.role = Role::kTool;
  result_of_tool.name = content;
  result.messages = {user({"a " + content + " b"}), result_of_tool,
                     user({content.substr(0, half), content.substr(half)})};
  return result;
}

TEST_P(ModelTemplate, NoTextOfAConversationBecomesAControlToken) {
  LEMMA_TEST_DATA_OR_SKIP(path, GetParam());
  const Tokenizer tokenizer = Tokenizer::open(path);
  const ChatTemplate chat = ChatTemplate::open(path);
  const std::vector<TokenId> control = control_tokens(tokenizer);
  ASSERT_FALSE(control.empty());
  const auto controls_in = [&](const std::vector<TokenId>& ids) {
    return std::count_if(ids.begin(), ids.end(), [&](TokenId id) {
      return std::binary_search(control.begin(), control.end(), id);
    });
  };
  const auto expected = controls_in(tokenizer.encode(chat.render(conversation("word"))));
  EXPECT_GE(expected, 3);
  for (const TokenId id : control) {
    const std::string spelling = tokenizer.token_text(id);
    const Prompt prompt = chat.render(conversation(spelling));
    EXPECT_EQ(controls_in(tokenizer.encode(prompt)), expected) << spelling;
    // The text alone would not do.
    const auto forged = tokenizer.encode(prompt.text(), {false, true});
    EXPECT_GT(controls_in(forged), expected) << spelling;
  }
}

TEST_P(ModelTemplate, AnHonestPromptHasTheIdsOfItsText) {
  LEMMA_TEST_DATA_OR_SKIP(path, GetParam());
  const Tokenizer tokenizer = Tokenizer::open(path);
  const ChatTemplate chat = ChatTemplate::open(path);
  for (const char* content :
       {"Hello", "\n\nGrüße, 世界 \n", " 1234 + 5", "def f(x):\n    return x"}) {
    const Prompt prompt = chat.render(conversation(content));
    EXPECT_EQ(tokenizer.encode(prompt), tokenizer.encode(prompt.text(), {false, true}));
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, ModelTemplate,
                         testing::Values("tokenizers/ggml-vocab-qwen2.gguf",
                                         "tokenizers/ggml-vocab-phi-3.gguf"),
                         [](const auto& one) {
                           return std::string(one.param).find("qwen2") != std::string::npos
                                      ? "ByteLevel"
                                      : "SentencePiece";
                         });

TEST(ChatTemplate, NamesTheModelThatHasNone) {
  LEMMA_TEST_DATA_OR_SKIP(path, "tokenizers/ggml-vocab-gpt-2.gguf");
  try {
    ChatTemplate::open(path);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kNotFound);
    EXPECT_NE(std::string(error.what()).find("ggml-vocab-gpt-2.gguf"), std::string::npos);
  }
}

TEST(ChatTemplate, IsOneOfSeveralByItsName) {
  const auto path = std::filesystem::path(testing::TempDir()) / "lemma-templates.gguf";
  weights::gguf::Writer writer;
  writer.add("tokenizer.ggml.model", "llama");
  writer.add("tokenizer.ggml.tokens", std::vector<std::string>{"<unk>", "<s>", "</s>"});
  writer.add("tokenizer.ggml.bos_token_id", std::uint32_t{1});
  writer.add("tokenizer.ggml.eos_token_id", std::uint32_t{2});
  writer.add("tokenizer.chat_template", "plain");
  writer.add("tokenizer.chat_template.rag", "documents {{ bos_token }}");
  writer.add("tokenizer.chat_template.tool_use", "tools");
  writer.write(path);
  EXPECT_EQ(ChatTemplate::open(path).source(), "plain");
  EXPECT_EQ(ChatTemplate::open(path, "tool_use").source(), "tools");
  EXPECT_EQ(ChatTemplate::open(path, "rag").render_json("{}"), "documents <s>");
  try {
    ChatTemplate::open(path, "tools");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kNotFound);
    EXPECT_NE(std::string(error.what()).find("it has: rag, tool_use"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace lemma
