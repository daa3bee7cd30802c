// SPDX-License-Identifier: Apache-2.0
// The bad samples of a run (data/loading/quarantine.h): what checkpoints keep of them, what the run says of them.
#pragma once

#include <string>
#include <vector>

#include "core/collective.h"
#include "core/io/json_text.h"
#include "core/io/state.h"
#include "data/splits.h"

namespace hearth::train {

/// What their registered state is called, and what it begins with.
inline constexpr const char* quarantine_state = "data.quarantine.";

void register_quarantines(const data::DataSplits& data, State& state);
/// Of each split with bad samples: how many there are and may be, and the first `most` with name and fault. Null where
/// there are none.
Json bad_samples_to_json(const data::DataSplits& data, std::int64_t most);
/// After the state was loaded; `noted` is what bad_samples_to_json() gave then, or null. FileError for what it cannot
/// be.
void restore_bad_samples(const data::DataSplits& data, const Json* noted);
/// Forgets all of them, as after the data has changed.
void clear_bad_samples(const data::DataSplits& data);
/// How many samples of all splits are bad; -1 where none may be.
std::int64_t count_of_bad_samples(const data::DataSplits& data);

/// A line for each sample that was found bad since the last call. All ranks call it at the same time, and
/// each takes in what the others have found. DataError where there are more than may be.
HEARTH_API std::vector<std::string> take_new_bad_samples(const data::DataSplits& data, Collective& group);

}  // namespace hearth::train
