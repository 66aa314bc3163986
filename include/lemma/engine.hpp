// SPDX-License-Identifier: Apache-2.0
// Engine: a loaded model and the one loop that steps it. Requests and sessions from any thread are
// packed into steps; what a request computes does not depend on its company. An Engine is shared:
// generations and sessions keep it alive.
//
//   auto engine = lemma::Engine::open("model.gguf");
//   lemma::Request request{.prompt = engine->tokenizer().encode("Once upon a time")};
//   auto generation = engine->submit(request);
//   while (auto event = generation.next()) std::cout << event->text << std::flush;
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lemma/constraint.hpp"
#include "lemma/error.hpp"
#include "lemma/sampling.hpp"
#include "lemma/session.hpp"
#include "lemma/tokenizer.hpp"

namespace lemma {

namespace runtime {
struct EngineAccess;  // opens an engine with observers, for tests
}

enum class BackendKind : std::uint8_t { kReference, kCpu };
/// kFp8 is for models that define it (DeepSeek V4: rows in fp8 with the turned part in f16, index
/// rows in fp4) and is refused by others.
enum class KvFormat : std::uint8_t { kF32, kF16, kBF16, kQ8, kFp8 };
enum class NumericsMode : std::uint8_t {
  kFast,    ///< activations of quantized products may be rounded to int8 per group
  kStrict,  ///< weights are decoded, activations stay f32: one definition for every phase
};

/// Called while loading (stages such as "weights") and prefilling; `fraction` in [0, 1].
using ProgressCallback = std::function<void(std::string_view stage, double fraction)>;

/// Vectors that are added to the rows of a model's sites as it runs; what made them decides what
/// they do to the text (`lemma capture --steer-from`).
struct Steering {
  std::filesystem::path file;  ///< safetensors: F32 vectors, named after sites or layers
  /// Multiply the vectors of feed-forward and of attention sites. Neither given: both 1. One given:
  /// the other is 0. At 0 nothing changes.
  std::optional<float> ffn, attention;
};

struct EngineOptions {
  BackendKind backend = BackendKind::kCpu;
  int threads = 0;  ///< 0: chosen from the machine's topology
  KvFormat kv = KvFormat::kF16;
  NumericsMode numerics = NumericsMode::kFast;
  std::uint32_t context = 0;         ///< positions per sequence; 0: the model's own, at most 4096
  std::uint32_t max_sequences = 8;   ///< sequences that are stepped at the same time
  std::uint32_t step_rows = 512;     ///< rows of one step at most; a longer prompt takes several
  std::optional<Steering> steering;  ///< of all sequences
  /// Whether weights are copied to the kernels' own layout when they are loaded. Without, a model
  /// starts at once from the file's: the same bits, each step somewhat slower. (Cpu backend.)
  bool repack = true;
  /// Bytes that weights and state may take: matrices of experts that would not fit stay as the file
  /// has them, and only the pages of chosen experts are read. 0: what the system has. (Cpu
  /// backend.)
  std::uint64_t memory = 0;
  /// Experts of a layer whose weights are read ahead by a guess at what will be chosen, while one
  /// sequence is decoded; 0: none. Absent: as many as are chosen, where experts stay in the file
  /// for lack of memory and while at least half of the guesses are right. Never changes a result.
  std::optional<std::uint32_t> prefetch_experts;
  TokenizerOptions tokenizer{};
  ProgressCallback progress;  ///< of loading; on the calling thread
};

struct ModelInfo {
  std::string architecture, name;
  std::uint32_t context = 0;          ///< positions per sequence, as opened
  std::uint32_t trained_context = 0;  ///< what the model was made for
  std::uint32_t vocabulary = 0, layers = 0, width = 0;
  std::uint64_t parameters = 0, file_bytes = 0;
  std::string backend;  ///< one line: backend, instruction set, threads and why
};

struct MemoryUse {
  std::uint64_t weights = 0;  ///< held beyond the mapped files
  std::uint64_t mapped = 0;   ///< mapped files
  std::uint64_t state_allocated = 0, state_used = 0;
  std::uint64_t scratch = 0;
  std::uint64_t experts_in_file = 0;  ///< of them, experts that are used where they are mapped
  /// Where experts are read ahead: choices that a guess went before, and how many it had named.
  std::uint64_t experts_chosen = 0, experts_foreseen = 0;
};

struct Request {
  std::vector<TokenId> prompt;  ///< not empty
  Sampling sampling;
  std::optional<std::uint64_t> seed;      ///< none: a fresh one, reported in the usage
  std::optional<std::size_t> max_tokens;  ///< none: until the context is full
  std::vector<std::string> stop;          ///< stop strings; never part of the text
  bool stop_at_end = true;                ///< stop on end-of-generation tokens
  std::optional<Constraint> constraint;   ///< a form that the text must have
  int log_probabilities = -1;             ///< >= 0: of each token, with that many best (up to 20)
  ProgressCallback progress;              ///< of a long prefill; on the step loop's thread
};

enum class FinishReason : std::uint8_t { kStop, kLength, kCancelled, kError };

struct TokenProbability {
  TokenId id = 0;
  double log_probability = 0;  ///< natural, of the raw logits
};

struct Usage {
  std::size_t prompt_tokens = 0, reused_tokens = 0, generated_tokens = 0, decode_rounds = 0;
  std::chrono::duration<double> queued{}, prefill{}, decode{};
  std::uint64_t seed = 0;
};

/// One token, or the end. Text is held back while it may be part of a stop string or of a character
/// that is not whole; the texts of all events together are the answer.
struct Event {
  std::string text;
  std::optional<TokenId> token;  ///< absent in the last event
  std::optional<double> log_probability;
  std::vector<TokenProbability> top;   ///< best first
  std::optional<FinishReason> finish;  ///< present in the last event only
  std::string stop;                    ///< the stop string that ended it, if one did
  Usage usage;                         ///< complete in the last event
};

/// A running request. Destroying it cancels the request.
class Generation {
 public:
  Generation(Generation&&) noexcept;
  Generation& operator=(Generation&&) noexcept;
  ~Generation();
  /// Waits for the next event; nothing after the last one. Throws the request's error, once.
  std::optional<Event> next();
  /// Ends the request after the step that is running; from any thread. The last event says so.
  void cancel() noexcept;

 private:
  friend class Engine;
  struct Impl;
  explicit Generation(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  /// Loads the model at `path` (a GGUF file, the first of a split one, or a folder that holds one).
  static std::shared_ptr<Engine> open(const std::filesystem::path& path,
                                      EngineOptions options = {});
  ~Engine();

  const ModelInfo& info() const noexcept;
  const Tokenizer& tokenizer() const noexcept;
  MemoryUse memory() const;

  /// Queues a request. Throws kUsage for parameters out of range, ids outside the vocabulary or a
  /// constraint that is malformed (compiling it is done here; the latest ones are kept), and
  /// kContextFull, naming prompt and context length, if the prompt does not fit. (A prompt that
  /// just fits yields one token: the last one is never fed.)
  Generation submit(Request request);
  Session session();

 private:
  friend struct runtime::EngineAccess;
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lemma
