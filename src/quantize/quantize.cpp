// SPDX-License-Identifier: Apache-2.0
#include "quantize/quantize.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>

#include "base/checksum.hpp"
#include "base/raise.hpp"
#include "base/thread_pool.hpp"
#include "base/wildcard.hpp"
#include "quantize/encoder.hpp"
#include "quantize/weight_uses.hpp"
#include "text/huggingface/ggml_vocabulary.hpp"
#include "weights/formats/codes.hpp"
#include "weights/gguf/checkpoint.hpp"
#include "weights/gguf/writer.hpp"
#include "weights/rows_of.hpp"

namespace lemma::quantize {
namespace {

using weights::TensorInfo;
using weights::gguf::Writer;

// Keys that speak of the file, not of the model.
constexpr std::string_view kSplitKeys = "split.", kFileType = "general.file_type";
constexpr std::string_view kFingerprint = "lemma.quantize.fingerprint";
constexpr std::string_view kRecipe = "lemma.quantize.recipe";

std::uint32_t layer_of(std::string_view name) {
  constexpr std::string_view kBlock = "blk.";
  if (!name.starts_with(kBlock)) return 0;
  std::uint32_t layer = 0;
  for (const char c : name.substr(kBlock.size())) {
    if (c < '0' || c > '9') break;
    layer = layer * 10 + static_cast<std::uint32_t>(c - '0');
  }
  return layer;
}

/// Depends on all that the bytes of the output depend on, but for the source's weights, of which it
/// takes a sample.
std::string fingerprint(const weights::Checkpoint& checkpoint, const std::vector<Planned>& plan,
                        const Options& options) {
  base::Digest digest;
  const auto take = [&](const auto& value) { digest.add(std::as_bytes(std::span(&value, 1))); };
  constexpr std::size_t kSample = 4096;
  for (const Planned& planned : plan) {
    digest.add(planned.source->name);
    take(planned.format);
    const auto bytes = planned.source->bytes;
    digest.add(bytes.first(std::min(bytes.size(), kSample)));
    digest.add(bytes.last(std::min(bytes.size(), kSample)));
  }
  for (const std::filesystem::path& file : checkpoint.files()) {
    digest.add(file.filename().string());
    take(std::filesystem::file_size(file));
    take(std::filesystem::last_write_time(file).time_since_epoch().count());
  }
  if (options.hessians != nullptr) {
    digest.add(options.calibration);
    take(options.damping);
  }
  if (options.importance != nullptr)
    for (const auto& [name, entry] : options.importance->entries) {
      digest.add(name);
      digest.add(std::as_bytes(std::span(entry.sums)));
      digest.add(std::as_bytes(std::span(entry.counts)));
    }
  return digest.hex();
}

void copy_metadata(const weights::Metadata& metadata, Writer& writer) {
  for (const auto& [key, value] : metadata.pairs()) {
    const bool about_the_file =
        key.starts_with(kSplitKeys) || key == kFileType || key == kFingerprint || key == kRecipe;
    if (!about_the_file) writer.add(key, value);
  }
}

/// Throws kInternal unless the file at `path` is what was planned.
void read_back(const std::filesystem::path& path, const weights::Metadata& metadata,
               const std::vector<Planned>& plan) {
  const auto file = weights::gguf::open(path);
  const auto wrong = [&](std::string_view what) {
    base::raise(ErrorKind::kInternal, "{}: read back, {} is not as it was written", path.string(),
                what);
  };
  for (const Planned& planned : plan) {
    const TensorInfo& tensor = file->at(planned.source->name);
    if (tensor.format != planned.format || tensor.shape != planned.source->shape)
      wrong("tensor '" + tensor.name + "'");
  }
  for (const auto& [key, value] : metadata.pairs()) {
    if (key.starts_with(kSplitKeys) || key == kFileType || key == kFingerprint || key == kRecipe)
      continue;
    const weights::Value* found = file->metadata().find(key);
    if (found == nullptr || found->data != value.data) wrong("key '" + key + "'");
  }
}

void refuse_idle_rules(const std::vector<NamedRule>& rules, const std::vector<Planned>& plan) {
  for (const NamedRule& rule : rules)
    if (std::none_of(plan.begin(), plan.end(), [&](const Planned& planned) {
          return base::matches_wildcard(rule.pattern, planned.source->name);
        }))
      base::raise(ErrorKind::kUsage, "'{}={}': no tensor matches", rule.pattern,
                  weights::traits(rule.format).name);
}

void account(const Planned& planned, Report& report) {
  const TensorInfo& tensor = *planned.source;
  const weights::FormatTraits& to = weights::traits(planned.format);
  const std::uint64_t bytes = tensor.elements() / to.block_elements * to.block_bytes;
  report.bytes[planned.format] += bytes;
  report.bytes_in += tensor.size_bytes();
  report.bytes_out += bytes;
  if (!planned.note.empty()) report.add_note(tensor.name, planned.note);
}

bool is_float(Format format) {
  return weights::traits(format).block_elements == 1;
}

/// Whether the codes of a tensor are chosen by its Hessian.
bool takes_gptq(const Planned& planned, const Options& options) {
  return options.hessians != nullptr && planned.format != planned.source->format &&
         weights::formats::has_codes(planned.format) &&
         options.hessians->knows(planned.source->name);
}

/// Throws kUsage for a format whose codes GPTQ cannot choose; notes what it does not touch.
void check_gptq(const std::vector<Planned>& plan, const Options& options, Report& report) {
  std::vector<std::string> expected;
  for (const Planned& planned : plan) {
    const std::string& name = planned.source->name;
    if (planned.format == planned.source->format || is_float(planned.format)) continue;
    if (!weights::formats::has_codes(planned.format))
      base::raise(ErrorKind::kUsage,
                  "{} of '{}': GPTQ chooses a code for each element, and this format has none of "
                  "its own for each",
                  weights::traits(planned.format).name, name);
    if (takes_gptq(planned, options))
      expected.push_back(name);
    else
      report.add_note(name, "what it reads is not known: encoded without GPTQ");
  }
  options.hessians->expect(expected);
}

/// What is known of the inputs of a tensor that changes its format, with notes on what is not.
std::optional<Importance::Entry> importance_of(const Planned& planned, const Options& options,
                                               Report& report) {
  const TensorInfo& tensor = *planned.source;
  if (options.importance == nullptr || planned.format == tensor.format) return {};
  if (takes_gptq(planned, options)) return {};
  const std::size_t matrices = matrices_of(tensor);
  auto entry = options.importance->find(tensor.name, tensor.row_elements(), matrices);
  if (!entry) {
    report.add_note(tensor.name, "the importance file does not know it");
  } else if (entry->unseen() > 0) {
    report.add_note(tensor.name,
                    fmt::format("{} of {} experts were never seen while importance was collected; "
                                "all of their inputs count alike",
                                entry->unseen(), entry->matrices()));
  }
  return entry;
}

}  // namespace

void Report::add_note(const std::string& tensor, std::string text) {
  const auto same =
      std::find_if(notes.begin(), notes.end(), [&](const Note& note) { return note.text == text; });
  if (same != notes.end())
    same->tensors.push_back(tensor);
  else
    notes.push_back({std::move(text), {tensor}});
}

std::vector<Planned> plan_output(const weights::Checkpoint& checkpoint, const Options& options) {
  const WeightUses uses = weight_uses(checkpoint);
  std::vector<Planned> plan;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    Planned planned{&tensor, tensor.format, ""};
    if (uses.quantizable.contains(tensor.name)) {
      const Choice choice = choose(options.recipe, options.rules,
                                   {.name = tensor.name,
                                    .role = role_of(tensor.name, uses.tied),
                                    .layer = layer_of(tensor.name),
                                    .layers = std::max(uses.layers, 1u),
                                    .cols = tensor.row_elements()});
      planned.format = choice.format;
      planned.note = choice.note;
    }
    plan.push_back(std::move(planned));
  }
  refuse_idle_rules(options.rules, plan);
  return plan;
}

Report quantize(const weights::Checkpoint& checkpoint, const std::filesystem::path& out,
                const Options& options) {
  for (const std::filesystem::path& file : checkpoint.files())
    if (std::error_code error; std::filesystem::equivalent(file, out, error))
      base::raise(ErrorKind::kUsage, "{}: is the file that is read", out.string());
  const std::vector<Planned> plan = plan_output(checkpoint, options);
  Report report;
  report.tensors = plan.size();
  std::uint64_t elements = 0, done = 0;
  for (const Planned& planned : plan) elements += planned.source->elements();

  Writer writer;
  // A folder's vocabulary is said in GGUF's own words too, for other readers.
  const TensorInfo* table = checkpoint.find("token_embd.weight");
  const weights::Metadata metadata =
      text::with_ggml_vocabulary(checkpoint.metadata(), table ? table->rows() : 0);
  copy_metadata(metadata, writer);
  writer.add(std::string(kRecipe), options.recipe.name);
  writer.add(std::string(kFingerprint), fingerprint(checkpoint, plan, options));
  base::ThreadPool pool(options.threads);
  const auto tell = [&](std::uint64_t n) {
    if (options.progress && n < elements)
      options.progress("quantizing", double(n) / double(elements));
  };
  std::optional<GptqSource> gptq;
  if (options.hessians != nullptr) {
    check_gptq(plan, options, report);
    gptq.emplace(*options.hessians, options.damping, pool);
  }
  for (const Planned& planned : plan) {
    const TensorInfo& tensor = *planned.source;
    account(planned, report);
    std::optional<Importance::Entry> importance = importance_of(planned, options, report);
    writer.add_tensor(
        tensor.name, planned.format, tensor.shape,
        [&, importance = std::move(importance)](const Writer::Sink& sink) {
          const std::uint64_t before = done;
          if (planned.format == tensor.format) {
            const weights::Matrix matrix = weights::rows_of(checkpoint, tensor);
            sink({matrix.bytes, matrix.size_bytes()});
          } else {
            Encoder encoder(checkpoint, tensor, planned.format, importance,
                            takes_gptq(planned, options) ? &*gptq : nullptr, pool);
            encoder.stream(
                sink, [&](std::uint64_t rows) { tell(before + rows * tensor.row_elements()); });
            if (const std::size_t unseen = encoder.without_hessian(); unseen > 0)
              report.add_note(tensor.name,
                              fmt::format("{} of {} experts were never seen by the calibration "
                                          "text: encoded without GPTQ",
                                          unseen, matrices_of(tensor)));
          }
          done = before + tensor.elements();
          tell(done);
        });
  }
  report.resumed = writer.write_resumable(out);
  read_back(out, metadata, plan);
  if (options.progress) options.progress("quantizing", 1.0);
  return report;
}

}  // namespace lemma::quantize
