// SPDX-License-Identifier: Apache-2.0
#include "eval/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "base/mapped_file.hpp"
#include "base/raise.hpp"
#include "eval/distance.hpp"
#include "eval/windows.hpp"
#include "runtime/evaluation.hpp"
#include "weights/safetensors/header.hpp"
#include "weights/safetensors/writer.hpp"

namespace lemma::eval {
namespace {

constexpr std::string_view kWindowKey = "window", kTokens = "tokens", kLogits = "logits";

class ModelLogits final : public OtherLogits {
 public:
  explicit ModelLogits(ModelRun& run) : run_(run) { run.prepare(); }

  std::uint32_t vocabulary() const noexcept override { return run_.model().plan().vocabulary; }
  void begin(std::size_t) override { sequence_.emplace(run_.space().pool()); }
  std::span<const float> next(std::span<const std::int32_t> ids) override {
    rows_.resize(ids.size() * vocabulary());
    runtime::evaluate(run_.model(), run_.space(), *sequence_, ids, {},
                      [&](std::uint32_t row, std::span<const float> logits) {
                        std::copy(logits.begin(), logits.end(),
                                  rows_.begin() + std::ptrdiff_t(std::size_t{row} * logits.size()));
                      });
    return rows_;
  }

 private:
  ModelRun& run_;
  std::optional<state::Sequence> sequence_;
  std::vector<float> rows_;
};

class SavedLogits final : public OtherLogits {
 public:
  SavedLogits(const std::filesystem::path& path, std::span<const std::int32_t> tokens,
              std::uint32_t window)
      : file_(base::MappedFile::open(path)) {
    const weights::SafetensorsHeader header = weights::parse_safetensors(file_.bytes(), path);
    const weights::SafetensorsEntry *ids = nullptr, *logits = nullptr;
    for (const weights::SafetensorsEntry& entry : header.entries) {
      if (entry.name == kTokens && entry.dtype == "I32" && entry.shape.size() == 1) ids = &entry;
      if (entry.name == kLogits && entry.dtype == "F32" && entry.shape.size() == 2) logits = &entry;
    }
    if (ids == nullptr || logits == nullptr || ids->shape[0] != logits->shape[0])
      base::raise(ErrorKind::kBadFile, "{}: expected tokens [n] and logits [n, V]", path.string());
    const auto saved = file_.bytes().subspan(ids->begin, ids->end - ids->begin);
    const auto given = std::as_bytes(tokens);
    const bool same_window = std::find(header.metadata.begin(), header.metadata.end(),
                                       std::pair(std::string(kWindowKey),
                                                 std::to_string(window))) != header.metadata.end();
    if (!same_window || !std::equal(saved.begin(), saved.end(), given.begin(), given.end()))
      base::raise(ErrorKind::kUsage,
                  "{}: holds logits of other tokens or of other windows than the {} tokens in "
                  "windows of {}",
                  path.string(), tokens.size(), window);
    vocabulary_ = static_cast<std::uint32_t>(logits->shape[1]);
    logits_ = file_.bytes().subspan(logits->begin, logits->end - logits->begin);
  }

  std::uint32_t vocabulary() const noexcept override { return vocabulary_; }
  void begin(std::size_t first) override { at_ = first; }
  std::span<const float> next(std::span<const std::int32_t> ids) override {
    const std::size_t row = sizeof(float) * vocabulary_;
    rows_.resize(ids.size() * vocabulary_);
    std::memcpy(rows_.data(), logits_.data() + at_ * row, ids.size() * row);
    at_ += ids.size();
    return rows_;
  }

 private:
  base::MappedFile file_;
  std::span<const std::byte> logits_;
  std::uint32_t vocabulary_ = 0;
  std::size_t at_ = 0;
  std::vector<float> rows_;
};

double mean(const std::vector<ComparedToken>& tokens, double (*value)(const ComparedToken&)) {
  double sum = 0;
  for (const ComparedToken& token : tokens) sum += value(token);
  return tokens.empty() ? 0 : sum / double(tokens.size());
}

}  // namespace

double Comparison::mean_nll() const {
  return mean(scored, [](const ComparedToken& t) { return double(t.nll); });
}
double Comparison::other_mean_nll() const {
  return mean(scored, [](const ComparedToken& t) { return double(t.other_nll); });
}
double Comparison::mean_kl() const {
  return mean(scored, [](const ComparedToken& t) { return double(t.kl); });
}
double Comparison::same_best() const {
  return mean(scored, [](const ComparedToken& t) { return t.best == t.other_best ? 1.0 : 0.0; });
}
double Comparison::rms_probability_difference() const {
  return std::sqrt(mean(scored, [](const ComparedToken& t) {
    const double difference = std::exp(-double(t.nll)) - std::exp(-double(t.other_nll));
    return difference * difference;
  }));
}

double Comparison::kl_standard_error() const {
  if (scored.size() < 2) return 0;
  const double squares = mean(scored, [](const ComparedToken& t) { return double(t.kl) * t.kl; });
  const double average = mean_kl();
  return std::sqrt(std::max(squares - average * average, 0.0) / double(scored.size() - 1));
}

double Comparison::kl_quantile(double q) const {
  if (scored.empty()) return 0;
  std::vector<float> kl;
  for (const ComparedToken& token : scored) kl.push_back(token.kl);
  const auto nth = kl.begin() + std::ptrdiff_t(std::lround(q * double(kl.size() - 1)));
  std::nth_element(kl.begin(), nth, kl.end());
  return *nth;
}

std::unique_ptr<OtherLogits> logits_of(ModelRun& run) {
  return std::make_unique<ModelLogits>(run);
}

std::unique_ptr<OtherLogits> saved_logits(const std::filesystem::path& path,
                                          std::span<const std::int32_t> tokens,
                                          std::uint32_t window) {
  return std::make_unique<SavedLogits>(path, tokens, window);
}

Comparison compare(ModelRun& run, OtherLogits& other, std::span<const std::int32_t> tokens,
                   const PerplexityOptions& options) {
  const std::uint32_t vocabulary = run.model().plan().vocabulary;
  if (other.vocabulary() != vocabulary)
    base::raise(ErrorKind::kUsage, "the model has a vocabulary of {}, the other one of {}",
                vocabulary, other.vocabulary());
  run.prepare();
  Comparison result{.tokens = tokens.size()};
  const std::size_t step = logits_rows(vocabulary);
  for_each_window(tokens, options, run.model().context(), [&](const Window& window) {
    other.begin(window.begin);
    state::Sequence sequence(run.space().pool());
    for (std::size_t at = 0; at < window.ids.size(); at += step) {
      const auto ids = window.ids.subspan(at, std::min(step, window.ids.size() - at));
      const std::span<const float> wanted = other.next(ids);
      const auto take = [&](std::uint32_t i, std::span<const float> got) {
        if (!window.scores(at + i)) return;
        const auto want = wanted.subspan(std::size_t{i} * vocabulary, vocabulary);
        const std::int32_t token = window.ids[at + i + 1];
        const double got_total = log_sum_exp(got), want_total = log_sum_exp(want);
        const auto next = std::size_t(token);
        result.scored.push_back({static_cast<std::uint32_t>(window.begin + at + i + 1), token,
                                 float(got_total - double(got[next])),
                                 float(want_total - double(want[next])),
                                 float(divergence(got, got_total, want, want_total)),
                                 best_token(got), best_token(want)});
      };
      runtime::evaluate(run.model(), run.space(), sequence, ids, {}, take);
    }
    ++result.windows;
  });
  return result;
}

void save_logits(ModelRun& run, std::span<const std::int32_t> tokens,
                 const PerplexityOptions& options, const std::filesystem::path& path) {
  const std::uint32_t vocabulary = run.model().plan().vocabulary;
  weights::SafetensorsWriter file(path,
                                  {{std::string(kTokens), "I32", {tokens.size()}},
                                   {std::string(kLogits), "F32", {tokens.size(), vocabulary}}},
                                  {{std::string(kWindowKey), std::to_string(options.window)}});
  file.write(0, 0, std::as_bytes(tokens));
  run.prepare();
  std::size_t written = 0;
  const std::vector<float> nothing(vocabulary, 0.f);
  const auto put = [&](std::span<const float> row) {
    file.write(1, written++ * row.size_bytes(), std::as_bytes(row));
  };
  for_each_window(tokens, options, run.model().context(), [&](const Window& window) {
    state::Sequence sequence(run.space().pool());
    runtime::evaluate(run.model(), run.space(), sequence, window.ids, {},
                      [&](std::uint32_t row, std::span<const float> logits) {
                        put(row + 1 < window.ids.size() ? logits : nothing);
                      });
  });
  while (written < tokens.size()) put(nothing);  // behind the last whole window
  file.publish();
}

}  // namespace lemma::eval
