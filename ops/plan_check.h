// SPDX-License-Identifier: Apache-2.0
// Whether the first result of a library's plan is that of a native kernel (HEARTH_CHECK_PLANS=1).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace hearth::detail {

/// What HEARTH_CHECK_PLANS says: 1, or 0 and by itself not. ConfigError for anything else.
bool checks_plans();

/// Compares results that two implementations write into the same tensors. Waits for the device.
class PlanCheck {
 public:
  /// Before the first writes: keeps what `results` hold, undefined tensors aside. `dtype` is that which is computed in.
  PlanCheck(const std::vector<Tensor>& results, DType dtype);

  /// After the first has written: what is wrong with its results, if own()'s are right; or empty. The tensors hold the
  /// first's results again, or where these are wrong what they held before. Does nothing while a step is recorded.
  std::string fault(const std::function<void()>& own);

 private:
  std::vector<Tensor> results_, before_;
  DType dtype_;
};

}  // namespace hearth::detail
