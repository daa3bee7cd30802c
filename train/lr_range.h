// SPDX-License-Identifier: Apache-2.0
// The learning-rate range test: a short training whose rate rises exponentially, and the rate at which the loss falls
// fastest. Source: Smith 2015 (arXiv:1506.01186); smoothing, end and suggestion as in fastai and PyTorch Lightning.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "train/session.h"

namespace hearth::train {

struct LrRangeOptions {
  double min_lr = 1e-7;
  double max_lr = 1;
  std::int64_t steps = 100;
};

/// A step of the test. Rates are those of `optimizer.lr`, before `train.lr_scaling`.
struct LrTrial {
  double lr = 0;
  double loss = 0;
  double smoothed = 0;  ///< mean of the losses so far that forgets, without the bias of its first values
};

struct LrRange {
  std::vector<LrTrial> trials{};
  bool diverged = false;                   ///< it ended where the loss was four times the best one, or not finite
  std::optional<std::int64_t> steepest{};  ///< the trial at which the loss fell fastest over the logarithm of the rate
};

/// The trial of the steepest descent of the smoothed loss. The first ten trials and the last take no part; nothing
/// where fewer than three are left or the loss falls at none.
std::optional<std::int64_t> steepest_descent(const std::vector<LrTrial>& trials);

/// Trains the session for that many steps at rates from min_lr to max_lr, in place of its schedule's, on its own data
/// from the first batch on. The session is of no use for training then. ConfigError unless 0 < min_lr < max_lr and
/// there are at least 20 steps.
LrRange test_lr_range(Session& session, const LrRangeOptions& options);

}  // namespace hearth::train
