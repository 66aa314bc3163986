// SPDX-License-Identifier: Apache-2.0
// An explanation for a terminal.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/explain_views.hpp"
#include "cli/output.hpp"

namespace lemma::cli {
namespace {

using eval::Explanation;

/// A bar of eighths of a character, `fraction` of `width`.
std::string bar(double fraction, int width) {
  static constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = static_cast<int>(std::lround(std::clamp(fraction, 0.0, 1.0) * width * 8));
  std::string text;
  for (int i = 0; i < eighths / 8; ++i) text += "█";
  return text + kEighths[eighths % 8];
}

std::string piece_at(const Explanation& e, std::uint32_t position) {
  return position < e.tokens.size() ? in_quotes(e.tokens[position].piece) : "";
}

std::string tokens_text(const Explanation& e) {
  std::string text = "\ntokens\n";
  for (std::size_t i = 0; i < e.tokens.size(); ++i) {
    const eval::ExplainedToken& token = e.tokens[i];
    text += fmt::format("  {:>4}  id {:>6}  {:<20} {:<8} {}\n", i, token.id, in_quotes(token.piece),
                        token.kind, token.generated ? "generated" : "entered");
  }
  return text;
}

std::string shapes_text(const Explanation& e) {
  std::string text =
      fmt::format("\nshapes of the prefill ({} sites in {})\n", e.sites, e.info.architecture);
  for (const eval::Stage& stage : e.stages)
    text += fmt::format("  {:<12} {:<16} {:<24} {}\n", layers_of(stage), stage.operation,
                        stage.site, stage.shape);
  return text;
}

std::string reads(const Explanation& e, const eval::AttentionView& view) {
  if (!view.hidden.empty()) return "reads " + view.hidden;
  std::string text;
  for (const auto& read : view.most)
    text += fmt::format("{}{}:{} {:.3f}", text.empty() ? "" : "  ", read.position,
                        piece_at(e, read.position), read.weight);
  return text;
}

std::string attention_text(const Explanation& e) {
  std::string text =
      "\nattention: what the prompt's last token reads (position:token weight, mean "
      "over heads; then each head's heaviest)\n";
  for (const eval::LayerView& layer : e.layers)
    for (const eval::AttentionView& view : layer.attention) {
      text += fmt::format("  layer {:<3} {}\n", layer.layer, reads(e, view));
      if (view.chosen)
        text += fmt::format("            a selection named {} entries\n", *view.chosen);
      std::string heads;
      for (std::size_t h = 0; h < view.head_most.size(); ++h)
        heads +=
            fmt::format("  h{} {} {:.4f}", h, view.head_most[h].position, view.head_most[h].weight);
      if (!heads.empty()) text += fmt::format("          {}\n", heads);
    }
  return text;
}

std::string experts_text(const Explanation& e) {
  std::string text;
  for (const eval::LayerView& layer : e.layers)
    for (const eval::ExpertView& view : layer.experts) {
      text += fmt::format("  layer {:<3} last prompt token:", layer.layer);
      for (std::size_t i = 0; i < view.ids.size(); ++i)
        text += fmt::format("  {} ({:.4f})", view.ids[i], view.weights[i]);
      text += fmt::format("\n            of {} experts, tokens that chose each:", view.experts);
      for (std::size_t expert = 0; expert < view.use.size(); ++expert)
        if (view.use[expert] > 0) text += fmt::format("  {}:{}", expert, view.use[expert]);
      text += "\n";
    }
  return text.empty() ? text : "\nexperts: id (weight)\n" + text;
}

std::string norms_text(const Explanation& e) {
  std::string text =
      "\nlengths of rows (mean over the prompt, last token): what each site adds, and the stream\n";
  for (const eval::LayerView& layer : e.layers) {
    text += fmt::format("  layer {:<3} {:<24}", layer.layer, layer.mixers);
    for (const eval::RowNorms& norms : layer.branches)
      text += fmt::format("  +{:.4g}, {:.4g}", norms.mean, norms.last);
    if (layer.stream)
      text += fmt::format("  stream {:.4g}, {:.4g}", layer.stream->mean, layer.stream->last);
    text += "\n";
  }
  return text;
}

std::string choices_text(const Explanation& e) {
  std::string text;
  for (const eval::Choice& choice : e.choices) {
    text += fmt::format("  position {}: chosen {} {} with {:.4f}{}\n", choice.position, choice.id,
                        in_quotes(choice.piece), choice.probability,
                        choice.ends ? ", the end of the text" : "");
    for (const eval::SamplingStage& stage : choice.stages) {
      text += fmt::format("    {:<18} {:>6} left:", stage.name, stage.kept);
      for (std::size_t i = 0; i < std::min<std::size_t>(5, stage.best.size()); ++i)
        text +=
            fmt::format("  {} {:.4f}", in_quotes(stage.best[i].piece), stage.best[i].probability);
      text += "\n";
    }
  }
  return text.empty() ? text : "\nsampling: candidates behind each stage, likeliest first\n" + text;
}

std::string state_text(const Explanation& e) {
  std::string text = fmt::format("\nstate in {}: {}\n", e.state_format, e.state_formula);
  for (const eval::StepView& step : e.steps)
    text +=
        fmt::format("  {:>5} tokens  {:>12} by the formula  {:>12} held in pages\n", step.length,
                    fmt::format("{} B", step.formula_bytes), fmt::format("{} B", step.held_bytes));
  return text;
}

std::string time_text(const Explanation& e) {
  double longest = 0, total = 0;
  for (const eval::StepView& step : e.steps) {
    longest = std::max(longest, step.milliseconds);
    total += step.milliseconds;
  }
  std::string text = fmt::format("\ntime: {:.3f} ms, as measured without observers\n", total);
  for (const eval::StepView& step : e.steps)
    text += fmt::format("  {:<8} {:>4} tokens {:>10.3f} ms  {}\n",
                        step.prefill ? "prefill" : "decode", step.rows, step.milliseconds,
                        bar(longest > 0 ? step.milliseconds / longest : 0, 30));
  return text;
}

}  // namespace

std::string in_quotes(std::string_view piece) {
  std::string text = "'";
  for (const char c : piece) {
    if (c == '\n')
      text += "\\n";
    else if (c == '\r')
      text += "\\r";
    else if (c == '\t')
      text += "\\t";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      text += c;
  }
  return text + "'";
}

std::string layers_of(const eval::Stage& stage) {
  if (!stage.in_layers) return {};
  if (stage.first_layer == stage.last_layer) return fmt::format("layer {}", stage.first_layer);
  return fmt::format("layers {}-{}", stage.first_layer, stage.last_layer);
}

std::string explanation_text(const Explanation& e) {
  std::string text = fmt::format(
      "model    {}{}{}: {} layers, width {}, vocabulary {}, {} parameters\nbackend  {}\n",
      e.info.architecture, e.info.name.empty() ? "" : ", ", e.info.name, e.info.layers,
      e.info.width, e.info.vocabulary, e.info.parameters, e.info.backend);
  if (e.seed) text += fmt::format("seed     {}\n", *e.seed);
  return text + tokens_text(e) + shapes_text(e) + attention_text(e) + experts_text(e) +
         norms_text(e) + choices_text(e) + state_text(e) + time_text(e);
}

}  // namespace lemma::cli
