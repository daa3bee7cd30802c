// SPDX-License-Identifier: Apache-2.0
// Saving and restoring a session as checkpoint sets: model.safetensors, state.safetensors, config.json, data.json (what
// the model takes for granted of its data) and, of a run on text, tokenizer.json.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "train/session.h"

namespace hearth::train {

/// Writes the set of the session's step into a run's checkpoint folder, points `latest` (and, when this step is the
/// best so far, `best`) to it, and deletes older sets than the config keeps. FileError if it cannot be written; the
/// earlier sets are untouched then.
HEARTH_API void save_session(Session& session, const std::string& checkpoint_folder);

/// For all ranks but the one that writes, while that runs save_session(): gives it this rank's part of the state.
HEARTH_API void read_for_checkpoint(const Session& session);

struct Restored {
  std::string from;                  ///< the set that was loaded; "" if there is none
  std::vector<std::string> damaged;  ///< newer sets that could not be used, and why
  std::vector<std::string> warnings;
};
/// In what a run may differ from the one that it goes on from.
struct Allowed {
  bool other_precision = false;  ///< it goes on with the f32 weights and moments that are saved
  bool changed_data = false;     ///< it goes on with the data that is there now, and a warning says what changed
};
/// Loads the newest complete set of a run's folder. ConfigError if that run differs in what decides the numbers.
/// DataError if its sequences now give another tokenizer, its classes have other names, or its data has changed.
/// FileError if there are sets but none can be read.
HEARTH_API Restored restore_newest(Session& session, const std::string& run_folder, Allowed allowed = {});

/// Whether the best evaluation that a session just restored from this folder knows of has no set any more, and `best`
/// leads to one that is newer than what was restored, and so is damaged, or was led to what was restored before.
HEARTH_API bool best_is_lost(const Session& session, const std::string& checkpoint_folder);

/// Makes `latest`, and `best` where it is there, lead to the sets that a session just restored from this folder says. A
/// process may have been killed between a set and its link.
HEARTH_API void mend_links(const Session& session, const std::string& checkpoint_folder);

/// The folder of the checkpoint that a path stands for: of a run its best, or the newest where no best was kept; of a
/// checkpoint its own. FileError for anything else, and for a run without a whole checkpoint.
HEARTH_API std::string checkpoint_at(const std::string& run_or_checkpoint);

/// A session that computes with the model of a finished or interrupted run, at its best checkpoint (or the newest,
/// where no best was kept), or of one checkpoint folder. The checkpoint holds all that this needs, wherever it was
/// copied to: the session's data has no samples. Images are normalised as in training unless the overrides say how.
/// FileError naming what is missing. A checkpoint of an earlier version needs the data of its configuration.
HEARTH_API std::unique_ptr<Session> open_trained(const std::string& run_or_checkpoint,
                                                 const std::vector<std::string>& overrides = {});

/// The same with data to evaluate the model on: that which its configuration names, whose relative paths begin at the
/// working directory, or what is at `data_path` (data::evaluation_data()). DataError if the data now gives another
/// tokenizer, or its classes have other names.
HEARTH_API std::unique_ptr<Session> open_for_evaluation(const std::string& run_or_checkpoint,
                                                        const std::vector<std::string>& overrides = {},
                                                        const std::string& data_path = "");

}  // namespace hearth::train
