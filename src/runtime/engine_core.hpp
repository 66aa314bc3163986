// SPDX-License-Identifier: Apache-2.0
// EngineCore: all that one step loop works on, held by the engine and by the loop's thread, so that
// it lives until both are done. EngineAccess opens an engine with what outsiders have no use for:
// observers of the forward pass and another page size.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <thread>

#include "lemma/engine.hpp"
#include "runtime/expert_prefetch.hpp"
#include "runtime/loaded_model.hpp"
#include "runtime/model_facts.hpp"
#include "runtime/step_loop.hpp"

namespace lemma::runtime {

struct EngineParts {
  std::span<backend::Observer* const> observers;  ///< must outlive the engine
  std::uint32_t page_size = 128;
};

struct EngineAccess {
  static std::shared_ptr<Engine> open(const std::filesystem::path& path,
                                      const EngineOptions& options, const EngineParts& parts);
};

struct EngineCore {
  EngineCore(std::unique_ptr<LoadedModel> loaded, const EngineOptions& options,
             const EngineParts& parts);

  const std::unique_ptr<LoadedModel> model;
  const std::unique_ptr<backend::Observer> steering;  ///< or null
  const std::unique_ptr<ExpertPrefetch> prefetch;     ///< or null
  StateSpace state;
  const std::shared_ptr<const ModelFacts> facts;
  const ModelInfo info;
  const std::size_t weight_bytes, store_bytes, scratch_bytes;  ///< fixed once all is prepared
  StepLoop loop;
};

}  // namespace lemma::runtime

namespace lemma {

struct Engine::Impl {
  explicit Impl(std::shared_ptr<runtime::EngineCore> engine_core);
  ~Impl();

  const std::shared_ptr<runtime::EngineCore> core;
  const Tokenizer tokenizer;
  std::thread thread;
};

}  // namespace lemma
