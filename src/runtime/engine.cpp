// SPDX-License-Identifier: Apache-2.0
#include "lemma/engine.hpp"

#include <algorithm>
#include <utility>

#include "base/raise.hpp"
#include "runtime/engine_core.hpp"
#include "runtime/generation.hpp"
#include "runtime/steering.hpp"
#include "runtime/tokenizer_impl.hpp"

namespace lemma::runtime {
namespace {

constexpr std::uint32_t kMaxSequences = 1024;

void validate(const EngineOptions& options) {
  if (options.max_sequences < 1 || options.max_sequences > kMaxSequences) {
    base::raise(ErrorKind::kUsage, "max_sequences: expected a number from 1 to {}, found {}",
                kMaxSequences, options.max_sequences);
  }
  if (options.step_rows < options.max_sequences) {
    base::raise(ErrorKind::kUsage,
                "step_rows: expected at least {}, one row for each sequence, found {}",
                options.max_sequences, options.step_rows);
  }
}

algorithm::RowFormat row_format(KvFormat format) {
  switch (format) {
    case KvFormat::kF32:
      return algorithm::RowFormat::kF32;
    case KvFormat::kF16:
      return algorithm::RowFormat::kF16;
    case KvFormat::kBF16:
      return algorithm::RowFormat::kBF16;
    case KvFormat::kQ8:
      return algorithm::RowFormat::kQ8;
    case KvFormat::kFp8:
      return algorithm::RowFormat::kFp8;
  }
  base::raise(ErrorKind::kUsage, "kv: format {} does not exist", int(format));
}

/// The reference, strict numerics and F32 weights have one definition for entered and generated
/// tokens (docs/design.md, "Same input, same output").
bool has_one_definition(const LoadedModel& model, const EngineOptions& options) {
  if (options.backend == BackendKind::kReference || options.numerics == NumericsMode::kStrict) {
    return true;
  }
  const auto& tensors = model.checkpoint().tensors();
  return std::all_of(tensors.begin(), tensors.end(), [](const weights::TensorInfo& tensor) {
    return tensor.format == weights::Format::kF32;
  });
}

ModelFacts facts_of(const LoadedModel& model, const EngineOptions& options) {
  return {.tokenizer = model.tokenizer(),
          .vocabulary = model.plan().vocabulary,
          .context = model.context(),
          .class_ignored = has_one_definition(model, options),
          .has_head = model.program().vocabulary != 0,
          .whole_prompts = model.program().whole_prompts,
          .constraints = std::make_shared<text::constraint::ProgramCache>(model.tokenizer())};
}

/// Reads experts ahead as asked, or where some stay in the file for lack of memory.
std::unique_ptr<ExpertPrefetch> make_prefetch(const LoadedModel& model,
                                              const EngineOptions& options) {
  if (options.prefetch_experts) {
    if (*options.prefetch_experts == 0) return nullptr;
    return std::make_unique<ExpertPrefetch>(model, *options.prefetch_experts);
  }
  return prefetch_of_file(model);
}

/// The steering first, so that other observers see what the model goes on with.
std::vector<backend::Observer*> observers_of(backend::Observer* steering,
                                             backend::Observer* prefetch,
                                             std::span<backend::Observer* const> others) {
  std::vector<backend::Observer*> all;
  for (backend::Observer* const own : {steering, prefetch})
    if (own) all.push_back(own);
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

}  // namespace

EngineCore::EngineCore(std::unique_ptr<LoadedModel> loaded, const EngineOptions& options,
                       const EngineParts& parts)
    : model(std::move(loaded)),
      steering(options.steering
                   ? std::make_unique<SteeringObserver>(*options.steering, model->program())
                   : nullptr),
      prefetch(make_prefetch(*model, options)),
      state(*model, {.format = row_format(options.kv),
                     .page_size = parts.page_size,
                     .sequences = options.max_sequences,
                     .max_rows = options.step_rows,
                     .max_logit_rows = options.max_sequences,  // of each its last row at most
                     .observers = observers_of(steering.get(), prefetch.get(), parts.observers)}),
      facts(std::make_shared<const ModelFacts>(facts_of(*model, options))),
      info(model->info()),
      weight_bytes(model->backend().weight_bytes()),
      store_bytes(state.store().allocated_bytes()),
      scratch_bytes(state.executable().scratch_bytes()),
      loop({.executable = &state.executable(),
            .store = &state.store(),
            .sites = model->program().tensors,
            .max_rows = options.step_rows,
            .whole_prompts = model->program().whole_prompts},
           state.pool(), options.max_sequences) {}

std::shared_ptr<Engine> EngineAccess::open(const std::filesystem::path& path,
                                           const EngineOptions& options, const EngineParts& parts) {
  validate(options);
  auto model = LoadedModel::open(path, {.backend = options.backend,
                                        .threads = options.threads,
                                        .numerics = options.numerics,
                                        .context = options.context,
                                        .progress = options.progress,
                                        .tokenizer = options.tokenizer,
                                        .repack = options.repack,
                                        .memory = options.memory,
                                        .sequences = options.max_sequences});
  auto core = with_path(
      path, [&] { return std::make_shared<EngineCore>(std::move(model), options, parts); });
  return std::shared_ptr<Engine>(new Engine(std::make_unique<Engine::Impl>(std::move(core))));
}

}  // namespace lemma::runtime

namespace lemma {

Engine::Impl::Impl(std::shared_ptr<runtime::EngineCore> engine_core)
    : core(std::move(engine_core)),
      tokenizer(std::make_shared<const Tokenizer::Impl>(Tokenizer::Impl{core->facts->tokenizer})),
      thread([loop_core = core] { loop_core->loop.run(); }) {}

/// The loop's thread itself can be the last owner, when a request's callback holds the engine; it
/// then ends on its own, with its share of the core.
Engine::Impl::~Impl() {
  core->loop.stop();
  if (thread.get_id() == std::this_thread::get_id()) {
    thread.detach();
  } else {
    thread.join();
  }
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

std::shared_ptr<Engine> Engine::open(const std::filesystem::path& path, EngineOptions options) {
  return runtime::EngineAccess::open(path, options, {});
}

const ModelInfo& Engine::info() const noexcept {
  return impl_->core->info;
}
const Tokenizer& Engine::tokenizer() const noexcept {
  return impl_->tokenizer;
}

MemoryUse Engine::memory() const {
  const runtime::EngineCore& core = *impl_->core;
  MemoryUse use;
  use.weights = core.weight_bytes;
  use.mapped = core.info.file_bytes;
  use.state_allocated = core.store_bytes;
  use.state_used = core.loop.state_used();
  use.scratch = core.scratch_bytes;
  use.experts_in_file = core.model->experts_in_file();
  if (core.prefetch) {
    use.experts_chosen = core.prefetch->chosen();
    use.experts_foreseen = core.prefetch->foreseen();
  }
  return use;
}

struct Generation::Impl {
  Impl(std::shared_ptr<Engine> owner, runtime::StepLoop* step_loop,
       std::shared_ptr<runtime::GenerationJob> generation_job)
      : engine(std::move(owner)), loop(step_loop), job(std::move(generation_job)) {}

  const std::shared_ptr<Engine> engine;  // keeps the loop alive
  runtime::StepLoop* const loop;
  const std::shared_ptr<runtime::GenerationJob> job;

  void cancel() noexcept {
    job->request_cancel();
    loop->wake();
  }
  ~Impl() { cancel(); }
};

Generation Engine::submit(Request request) {
  auto job = std::make_shared<runtime::GenerationJob>(std::move(request), impl_->core->facts);
  auto impl = std::make_shared<Generation::Impl>(shared_from_this(), &impl_->core->loop, job);
  impl->loop->submit(std::move(job));
  return Generation(std::move(impl));
}

Generation::Generation(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Generation::Generation(Generation&&) noexcept = default;
Generation& Generation::operator=(Generation&&) noexcept = default;
Generation::~Generation() = default;

std::optional<Event> Generation::next() {
  return impl_->job->next();
}
void Generation::cancel() noexcept {
  impl_->cancel();
}

}  // namespace lemma
