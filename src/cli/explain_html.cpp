// SPDX-License-Identifier: Apache-2.0
// An explanation as one page. Colours are variables, so that light and dark differ in one place.
#include <fmt/format.h>

#include <algorithm>

#include "cli/explain_views.hpp"

namespace lemma::cli {
namespace {

using eval::Explanation;

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --page: #fbfaf7; --ink: #22262b; --soft: #69717b; --line: #dcdad3;
  --ground: #eeece5; --a: #1f5fa8; --b: #86a9cf; --c: #b4551f; --d: #3f7d3a; --held: #cfd8e2; }
@media (prefers-color-scheme: dark) { :root { --page: #16181b; --ink: #e4e3de; --soft: #98a0a9;
  --line: #33373c; --ground: #23272c; --a: #6fb0f2; --b: #46698d; --c: #ec9a5e; --d: #83c47c;
  --held: #3a4552; } }
body { margin: 0 auto; padding: 2rem 1.2rem 4rem; max-width: 66rem; background: var(--page);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; } h2 { font-size: 1.2rem; margin: 2.4rem 0 .3rem; }
h3 { font-size: .95rem; margin: .9rem 0 .2rem; font-weight: 600; }
p, .note { color: var(--soft); margin: .2rem 0 .7rem; max-width: 46rem; }
table { border-collapse: collapse; font-size: .88rem; }
td, th { text-align: left; padding: .16rem .9rem .16rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; } th { color: var(--soft); font-weight: 500; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
code, .piece { font-family: ui-monospace, monospace; font-size: .86rem; }
.token { display: inline-block; margin: 0 .25rem .35rem 0; padding: .1rem .45rem; border-radius: 5px;
  background: var(--ground); white-space: pre; } .token small { color: var(--soft); }
.generated { outline: 1.5px solid var(--c); }
.grid { display: flex; flex-wrap: wrap; gap: .5rem 1.2rem; align-items: flex-start; }
.scroll { overflow-x: auto; } svg { max-width: none; font: 11px ui-monospace, monospace; }
svg text { fill: var(--ink); } .ground { fill: var(--ground); } .heat { fill: var(--a); }
.chosen { fill: var(--c); } .held { fill: var(--held); } .axis { stroke: var(--soft); }
.line { fill: none; stroke-width: 2; } circle.a { fill: var(--a); } .a.line { stroke: var(--a); }
circle.b { fill: var(--b); } .b.line { stroke: var(--b); } circle.c { fill: var(--c); }
.c.line { stroke: var(--c); } circle.d { fill: var(--d); } .d.line { stroke: var(--d); }
.key { font-size: .85rem; margin-right: 1rem; } .key i { display: inline-block; width: .8rem;
  height: .8rem; border-radius: 2px; margin-right: .35rem; vertical-align: -1px; }
)";

std::string key(const char* colour, const char* text) {
  return fmt::format("<span class=\"key\"><i style=\"background:var(--{})\"></i>{}</span>", colour,
                     text);
}

std::string heading(const char* title, const std::string& note) {
  return fmt::format("<h2>{}</h2>\n<p>{}</p>\n", title, note);
}

std::string head(const Explanation& e) {
  return fmt::format(
      "<h1>The way of a prompt through {}</h1>\n<p>{}{}{} layers, width {}, vocabulary {}, {} "
      "parameters. {}.{}</p>\n",
      escaped(e.info.architecture), escaped(e.info.name), e.info.name.empty() ? "" : ": ",
      e.info.layers, e.info.width, e.info.vocabulary, e.info.parameters, escaped(e.info.backend),
      e.seed ? fmt::format(" Seed {}.", *e.seed) : std::string());
}

std::string tokens_part(const Explanation& e) {
  std::string html =
      heading("Tokens",
              "Text becomes token ids; the model sees nothing else. Outlined ones were generated.");
  for (std::size_t i = 0; i < e.tokens.size(); ++i) {
    const eval::ExplainedToken& token = e.tokens[i];
    html += fmt::format(
        "<span class=\"token piece{}\" title=\"position {}, {}\">{} <small>{}</small></span>\n",
        token.generated ? " generated" : "", i, escaped(token.kind),
        escaped(in_quotes(token.piece)), token.id);
  }
  return html;
}

std::string shapes_part(const Explanation& e) {
  std::string html = heading(
      "Shapes", fmt::format("What the {} tokens of the prompt become on their way through {} named "
                            "sites. Equal layers stand together.",
                            e.prompt_tokens, e.sites));
  html +=
      "<div class=\"scroll\"><table><tr><th>where</th><th>operation</th><th>site</th>"
      "<th>shape</th></tr>\n";
  for (const eval::Stage& stage : e.stages)
    html += fmt::format("<tr><td>{}</td><td>{}</td><td><code>{}</code></td><td>{}</td></tr>\n",
                        layers_of(stage), escaped(stage.operation), escaped(stage.site),
                        escaped(stage.shape));
  return html + "</table></div>\n";
}

std::string attention_part(const Explanation& e) {
  std::string html = heading(
      "What attention reads",
      "One map for each layer, averaged over its heads: a row is a token that reads, a column one "
      "that is read; the stronger the colour, the heavier (its square root is drawn). Point at a "
      "cell for its "
      "number.");
  html += "<div class=\"grid\">\n";
  std::string without;
  for (const eval::LayerView& layer : e.layers)
    for (const eval::AttentionView& view : layer.attention) {
      if (!view.hidden.empty()) {
        without += fmt::format(
            "<p>Layer {} reads {}{}.</p>\n", layer.layer, escaped(view.hidden),
            view.chosen ? fmt::format("; a selection named {}", *view.chosen) : std::string());
        continue;
      }
      html += fmt::format("<div><h3>layer {}, {} heads{}</h3>\n{}</div>\n", layer.layer, view.heads,
                          view.chosen
                              ? fmt::format(", {} selected for the last prompt token", *view.chosen)
                              : std::string(),
                          attention_picture(e, view));
    }
  return html + "</div>\n" + without;
}

std::string experts_part(const Explanation& e) {
  const std::string picture = experts_picture(e);
  if (picture.empty()) return {};
  std::string html =
      heading("Experts",
              "How many tokens chose each expert, layer by layer, and what the prompt's "
              "last token chose.") +
      "<div class=\"scroll\">" + picture +
      "</div>\n<table><tr><th>layer</th><th>last prompt token: "
      "expert (weight)</th></tr>\n";
  for (const eval::LayerView& layer : e.layers)
    for (const eval::ExpertView& view : layer.experts) {
      html += fmt::format("<tr><td>{}</td><td>", layer.layer);
      for (std::size_t i = 0; i < view.ids.size(); ++i)
        html += fmt::format("{}{} ({:.4f})", i > 0 ? ", " : "", view.ids[i], view.weights[i]);
      html += fmt::format(", of {}</td></tr>\n", view.experts);
    }
  return html + "</table>\n";
}

std::string norms_part(const Explanation& e) {
  return heading("The stream",
                 "Euclidean lengths of rows behind each layer, and of what its sites add for the "
                 "prompt's last token.") +
         key("a", "stream, last token") + key("b", "stream, mean over the prompt") +
         key("c", "attention adds") + key("d", "feed-forward adds") + "<div class=\"scroll\">" +
         norms_picture(e) + "</div>\n";
}

std::string choices_part(const Explanation& e) {
  if (e.choices.empty()) return {};
  std::string html =
      heading("Sampling",
              "The likeliest candidates as the logits have them, and behind each stage that is "
              "switched on. The token that was drawn stands out.");
  for (const eval::Choice& choice : e.choices) {
    double most = 0;
    for (const eval::SamplingStage& stage : choice.stages)
      most = std::max(most, double(stage.best.front().probability));
    html += fmt::format(
        "<h3>position {}: <span class=\"piece\">{}</span> (id {}, probability {:.4f}){}</h3>\n"
        "<div class=\"grid\">\n",
        choice.position, escaped(in_quotes(choice.piece)), choice.id, choice.probability,
        choice.ends ? ", the end of the text" : "");
    for (const eval::SamplingStage& stage : choice.stages)
      html += fmt::format("<div><span class=\"note\">{}: {} left</span><br>\n{}</div>\n",
                          escaped(stage.name), stage.kept, bars_picture(stage, choice.id, most));
    html += "</div>\n";
  }
  return html;
}

std::string state_part(const Explanation& e) {
  return heading("State", fmt::format("What the sequence remembers, in {}: {}.", e.state_format,
                                      escaped(e.state_formula))) +
         key("a", "rows, by the formula") + key("held", "pages that hold them") +
         "<div class=\"scroll\">" + state_picture(e) + "</div>\n";
}

std::string time_part(const Explanation& e) {
  std::string html = heading("Time", "Measured in a run without observers.") + key("c", "prefill") +
                     key("a", "decode") + "<div class=\"scroll\">" + time_picture(e) +
                     "</div>\n<table><tr><th>step</th><th>tokens</th><th>ms</th>"
                     "</tr>\n";
  for (const eval::StepView& step : e.steps)
    html += fmt::format("<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{:.3f}</td></tr>\n",
                        step.prefill ? "prefill" : "decode", step.rows, step.milliseconds);
  return html + "</table>\n";
}

}  // namespace

std::string explanation_html(const Explanation& e) {
  return fmt::format(
             "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta "
             "name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>lemma "
             "explain: {}</title>\n<style>{}</style></head>\n<body>\n",
             escaped(e.info.architecture), kStyle) +
         head(e) + tokens_part(e) + shapes_part(e) + attention_part(e) + experts_part(e) +
         norms_part(e) + choices_part(e) + state_part(e) + time_part(e) + "</body></html>\n";
}

}  // namespace lemma::cli
