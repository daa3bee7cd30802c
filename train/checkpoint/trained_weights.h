// SPDX-License-Identifier: Apache-2.0
// The weights of a run, as `hearth eval` and `hearth predict` use them.
#pragma once

#include <optional>
#include <string>

#include "models/weights/weights_import.h"

namespace hearth::train {

struct TrainedWeights {
  std::string checkpoint;  ///< the folder that holds them
  bool averaged = false;   ///< they are the moving average (train.ema), which model.safetensors there is not
};

/// Those of the folder of a run, of its best checkpoint, or of the folder of a checkpoint; nothing for any other path.
/// FileError for a run without a whole checkpoint.
HEARTH_API std::optional<TrainedWeights> find_trained_weights(const std::string& path);

/// What models::import_weights() gives of the checkpoint's model.safetensors, with the averages in place of the weights
/// if `trained` says so. FileError for a damaged checkpoint; ConfigError for an average of a model that the program
/// does not know.
HEARTH_API models::ImportedWeights import_trained_weights(const TrainedWeights& trained,
                                                          const models::ImportOptions& options);

}  // namespace hearth::train
