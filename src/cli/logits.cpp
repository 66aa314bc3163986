// SPDX-License-Identifier: Apache-2.0
// `lemma logits`: known tokens through the model, the rows of all positions to a file.
#include <unistd.h>

#include <bit>
#include <fstream>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "base/raise.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "cli/progress_bar.hpp"
#include "eval/model_run.hpp"
#include "eval/tokens_file.hpp"
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

}  // namespace

int logits(const LogitsOptions& options) {
  ProgressBar progress;
  const std::vector<TokenId> tokens = eval::parse_tokens(read_file(options.tokens), options.tokens);
  eval::ModelRun run({.path = options.model.path,
                      .backend = options.model.backend,
                      .threads = options.model.threads,
                      .kv = options.model.kv,
                      .numerics = options.model.numerics,
                      .context = options.model.context,
                      .progress = progress.callback()});
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
