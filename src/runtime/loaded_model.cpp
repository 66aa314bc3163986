// SPDX-License-Identifier: Apache-2.0
#include "runtime/loaded_model.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "backend/cpu/cpu_backend.hpp"
#include "backend/reference/reference_backend.hpp"
#include "base/log.hpp"
#include "base/raise.hpp"
#include "model/arch/arch.hpp"
#include "model/arch/draft_file.hpp"
#include "model/decoder.hpp"
#include "runtime/expert_memory.hpp"
#include "runtime/tokenizer_impl.hpp"

namespace lemma::runtime {
namespace {

/// Positions of a sequence when nobody asks for a number: enough for most uses, and the state of a
/// long context would be larger than the weights.
constexpr std::uint32_t kDefaultContext = 4096;

/// Hands everything on and tells how many weights have been taken.
class ReportingBackend final : public backend::Backend {
 public:
  ReportingBackend(backend::Backend& inner, std::size_t weights, const ProgressCallback& progress)
      : inner_(inner), weights_(weights), progress_(progress) {}

  std::string_view name() const noexcept override { return inner_.name(); }
  std::string description() const override { return inner_.description(); }
  backend::WeightId add(weights::Matrix matrix, backend::WeightUse use) override {
    const backend::WeightId id = inner_.add(std::move(matrix), use);
    // A tensor can be taken in parts or twice; the end is told by the caller.
    taken_ = std::min(taken_ + 1, weights_);
    if (taken_ < weights_) progress_("weights", double(taken_) / double(weights_));
    return id;
  }
  std::size_t weight_bytes() const noexcept override { return inner_.weight_bytes(); }
  std::unique_ptr<backend::StateStore> make_state(const state::Layout& layout,
                                                  std::span<const std::size_t> pages) override {
    return inner_.make_state(layout, pages);
  }
  std::unique_ptr<backend::Executable> prepare(const backend::Program& program,
                                               backend::StateStore& state,
                                               const backend::PrepareOptions& options) override {
    return inner_.prepare(program, state, options);
  }

 private:
  backend::Backend& inner_;
  const std::size_t weights_;
  const ProgressCallback& progress_;
  std::size_t taken_ = 0;
};

std::unique_ptr<backend::Backend> make_backend(const LoadOptions& options,
                                               std::vector<std::string> in_file) {
  if (options.threads < 0) {
    base::raise(ErrorKind::kUsage, "threads: expected 0 (automatic) or more, found {}",
                options.threads);
  }
  if (options.backend == BackendKind::kReference) {
    if (options.threads > 1) {
      base::log(base::LogLevel::kWarning, "the reference backend runs on one thread, not on {}",
                options.threads);
    }
    return reference::make_backend();
  }
  cpu::CpuOptions cpu_options;
  cpu_options.threads = options.threads;
  cpu_options.repack = options.repack;
  cpu_options.mapped = std::move(in_file);
  cpu_options.numerics = options.numerics == NumericsMode::kStrict ? backend::Numerics::kStrict
                                                                   : backend::Numerics::kFast;
  return cpu::make_backend(cpu_options);
}

/// Positions per sequence: what was asked for, else the model's own up to the default.
std::uint32_t choose_context(std::uint32_t asked, const model::Plan& plan) {
  if (asked == 0) return std::min(plan.context, kDefaultContext);
  if (asked > std::uint32_t(algorithm::kMaxRopePosition)) {
    base::raise(ErrorKind::kUsage, "context: expected at most {} positions, found {}",
                algorithm::kMaxRopePosition, asked);
  }
  const std::uint32_t rows = plan.embedding.position_rows;
  if (rows > 0 && asked > rows) {
    base::raise(ErrorKind::kUsage,
                "context: this model has learned positions for {} tokens and no more, found {}",
                rows, asked);
  }
  if (asked > plan.context) {
    base::log(
        base::LogLevel::kWarning,
        "a context of {} positions was asked for, but the model was made for {}: expect worse "
        "text beyond that",
        asked, plan.context);
  }
  return asked;
}

bool has_tokenizer(const weights::Metadata& metadata) {
  return metadata.has("tokenizer.ggml.model") || metadata.has(text::Tokenizer::kJsonKey);
}

}  // namespace

std::unique_ptr<LoadedModel> LoadedModel::open(const std::filesystem::path& path,
                                               const LoadOptions& options) {
  return with_path(path, [&] {
    std::unique_ptr<LoadedModel> model(new LoadedModel);
    model->checkpoint_ = weights::open_checkpoint(path);
    if (const std::filesystem::path& file = options.draft_file; !file.empty())
      model->checkpoint_ = with_path(file, [&] {
        auto draft = weights::open_checkpoint(file);
        return model::join_draft(std::move(model->checkpoint_), std::move(draft));
      });
    const weights::Checkpoint& checkpoint = *model->checkpoint_;
    if (!options.tokenizer_may_lack || has_tokenizer(checkpoint.metadata()))
      model->tokenizer_ =
          text::Tokenizer::from_metadata(checkpoint.metadata(), overrides_of(options.tokenizer));
    model->plan_ = model::make_plan(checkpoint, {});
    model->context_ = choose_context(options.context, model->plan_);
    if (model->context_ != model->plan_.context) {
      // The positions in use decide between the factor lists of some rotations.
      model->plan_ = model::make_plan(checkpoint, {.context = model->context_});
    }
    model->bind(options);
    return model;
  });
}

std::unique_ptr<LoadedModel> LoadedModel::assemble(
    std::unique_ptr<const weights::Checkpoint> weights, model::Plan plan,
    const LoadOptions& options) {
  plan.validate();
  std::unique_ptr<LoadedModel> model(new LoadedModel);
  model->checkpoint_ = std::move(weights);
  model->plan_ = std::move(plan);
  model->context_ = choose_context(options.context, model->plan_);
  model->bind(options);
  return model;
}

/// Takes the plan's weights into a backend.
void LoadedModel::bind(const LoadOptions& options) {
  packs_ = options.backend == BackendKind::kCpu && options.repack;
  if (packs_) {
    ExpertPlacement placement = place_experts(plan_, *checkpoint_, context_, options);
    in_file_ = std::move(placement.in_file);
    experts_in_file_ = placement.bytes;
  }
  backend_ = make_backend(options, in_file_);
  if (!options.progress) {
    record(*backend_, options.drafts);
    return;
  }
  options.progress("weights", 0.0);
  ReportingBackend reporting(*backend_, checkpoint_->tensors().size(), options.progress);
  record(reporting, options.drafts);
  options.progress("weights", 1.0);
}

bool LoadedModel::reads_in_file(const std::string& tensor) const {
  return !packs_ || std::binary_search(in_file_.begin(), in_file_.end(), tensor);
}

void LoadedModel::record(backend::Backend& backend, bool drafts) {
  model::WeightBinder weights(*checkpoint_, backend);
  program_ = model::record(plan_, weights);
  for (std::size_t block = 0; drafts && block < plan_.drafts.size(); ++block)
    drafts_.push_back(model::record_draft(plan_, block, weights));
}

ModelInfo LoadedModel::info() const {
  ModelInfo info;
  info.architecture = plan_.architecture;
  info.name = plan_.name;
  info.context = context_;
  info.trained_context = plan_.context;
  info.vocabulary = plan_.vocabulary;
  info.layers = std::uint32_t(plan_.layers.size());
  info.width = plan_.width;
  for (const weights::TensorInfo& tensor : checkpoint_->tensors()) {
    info.parameters += tensor.elements();
  }
  for (const std::filesystem::path& file : checkpoint_->files()) {
    std::error_code error;
    const std::uintmax_t size = std::filesystem::file_size(file, error);
    if (!error) info.file_bytes += size;
  }
  info.backend = backend_->description();
  return info;
}

StateSpace::StateSpace(LoadedModel& model, const backend::Program& program,
                       const StateOptions& options)
    : layout_(state::layout_with_snapshots(
          program.slots, {.format = options.format, .page_size = options.page_size},
          model.context(), options.max_rows, options.snapshot_share)),
      max_rows_(options.max_rows) {
  std::vector<std::size_t> pages;
  for (std::uint32_t g = 0; g < layout_.groups().size(); ++g) {
    pages.push_back(layout_.pages_for(g, model.context(), max_rows_) * options.sequences);
    if (pages.back() >= state::kNoPage) {
      base::raise(ErrorKind::kOutOfMemory,
                  "the state of {} sequences of {} positions needs {} pages; at most {} exist",
                  options.sequences, model.context(), pages.back(), state::kNoPage - 1);
    }
  }
  pool_ = std::make_unique<state::PagePool>(layout_, pages);
  store_ = model.backend().make_state(layout_, pages);
  executable_ = model.backend().prepare(program, *store_,
                                        {.max_rows = max_rows_,
                                         .max_logit_rows = options.max_logit_rows,
                                         .observers = options.observers});
}

}  // namespace lemma::runtime
