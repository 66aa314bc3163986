// SPDX-License-Identifier: Apache-2.0
// `lemma logits`: known tokens through the model, and through its draft blocks where they are asked
// for; the rows of all positions to a file.
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "base/raise.hpp"
#include "cli/commands.hpp"
#include "cli/eval_run_options.hpp"
#include "cli/output.hpp"
#include "cli/progress_bar.hpp"
#include "eval/model_run.hpp"
#include "eval/tokens_file.hpp"
#include "runtime/draft_evaluation.hpp"
#include "runtime/evaluation.hpp"

namespace lemma::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "rows are written as they lie in memory");

/// A file that appears under its name only when it is whole.
class RowFile {
 public:
  explicit RowFile(std::filesystem::path path)
      : path_(std::move(path)),
        partial_(path_.string() + ".partial-" + std::to_string(::getpid())) {
    file_.open(partial_, std::ios::binary | std::ios::trunc);
    check();
  }
  ~RowFile() {
    std::error_code ignored;
    if (!published_) std::filesystem::remove(partial_, ignored);
  }
  RowFile(const RowFile&) = delete;
  RowFile& operator=(const RowFile&) = delete;

  void append(std::span<const float> row) {
    file_.write(reinterpret_cast<const char*>(row.data()),
                static_cast<std::streamsize>(row.size_bytes()));
  }
  void publish() {
    file_.close();
    check();
    std::error_code error;
    std::filesystem::rename(partial_, path_, error);
    if (error) base::raise(ErrorKind::kIo, "{}: {}", path_.string(), error.message());
    published_ = true;
  }

 private:
  void check() const {
    if (!file_) base::raise(ErrorKind::kIo, "{}: cannot be written", partial_.string());
  }
  const std::filesystem::path path_, partial_;
  std::ofstream file_;
  bool published_ = false;
};

/// Writes the rows of one site.
class SiteWriter final : public backend::Observer {
 public:
  SiteWriter(std::string site, RowFile& file) : site_(std::move(site)), file_(file) {}
  bool wants(const backend::Program::Site& site) override { return site.name == site_; }
  void observe(std::int32_t, const backend::Program::Site&, const backend::Step&,
               std::span<float> rows) override {
    file_.append(rows);
  }

 private:
  const std::string site_;
  RowFile& file_;
};

std::string hidden_site(const runtime::LoadedModel& model) {
  const backend::Program& program = model.program();
  if (!program.hidden)
    base::raise(ErrorKind::kUnsupported, "architecture '{}' has no last hidden state",
                model.plan().architecture);
  return program.tensors[static_cast<std::size_t>(program.hidden.id)].name;
}

std::size_t favourite(std::span<const float> logits) {
  return static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

/// The files of the draft blocks' rows, and how often a block has the model's own favourite.
class DraftFiles {
 public:
  DraftFiles(const std::filesystem::path& path, std::size_t blocks) : counts_(blocks) {
    for (std::size_t block = 0; block < blocks; ++block)
      files_.push_back(std::make_unique<RowFile>(
          path.string() + (block ? "." + std::to_string(block) : std::string())));
  }
  void model_row(std::span<const float> row) { favourites_.push_back(favourite(row)); }
  void draft_row(std::size_t block, std::uint32_t position, std::span<const float> row) {
    files_[block]->append(row);
    ++counts_[block].rows;
    counts_[block].same += favourite(row) == favourites_[position];
  }
  void publish() {
    for (const auto& file : files_) file->publish();
  }
  std::string summary() const {
    std::string text;
    for (std::size_t block = 0; block < counts_.size(); ++block)
      text += fmt::format("draft block {}: the model's own favourite in {} of {} rows\n", block,
                          counts_[block].same, counts_[block].rows);
    return text;
  }

 private:
  struct Count {
    std::size_t rows = 0, same = 0;
  };
  std::vector<std::unique_ptr<RowFile>> files_;
  std::vector<std::size_t> favourites_;  ///< of the model, by position
  std::vector<Count> counts_;
};

void write_with_drafts(eval::ModelRun& run, const std::vector<TokenId>& tokens,
                       const LogitsOptions& options) {
  RowFile file(options.out);
  DraftFiles drafts(options.draft_out, run.model().draft_programs().size());
  runtime::evaluate_with_drafts(
      run.model(), run.state_options(), tokens,
      {options.cuts, options.stepwise, options.generated_from},
      [&](std::uint32_t, std::span<const float> row) {
        file.append(row);
        drafts.model_row(row);
      },
      [&](std::size_t block, std::uint32_t position, std::span<const float> row) {
        drafts.draft_row(block, position, row);
      });
  file.publish();
  drafts.publish();
  write_out(drafts.summary());
}

}  // namespace

int logits(const LogitsOptions& options) {
  ProgressBar progress;
  const std::vector<TokenId> tokens = eval::parse_tokens(read_file(options.tokens), options.tokens);
  eval::ModelRunOptions settings = model_run_options(options.model, progress.callback());
  settings.draft_file = options.draft;
  settings.drafts = !options.draft_out.empty();
  settings.tokenizer_may_lack = true;
  eval::ModelRun run(settings);
  if (!options.draft_out.empty()) {
    progress.clear();
    write_with_drafts(run, tokens, options);
    return kDone;
  }
  RowFile file(options.out);
  SiteWriter hidden(options.hidden ? hidden_site(run.model()) : std::string(), file);
  backend::Observer* const observer = &hidden;
  if (options.hidden)
    run.prepare({&observer, 1});
  else
    run.prepare();

  state::Sequence sequence(run.space().pool());
  const runtime::Chunking chunking{options.cuts, options.stepwise, options.generated_from};
  runtime::LogitsSink sink;
  if (!options.hidden) {
    sink = [&](std::uint32_t position, std::span<const float> row) {
      file.append(row);
      progress.update("evaluating", double(position + 1) / double(tokens.size()));
    };
  }
  runtime::evaluate(run.model(), run.space(), sequence, tokens, chunking, sink);
  file.publish();
  return kDone;
}

}  // namespace lemma::cli
