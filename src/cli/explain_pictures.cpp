// SPDX-License-Identifier: Apache-2.0
// The page's pictures. Sizes are in pixels of the picture's own box, which the page scales.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/utf8.hpp"
#include "cli/explain_views.hpp"
#include "cli/output.hpp"

namespace lemma::cli {
namespace {

using eval::Explanation;

std::string svg(double width, double height, const std::string& label, const std::string& inside) {
  return fmt::format(
      "<svg viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\" "
      "aria-label=\"{2}\">\n{3}</svg>\n",
      width, height, escaped(label), inside);
}

std::string rect(double x, double y, double width, double height, const char* css, double opacity,
                 const std::string& title) {
  return fmt::format(
      "<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
      "fill-opacity=\"{:.3f}\"><title>{}</title></rect>\n",
      css, x, y, width, height, opacity, escaped(title));
}

/// `anchor`: start, middle or end.
std::string label(double x, double y, const char* anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     escaped(text));
}

/// At most `most` characters, the last one an ellipsis where some are cut.
std::string shortened(const std::string& text, std::size_t most) {
  std::size_t at = 0, characters = 0, cut = 0;
  while (at < text.size()) {
    if (++characters == most) cut = at;
    at += base::decode_utf8(std::string_view(text).substr(at)).length;
  }
  return characters <= most ? text : text.substr(0, cut) + "…";
}

std::string piece(const Explanation& e, std::size_t position) {
  return in_quotes(e.tokens[position].piece);
}

/// A line through one value a layer, with a dot for each.
class Line {
 public:
  Line(const char* css, double left, double step, double height, double most)
      : css_(css), left_(left), step_(step), height_(height), most_(most) {}
  void add(std::uint32_t layer, double value, const std::string& what) {
    const double x = left_ + step_ * layer;
    const double y = 10 + height_ - (most_ > 0 ? height_ * value / most_ : 0);
    points_ += fmt::format("{:.1f},{:.1f} ", x, y);
    dots_ += fmt::format(
        "<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"><title>layer {}: {} "
        "{:.4g}</title>"
        "</circle>\n",
        css_, x, y, layer, what, value);
  }
  std::string svg() const {
    return fmt::format("<polyline class=\"{} line\" points=\"{}\"/>\n{}", css_, points_, dots_);
  }

 private:
  const char* css_;
  double left_, step_, height_, most_;
  std::string points_, dots_;
};

}  // namespace

std::string escaped(std::string_view text) {
  std::string html;
  for (const char c : text) {
    switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      default:
        html += c;
    }
  }
  return html;
}

// Rows are readers, columns what they read. Weights too small to be seen are left out.
std::string attention_picture(const Explanation& e, const eval::AttentionView& view) {
  constexpr double kLeft = 86;
  constexpr float kVisible = 0.004f;
  const auto tokens = static_cast<std::size_t>(std::lround(std::sqrt(double(view.mean.size()))));
  if (tokens == 0) return {};
  const double cell = std::clamp(300.0 / double(tokens), 3.0, 16.0);
  const double side = cell * double(tokens);
  std::string inside =
      fmt::format("<rect class=\"ground\" x=\"{}\" y=\"0\" width=\"{:.1f}\" height=\"{:.1f}\"/>\n",
                  kLeft, side, side);
  for (std::size_t i = 0; i < tokens; ++i) {
    if (cell >= 9)
      inside += label(kLeft - 5, cell * (double(i) + 0.5) + 3.5, "end", shortened(piece(e, i), 13));
    for (std::size_t j = 0; j < tokens; ++j) {
      const float weight = view.mean[i * tokens + j];
      if (weight < kVisible) continue;
      inside +=
          rect(kLeft + cell * double(j), cell * double(i), cell - 0.5, cell - 0.5, "heat",
               std::sqrt(double(weight)),
               fmt::format("{} {} reads {} {}: {:.4f}", i, piece(e, i), j, piece(e, j), weight));
    }
  }
  return svg(kLeft + side + 2, side + 2, "attention map of " + view.site, inside);
}

std::string experts_picture(const Explanation& e) {
  constexpr double kLeft = 86;
  std::uint32_t most_experts = 0, most_use = 0, rows = 0;
  for (const eval::LayerView& layer : e.layers)
    for (const eval::ExpertView& view : layer.experts) {
      most_experts = std::max(most_experts, view.experts);
      most_use = std::max(most_use, *std::max_element(view.use.begin(), view.use.end()));
      ++rows;
    }
  if (rows == 0 || most_use == 0) return {};
  const double cell = std::clamp(900.0 / most_experts, 3.0, 22.0), height = 18;
  std::string inside;
  double y = 0;
  for (const eval::LayerView& layer : e.layers)
    for (const eval::ExpertView& view : layer.experts) {
      inside += label(kLeft - 5, y + 13, "end", fmt::format("layer {}", layer.layer));
      for (std::size_t i = 0; i < view.use.size(); ++i)
        inside += fmt::format(
                      "<rect class=\"ground\" x=\"{0:.1f}\" y=\"{1:.1f}\" width=\"{2:.1f}\" "
                      "height=\"{3:.1f}\"/>\n",
                      kLeft + cell * double(i), y, cell - 1, height - 2) +
                  (view.use[i] == 0 ? std::string()
                                    : rect(kLeft + cell * double(i), y, cell - 1, height - 2,
                                           "heat", double(view.use[i]) / most_use,
                                           fmt::format("layer {}, expert {}: chosen by {} tokens",
                                                       layer.layer, i, view.use[i])));
      y += height;
    }
  inside += label(kLeft, y + 13, "start", "expert 0");
  inside += label(kLeft + cell * most_experts, y + 13, "end", fmt::format("{}", most_experts - 1));
  return svg(kLeft + cell * most_experts + 2, y + 18, "use of experts by layer", inside);
}

std::string norms_picture(const Explanation& e) {
  constexpr double kLeft = 60, kHeight = 200;
  double most = 0;
  for (const eval::LayerView& layer : e.layers) {
    if (layer.stream) most = std::max({most, layer.stream->mean, layer.stream->last});
    for (const eval::RowNorms& norms : layer.branches) most = std::max(most, norms.last);
  }
  const double step =
      std::clamp(840.0 / std::max<double>(1, double(e.layers.size()) - 1), 8.0, 80.0);
  Line stream("a", kLeft, step, kHeight, most), mean("b", kLeft, step, kHeight, most);
  Line attention("c", kLeft, step, kHeight, most), ffn("d", kLeft, step, kHeight, most);
  for (const eval::LayerView& layer : e.layers) {
    if (layer.stream) stream.add(layer.layer, layer.stream->last, "stream, last token");
    if (layer.stream) mean.add(layer.layer, layer.stream->mean, "stream, mean");
    for (const eval::RowNorms& norms : layer.branches) {
      const bool attends = norms.site.find(".attention") != std::string::npos;
      (attends ? attention : ffn).add(layer.layer, norms.last, norms.site);
    }
  }
  const double right = kLeft + step * (double(e.layers.size()) - 1);
  std::string inside = fmt::format(
      "<line class=\"axis\" x1=\"{0:.0f}\" y1=\"{1:.0f}\" x2=\"{2:.0f}\" y2=\"{1:.0f}\"/>\n"
      "<line class=\"axis\" x1=\"{0:.0f}\" y1=\"10\" x2=\"{0:.0f}\" y2=\"{1:.0f}\"/>\n",
      kLeft - 8, kHeight + 10, right + 8);
  inside += label(kLeft - 14, 14, "end", fmt::format("{:.3g}", most));
  inside += label(kLeft - 14, kHeight + 14, "end", "0");
  inside += label(kLeft, kHeight + 26, "middle", "layer 0");
  if (e.layers.size() > 1)
    inside += label(right, kHeight + 26, "middle", fmt::format("{}", e.layers.size() - 1));
  inside += mean.svg() + attention.svg() + ffn.svg() + stream.svg();
  return svg(right + 30, kHeight + 32, "lengths of rows by layer", inside);
}

// Bars of all stages of a choice have one scale: `most` fills the width.
std::string bars_picture(const eval::SamplingStage& stage, std::int32_t chosen, double most) {
  constexpr double kLeft = 88, kBar = 100, kRow = 17;
  std::string inside;
  for (std::size_t i = 0; i < stage.best.size(); ++i) {
    const auto& candidate = stage.best[i];
    const double y = kRow * double(i), width = kBar * double(candidate.probability) / most;
    inside += label(kLeft - 6, y + 12, "end", shortened(in_quotes(candidate.piece), 12));
    inside += rect(kLeft, y + 1, std::max(1.0, width), kRow - 4,
                   candidate.id == chosen ? "chosen" : "heat", 1,
                   fmt::format("id {}, logit {:.4f}", candidate.id, candidate.logit));
    inside +=
        label(kLeft + width + 6, y + 12, "start", fmt::format("{:.4f}", candidate.probability));
  }
  return svg(kLeft + kBar + 56, kRow * double(stage.best.size()) + 2, "candidates: " + stage.name,
             inside);
}

std::string state_picture(const Explanation& e) {
  constexpr double kLeft = 86, kBar = 420, kRow = 17;
  std::uint64_t most = 1;
  for (const eval::StepView& step : e.steps)
    most = std::max({most, step.held_bytes, step.formula_bytes});
  std::string inside;
  for (std::size_t i = 0; i < e.steps.size(); ++i) {
    const eval::StepView& step = e.steps[i];
    const double y = kRow * double(i), scale = kBar / double(most);
    inside += label(kLeft - 6, y + 12, "end", fmt::format("{} tokens", step.length));
    inside += rect(kLeft, y + 1, scale * double(step.held_bytes), kRow - 4, "held", 1,
                   fmt::format("{} bytes in pages", step.held_bytes));
    inside += rect(kLeft, y + 4, scale * double(step.formula_bytes), kRow - 10, "heat", 1,
                   fmt::format("{} bytes by the formula", step.formula_bytes));
    inside += label(
        kLeft + scale * double(step.held_bytes) + 6, y + 12, "start",
        fmt::format("{} of {}", format_bytes(step.formula_bytes), format_bytes(step.held_bytes)));
  }
  return svg(kLeft + kBar + 170, kRow * double(e.steps.size()) + 2, "bytes of state", inside);
}

std::string time_picture(const Explanation& e) {
  constexpr double kWidth = 900;
  double total = 0;
  for (const eval::StepView& step : e.steps) total += step.milliseconds;
  std::string inside;
  double x = 0;
  for (const eval::StepView& step : e.steps) {
    const double width = total > 0 ? kWidth * step.milliseconds / total : 0;
    inside += rect(x, 2, std::max(0.5, width - 1), 30, step.prefill ? "chosen" : "heat", 1,
                   fmt::format("{} of {} tokens: {:.3f} ms", step.prefill ? "prefill" : "decode",
                               step.rows, step.milliseconds));
    x += width;
  }
  inside += label(0, 48, "start", "0") + label(kWidth, 48, "end", fmt::format("{:.3f} ms", total));
  return svg(kWidth + 2, 54, "time line of prefill and decode", inside);
}

}  // namespace lemma::cli
