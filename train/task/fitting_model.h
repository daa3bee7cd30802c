// SPDX-License-Identifier: Apache-2.0
// Which models of the library do not fit which data. What a program adds is never refused.
#pragma once

#include <initializer_list>
#include <string>

namespace hearth::train {

struct ChosenComponents;

/// ConfigError, naming the model and the data, for a model of the library that is none of `fitting`.
void require_model_among(const ChosenComponents& chosen, std::initializer_list<const char*> fitting);
/// ConfigError for a model of the library that takes images; samples are `sample`, "[2]", which are none.
void refuse_image_model(const ChosenComponents& chosen, const std::string& sample);

}  // namespace hearth::train
