// SPDX-License-Identifier: Apache-2.0
// Sums of losses and correct predictions.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "core/tensor.h"
#include "train/model/metrics.h"

namespace hearth::train {

/// Sums since some step, part of the state so that a resumed run reports the same numbers.
struct Meter {
  double loss_sum = 0;
  std::int64_t correct = 0;
  std::int64_t samples = 0;
  double weight = 0;                         ///< of an evaluation: what its losses count for together; 0: `samples`
  std::shared_ptr<const Metrics> metrics{};  ///< what the task measured in an evaluation; else null
  void clear() { *this = {}; }
  double loss() const {
    const double whole = weight > 0 ? weight : static_cast<double>(samples);
    return whole > 0 ? loss_sum / whole : 0;
  }
  double accuracy() const { return samples ? static_cast<double>(correct) / static_cast<double>(samples) : 0; }
};

/// A meter's sums where the run computes, so that a step need not wait for its device.
struct HEARTH_API Sums {
  explicit Sums(Device device) : Sums(Tensor::zeros({1}, DType::f64, device), Tensor::zeros({1}, DType::i64, device)) {}
  Sums(Tensor loss_sum, Tensor correct_sum) : loss(std::move(loss_sum)), correct(std::move(correct_sum)) {}
  /// Waits for the device.
  void read(Meter& meter) const;
  void write(const Meter& meter) const;

  Tensor loss;     ///< f64 [1]
  Tensor correct;  ///< i64 [1]
};

}  // namespace hearth::train
