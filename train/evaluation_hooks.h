// SPDX-License-Identifier: Apache-2.0
// What follows from the evaluations of a run while it goes on. The evaluations are compared as for the best checkpoint
// (Session::comparable()). An equal number is no improvement.
#pragma once

#include <memory>

#include "train/config/run_config.h"
#include "train/hook.h"

namespace hearth::train {

/// The name of its hook, under which its state is registered.
constexpr const char* early_stopping_hook = "early_stopping";
constexpr const char* reduce_lr_hook = "reduce_lr_on_plateau";
/// Ends the run after `patience` evaluations in a row that were not better by more than min_delta than the best one.
/// The options have a patience.
std::unique_ptr<Hook> make_early_stopping(const EarlyStoppingOptions& options);

/// Multiplies the learning rate by `factor` after more than `patience` evaluations in a row without improvement, as
/// PyTorch's ReduceLROnPlateau with its threshold_mode "rel" and eps 0. The options have a patience.
///
/// It is a hook and no optim::Schedule: a schedule is a function of the step alone, while this has a state that follows
/// the evaluations. So it goes with any schedule, whose rate it multiplies; min_lr raises no rate that is below it.
std::unique_ptr<Hook> make_reduce_lr_on_plateau(const ReduceLrOptions& options);

}  // namespace hearth::train
