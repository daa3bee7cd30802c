// SPDX-License-Identifier: Apache-2.0
// The config.json that transformers and timm write beside weights, as the options of Hearth's models. Every key is
// mapped to an option, known to change nothing, or refused by name: tensors alone do not tell the number of heads, the
// activation or the eps of norms.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/io/json_text.h"
#include "models/weights/weights.h"

namespace hearth::models {

/// The model that a document describes: an object as a run's "model" is, with "type". `name` is the document's file
/// for messages. An empty object gives transformers' defaults. FileError with every key that cannot be followed.
Json model_of_transformers(const Json& document, const std::string& name, WeightFormat format);

/// The inverse, as far as the result depends on it: the entries of the config.json with which transformers computes
/// what `model` does with the weights. FileError, naming `source`, for a model that the format does not have.
Json config_for_transformers(const Json& model, const std::string& source, WeightFormat format);

/// The names of classes that a document of transformers ("id2label") or of timm ("label_names") has, in the order of
/// the head's rows; none where it has none for each row, or transformers' "LABEL_0", "LABEL_1" and so on.
std::vector<std::string> class_names_of(const Json& document);

/// Rows and columns of pixels of the images that a document of timm is for; nothing where it does not tell.
std::optional<std::pair<std::int64_t, std::int64_t>> timm_image_size(const Json& document);

/// Refuses a document of timm whose architecture or arguments are not known to compute what the format's model does;
/// FileError. What is worth knowing, as by what images were normalised, is added to `notes`.
void check_timm_config(const Json& document, const std::string& name, WeightFormat format,
                       std::vector<std::string>& notes);

}  // namespace hearth::models
