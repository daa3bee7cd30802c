// SPDX-License-Identifier: Apache-2.0
// What `"precision": {"level": "auto"}` and `"tf32": "auto"` come to on a device.
#pragma once

#include <string>

#include "train/config/run_config.h"

namespace hearth::train {

/// Replaces the level "auto" of a run, in its options and in its document: O2 with bf16 where `device` multiplies bf16
/// in hardware and docs/precision.md shows that the type of model loses no accuracy by it, else O0. TF32 "auto" of an
/// f32 run becomes on where `device` is a CUDA device, the type of model is one of these, and the run is not
/// deterministic, else off.
/// Returns why, in words; empty where the run names its level.
std::string settle_precision(LoadedConfig& loaded, Device device);

}  // namespace hearth::train
