// SPDX-License-Identifier: Apache-2.0
// What tells the samples of a dataset from others, without decoding them: a checkpoint keeps it, so that a run that
// goes on notices when its data has changed.
#pragma once

#include <string>
#include <vector>

#include "core/io/json_text.h"
#include "data/splits.h"

namespace hearth::data {

/// Of each split that is there: {"samples": n, "classes": samples of each class, "sha256": of all labels in order and
/// what Dataset::identify() tells of each sample}. Looks up the size of each file of a folder of images. Of sequences
/// the numbers of rows, ids and characters take the position of labels and samples.
Json fingerprint(const DataSplits& data);

/// What differs between two fingerprints, a phrase for each split; nothing where they are equal. `class_names` are
/// those of `now`.
std::vector<std::string> fingerprint_changes(const Json& before, const Json& now,
                                             const std::vector<std::string>& class_names);

}  // namespace hearth::data
