// SPDX-License-Identifier: Apache-2.0
#include "quantize/quantize.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "base/checksum.hpp"
#include "base/raise.hpp"
#include "base/thread_pool.hpp"
#include "base/wildcard.hpp"
#include "quantize/weight_uses.hpp"
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

constexpr std::size_t kPartBytes = std::size_t{32} << 20;  ///< f32 of the rows in work at a time

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

std::size_t matrices_of(const TensorInfo& tensor) {
  return tensor.shape.size() == 3 ? static_cast<std::size_t>(tensor.shape.front()) : 1;
}

/// Depends on all that the bytes of the output depend on, but for the source's weights, of which it
/// takes a sample.
std::string fingerprint(const weights::Checkpoint& checkpoint, const std::vector<Planned>& plan,
                        const Importance* importance) {
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
  if (importance != nullptr)
    for (const auto& [name, entry] : importance->entries) {
      digest.add(name);
      digest.add(std::as_bytes(std::span(entry.sums)));
      digest.add(std::as_bytes(std::span(entry.counts)));
    }
  return digest.hex();
}

/// Encodes the rows of one tensor, part by part, on all threads.
class Encoder {
 public:
  Encoder(const weights::Checkpoint& checkpoint, const Planned& planned,
          const std::optional<Importance::Entry>& importance, base::ThreadPool& pool)
      : tensor_(*planned.source),
        matrix_(weights::rows_of(checkpoint, tensor_)),
        from_(weights::traits(tensor_.format)),
        to_(weights::traits(planned.format)),
        pool_(pool) {
    if (!importance) return;
    for (std::size_t m = 0; m < importance->matrices(); ++m) means_.push_back(importance->means(m));
  }

  /// `done` is told of the rows that are through.
  void stream(const Writer::Sink& sink, const std::function<void(std::uint64_t rows)>& done) {
    const std::uint64_t rows = matrix_.rows, cols = matrix_.cols;
    const std::uint64_t part =
        std::clamp<std::uint64_t>(kPartBytes / (cols * sizeof(float)), 1, rows);
    const std::size_t row_bytes = weights::row_bytes(to_.format, cols);
    std::vector<std::byte> out(part * row_bytes);
    for (std::uint64_t first = 0; first < rows; first += part) {
      const std::uint64_t count = std::min(part, rows - first);
      pool_.parallel_for(count, 4, [&](std::size_t begin, std::size_t end) {
        std::vector<float> row(cols);
        for (std::size_t r = begin; r < end; ++r)
          encode(first + r, row, out.data() + r * row_bytes);
      });
      if (const std::uint64_t bad = bad_row_.load(); bad != kNone)
        base::raise(ErrorKind::kBadFile, "tensor '{}': row {} holds a number that is not finite",
                    tensor_.name, bad);
      sink(std::span(out).first(count * row_bytes));
      done(first + count);
    }
  }

 private:
  static constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();

  void encode(std::uint64_t r, std::span<float> row, std::byte* out) noexcept {
    from_.dequantize(matrix_.row(r), row);
    if (!std::all_of(row.begin(), row.end(), [](float x) { return std::isfinite(x); })) {
      std::uint64_t none = kNone;
      bad_row_.compare_exchange_strong(none, r);
      return;
    }
    to_.quantize(row, out, means_of(r));
  }

  const float* means_of(std::uint64_t r) const noexcept {
    if (means_.empty()) return nullptr;
    const std::uint64_t rows = matrix_.rows / matrices_of(tensor_);
    return means_[means_.size() == 1 ? 0 : r / rows].data();
  }

  const TensorInfo& tensor_;
  weights::Matrix matrix_;
  const weights::FormatTraits& from_;
  const weights::FormatTraits& to_;
  base::ThreadPool& pool_;
  std::vector<std::vector<float>> means_;  ///< [matrices][cols]
  std::atomic<std::uint64_t> bad_row_{kNone};
};

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

/// What is known of the inputs of a tensor that changes its format, with notes on what is not.
std::optional<Importance::Entry> importance_of(const Planned& planned, const Options& options,
                                               Report& report) {
  const TensorInfo& tensor = *planned.source;
  if (options.importance == nullptr || planned.format == tensor.format) return {};
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
  copy_metadata(checkpoint.metadata(), writer);
  writer.add(std::string(kRecipe), options.recipe.name);
  writer.add(std::string(kFingerprint), fingerprint(checkpoint, plan, options.importance));
  base::ThreadPool pool(options.threads);
  const auto tell = [&](std::uint64_t n) {
    if (options.progress && n < elements)
      options.progress("quantizing", double(n) / double(elements));
  };
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
            Encoder(checkpoint, planned, importance, pool).stream(sink, [&](std::uint64_t rows) {
              tell(before + rows * tensor.row_elements());
            });
          }
          done = before + tensor.elements();
          tell(done);
        });
  }
  report.resumed = writer.write_resumable(out);
  read_back(out, checkpoint.metadata(), plan);
  if (options.progress) options.progress("quantizing", 1.0);
  return report;
}

}  // namespace lemma::quantize
