// SPDX-License-Identifier: Apache-2.0
// Files of a session's checkpoint set that every version wrote.
#pragma once

#include "train/checkpoint/checkpoint_set.h"

namespace hearth::train {

inline constexpr const char* model_file = "model.safetensors";
inline constexpr const char* state_file = "state.safetensors";
inline constexpr const char* config_file = "config.json";

inline const RequiredFiles& required_files() {
  static const RequiredFiles files{model_file, state_file, config_file};
  return files;
}

}  // namespace hearth::train
