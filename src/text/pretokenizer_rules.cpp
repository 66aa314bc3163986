// SPDX-License-Identifier: Apache-2.0
// The expressions behind `tokenizer.ggml.pre`, as the models' tokenizer.json files publish them
// (or, for models that publish a program, as that program has them), in the order in which they
// cut. A word that no expression matches lies between matches and is a piece of its own.
#include "text/pretokenizer.hpp"

namespace lemma::text {
namespace {

using Expression = std::string_view;

// clang-format off
// GPT-2
constexpr Expression kGpt2[] = {
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"};

// StarCoder, Command-R, SmolLM, ...
constexpr Expression kDigits[] = {
    R"(\p{N})",
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"};

// where a file names none
constexpr Expression kDefault[] = {
    R"([\p{P}$+<=>^~|]+)",
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
    R"(\p{N}+)",
    R"([0-9][0-9][0-9])"};

// Falcon
constexpr Expression kFalcon[] = {
    R"([\p{P}$+<=>^~|`]+)",
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
    R"([0-9][0-9][0-9])"};

// Llama 3, and cl100k in this form
constexpr Expression kLlama3[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r)"
    R"(\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

// Qwen 2
constexpr Expression kQwen2[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)"};

// Qwen 3.5: marks belong to words
constexpr Expression kQwen35[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{)"
    R"(N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

// MiniCPM 5
constexpr Expression kMiniCpm5[] = {
    R"(\p{N}{1,3})",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"};

// Qwen 2 without English contractions
constexpr Expression kWithoutContractions[] = {
    R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

// line by line
constexpr Expression kLaguna[] = {
    R"([^\n]+|[\n]+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)"};

// Seed-Coder
constexpr Expression kSeedCoder[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)"};

// blanks in powers of two
constexpr Expression kJais2[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r)"
    R"(\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s)"
    R"({16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})"};

// o200k: words change where upper case follows lower case
constexpr Expression kGpt4o[] = {
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|)"
    R"('re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{)"
    R"(Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n)"
    R"(]+|\s+(?!\S)|\s+)"};

// Mistral's Tekken
constexpr Expression kTekken[] = {
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{)"
    R"(L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L})"
    R"(\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

// Kimi K2: Han characters apart
constexpr Expression kKimiK2[] = {
    R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm})"
    R"(\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt})"
    R"(\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve)"
    R"(|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

// Youtu
constexpr Expression kYoutu[] = {
    R"([\x{ac00}-\x{d7a3}\x{3131}-\x{318e}]+|[\x{ff01}\x{2026}\x{201c}\x{201d}\x{2018})"
    R"(\x{2019}\x{2014}\x{ff1a}\x{ff1b}\x{ff0c}\x{3001}-\x{303f}\x{fe30}-\x{fe4f}]+|[\x{3105})"
    R"(-\x{312f}]+|[\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)",
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|)"
    R"('re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{)"
    R"(Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s)"
    R"(+(?!\S)|\s+)"};

// digits in threes from the right
constexpr Expression kTinyAya[] = {
    R"(\d{1,3}(?=(?:\d{3})*\b))",
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|)"
    R"('re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{)"
    R"(Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n)"
    R"(]+|\s+(?!\S)|\s+)"};

// SuperBPE: digits apart, in threes from the right
constexpr Expression kSuperBpe[] = {
    R"(\p{N}+)",
    R"((?=(\d{3})+(?!\d)))"};

// DeepSeek V3 and V4
constexpr Expression kDeepSeek3[] = {
    R"(\p{N}{1,3})",
    R"([\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| )"
    R"(?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

// Spark 2.5
constexpr Expression kSpark[] = {
    R"(\p{N}{1,3})",
    R"([\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| )"
    R"(?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+)",
    R"(\p{N})"};

// AFMoE
constexpr Expression kAfmoe[] = {
    R"(\p{Nd}{1,3}(?=(?:\p{Nd}{3})*(?!\p{Nd})))",
    R"([\x{4e00}-\x{9fff}\x{3400}-\x{4dbf}\x{f900}-\x{faff}\x{3040}-\x{309f}\x{30a0}-\x{30ff})"
    R"(\x{ff65}-\x{ff9f}\x{2f00}-\x{2fdf}\x{e40}-\x{e7f}\x{e80}-\x{eff}\x{1780}-\x{17ff})"
    R"(\x{1000}-\x{109f}\x{aa60}-\x{aa7f}\x{a9e0}-\x{a9ff}\x{ac00}-\x{d7af}\x{1100}-\x{11ff}])"
    R"(+)",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| )"
    R"(?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

// DeepSeek LLM; the letters are the cased ones
constexpr Expression kDeepSeekLlm[] = {
    R"([\r\n])",
    R"(\s?[\x{41}-\x{5a}\x{61}-\x{7a}\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-)"
    R"(\x{1bf}\x{1c4}-\x{293}\x{295}-\x{2af}\x{370}-\x{373}\x{376}-\x{377}\x{37b}-\x{37d})"
    R"(\x{37f}\x{386}\x{388}-\x{38a}\x{38c}\x{38e}-\x{3a1}\x{3a3}-\x{3f5}\x{3f7}-\x{481})"
    R"(\x{48a}-\x{52f}\x{531}-\x{556}\x{10a0}-\x{10c5}\x{13a0}-\x{13f5}\x{13f8}-\x{13fd})"
    R"(\x{1c90}-\x{1cba}\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77}\x{1d79}-\x{1d9a})"
    R"(\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d}\x{1f50}-\x{1f57})"
    R"(\x{1f59}\x{1f5b}\x{1f5d}\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc}\x{1fbe})"
    R"(\x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc}\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec})"
    R"(\x{1ff2}-\x{1ff4}\x{1ff6}-\x{1ffc}\x{2102}\x{2107}\x{210a}-\x{2113}\x{2115}\x{2119}-)"
    R"(\x{211d}\x{2124}\x{2126}\x{2128}\x{212a}-\x{212d}\x{212f}-\x{2134}\x{2139}\x{213c}-)"
    R"(\x{213f}\x{2145}-\x{2149}\x{214e}\x{2183}-\x{2184}\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4})"
    R"(\x{2ceb}-\x{2cee}\x{2cf2}-\x{2cf3}\x{a640}-\x{a66d}\x{a680}-\x{a69b}\x{a722}-\x{a76f})"
    R"(\x{a771}-\x{a787}\x{a78b}-\x{a78e}\x{ab70}-\x{abbf}\x{fb00}-\x{fb06}\x{fb13}-\x{fb17})"
    R"(\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a}\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-)"
    R"(\x{104fb}\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2}\x{118a0}-\x{118df}\x{1e900}-\x{1e943}])"
    R"(+)",
    R"(\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+)",
    R"(\s+$)",
    R"([\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+)",
    R"(\p{N}+)"};

// DeepSeek Coder
constexpr Expression kDeepSeekCoder[] = {
    R"([\r\n])",
    R"(\s?\p{L}+)",
    R"(\s?\p{P}+)",
    R"([\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+)",
    R"(\p{N})"};

// BLOOM, Poro
constexpr Expression kBloom[] = {
    R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{ff0c}\x{3001}\x{964}\x{6d4}\x{60c})]+)"};

// Viking
constexpr Expression kViking[] = {
    R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{ff0c}\x{3001}\x{964}\x{6d4}\x{60c})]+)",
    R"(\p{N})"};

// Ling
constexpr Expression kBailing[] = {
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[)"
    R"(\r\n]|\s+(?!\S)|\s+)"};

// EXAONE 4 MoE
constexpr Expression kExaoneMoe[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)"};

// Chameleon
constexpr Expression kChameleon[] = {
    R"(<sentinel:[0-9]+>)",
    R"((IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z)",
    R"(([\t\n]|    |  ))",
    R"(\p{N})",
    R"([\p{P}!-/:-@\[-`{-~])",
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"};

// Gemma 4: SentencePiece's spelling, lines apart
constexpr Expression kLines[] = {
    R"([^\n]+|[\n]+)"};

// Sorted by name.
constexpr PreTokenizerRules kRules[] = {
    {.name = "a.x-4.0", .expressions = kGpt2},
    {.name = "afmoe", .expressions = kAfmoe},
    {.name = "bailingmoe", .expressions = kBailing},
    {.name = "bailingmoe2", .expressions = kBailing},
    {.name = "bloom", .expressions = kBloom},
    {.name = "chameleon", .expressions = kChameleon, .adds_bos = true},
    {.name = "chatglm-bpe", .expressions = kLlama3},
    {.name = "codeshell", .expressions = kDigits},
    {.name = "cohere2moe", .expressions = kTinyAya},
    {.name = "command-r", .expressions = kDigits},
    {.name = "dbrx", .expressions = kLlama3},
    {.name = "deepseek-coder", .expressions = kDeepSeekCoder},
    {.name = "deepseek-llm", .expressions = kDeepSeekLlm},
    {.name = "deepseek-r1-qwen", .expressions = kQwen2},
    {.name = "deepseek-v3", .expressions = kDeepSeek3},
    {.name = "default", .expressions = kDefault},
    {.name = "exaone", .expressions = kDigits},
    {.name = "exaone-moe", .expressions = kExaoneMoe},
    {.name = "exaone4", .expressions = kGpt2},
    {.name = "f2llmv2", .expressions = kQwen2},
    {.name = "falcon", .expressions = kFalcon},
    {.name = "falcon-h1", .expressions = kLlama3, .ignores_merges = true, .adds_bos = true},
    {.name = "falcon3", .expressions = kLlama3, .ignores_merges = true, .adds_bos = true},
    {.name = "gemma4", .expressions = kLines, .adds_bos = true, .spells_blanks = true},
    {.name = "gigachat", .expressions = kGpt2},
    {.name = "glm4", .expressions = kLlama3},
    {.name = "gpt-2", .expressions = kGpt2},
    {.name = "gpt-4o", .expressions = kGpt4o},
    {.name = "gpt-neox", .expressions = kGpt2},
    {.name = "gpt3-finnish", .expressions = kBloom},
    {.name = "granite", .expressions = kDigits},
    {.name = "granite-docling", .expressions = kGpt2},
    {.name = "granite-embed-multi-311m", .expressions = kLines, .adds_bos = true,
     .spells_blanks = true},
    {.name = "granite-embed-multi-97m", .expressions = kGpt4o, .ignores_merges = true},
    {.name = "grok-2", .expressions = kQwen2},
    {.name = "hunyuan", .expressions = kQwen2},
    {.name = "hunyuan-dense", .expressions = kDeepSeek3},
    {.name = "hy_v4", .expressions = kDeepSeek3},
    {.name = "jais", .expressions = kGpt2},
    {.name = "jais-2", .expressions = kJais2},
    {.name = "jina-de", .expressions = kGpt2},
    {.name = "jina-es", .expressions = kGpt2},
    {.name = "jina-v1-en", .expressions = kGpt2, .adds_separator = true},
    {.name = "jina-v2-code", .expressions = kGpt2, .adds_separator = true},
    {.name = "jina-v2-de", .expressions = kGpt2},
    {.name = "jina-v2-es", .expressions = kGpt2},
    {.name = "jina-v5-nano", .expressions = kLlama3, .ignores_merges = true, .adds_bos = true},
    {.name = "joyai-llm", .expressions = kDeepSeek3},
    {.name = "kanana2", .expressions = kGpt4o},
    {.name = "kimi-k2", .expressions = kKimiK2},
    {.name = "kormo", .expressions = kQwen2},
    {.name = "laguna", .expressions = kLaguna},
    {.name = "lfm2", .expressions = kLlama3, .ignores_merges = true, .adds_bos = true},
    {.name = "llada-moe", .expressions = kBailing},
    {.name = "llama-bpe", .expressions = kLlama3, .ignores_merges = true, .adds_bos = true},
    {.name = "llama-v3", .expressions = kLlama3, .ignores_merges = true, .adds_bos = true},
    {.name = "llama3", .expressions = kLlama3, .ignores_merges = true, .adds_bos = true},
    {.name = "llama4", .expressions = kGpt4o},
    {.name = "megrez", .expressions = kQwen2},
    {.name = "mellum", .expressions = kGpt2},
    {.name = "mellum2", .expressions = kDigits},
    {.name = "midm-2.0", .expressions = kLlama3, .ignores_merges = true, .adds_bos = true},
    {.name = "minerva-7b", .expressions = kDigits},
    {.name = "minicpm5", .expressions = kMiniCpm5, .ignores_merges = true},
    {.name = "minimax-m2", .expressions = kGpt4o},
    {.name = "modern-bert", .expressions = kGpt2},
    {.name = "mpt", .expressions = kGpt2},
    {.name = "olmo", .expressions = kGpt2},
    {.name = "phi-2", .expressions = kGpt2},
    {.name = "pixtral", .expressions = kLlama3, .ignores_merges = true, .adds_bos = true},
    {.name = "poro-chat", .expressions = kBloom},
    {.name = "qwen2", .expressions = kQwen2},
    {.name = "qwen35", .expressions = kQwen35},
    {.name = "refact", .expressions = kDigits},
    {.name = "roberta-bpe", .expressions = kGpt2, .adds_separator = true},
    {.name = "sarvam-moe", .expressions = kLines, .spells_blanks = true},
    {.name = "seed-coder", .expressions = kSeedCoder},
    {.name = "smaug-bpe", .expressions = kLlama3},
    {.name = "smollm", .expressions = kDigits},
    {.name = "solar-open", .expressions = kQwen2},
    {.name = "spark2_5", .expressions = kSpark},
    {.name = "stablelm2", .expressions = kQwen2},
    {.name = "starcoder", .expressions = kDigits},
    {.name = "superbpe", .expressions = kSuperBpe},
    {.name = "talkie", .expressions = kGpt4o},
    {.name = "tekken", .expressions = kTekken, .ignores_merges = true, .adds_bos = true},
    {.name = "tiny_aya", .expressions = kTinyAya},
    {.name = "trillion", .expressions = kGpt2},
    {.name = "ufakzeka", .expressions = kWithoutContractions},
    {.name = "viking", .expressions = kViking},
    {.name = "youtu", .expressions = kYoutu, .ignores_merges = true},
};
// clang-format on

}  // namespace

std::span<const PreTokenizerRules> pre_tokenizer_rules() noexcept {
  return kRules;
}

}  // namespace lemma::text
