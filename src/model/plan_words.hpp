// SPDX-License-Identifier: Apache-2.0
// The words that plans are written in, as text and as JSON.
// Used by plan_print.cpp and plan_json.cpp only.
#pragma once

#include <string>

#include "model/plan.hpp"

namespace lemma::model::print {

const char* word(algorithm::NormKind kind) noexcept;
const char* word(QkNorm::Extent extent) noexcept;
const char* word(algorithm::Activation activation) noexcept;
const char* word(algorithm::RouteScore score) noexcept;
const char* word(weights::View::Kind kind) noexcept;
const char* word(DraftBlock::Reads reads) noexcept;

/// A layer as it stands in to_json(), on one line.
std::string layer_json(const Layer& layer);

}  // namespace lemma::model::print
