// SPDX-License-Identifier: Apache-2.0
// What `lemma explain` found, for three readers: a terminal, a program, a browser. Pure; each
// returns a whole document.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "eval/explain.hpp"

namespace lemma::cli {

std::string explanation_text(const eval::Explanation& explanation);
std::string explanation_json(const eval::Explanation& explanation);
/// One HTML page that needs nothing else: no script, no font, no image from elsewhere.
std::string explanation_html(const eval::Explanation& explanation);

/// A token's text in quotes on one line: line breaks and the like are escaped.
std::string in_quotes(std::string_view piece);
/// "layer 3", "layers 0-2", or nothing for what stands outside the layers.
std::string layers_of(const eval::Stage& stage);

// The page's pictures, as SVG elements (explain_pictures.cpp). Colours come from the page's
// classes.

std::string escaped(std::string_view text);  ///< for HTML
std::string attention_picture(const eval::Explanation& explanation,
                              const eval::AttentionView& view);
std::string experts_picture(const eval::Explanation& explanation);
std::string norms_picture(const eval::Explanation& explanation);
std::string bars_picture(const eval::SamplingStage& stage, std::int32_t chosen, double most);
std::string state_picture(const eval::Explanation& explanation);
std::string time_picture(const eval::Explanation& explanation);

}  // namespace lemma::cli
