// SPDX-License-Identifier: Apache-2.0
// Results whose number depends on values, so that a device alone knows it.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace hearth {

/// A list in memory for more elements than it may have, or one for each of a batch. Nothing waits for a device: what
/// goes on with the list reads as many elements as the memory holds, and the count where they must not matter.
struct HEARTH_API CountedList {
  Tensor values;  ///< [capacity, ...], of a batch [N, capacity, ...]; zeros behind the last element
  Tensor count;   ///< i64 scalar, of a batch [N]; on the device of `values`

  /// The elements of a list and no more. Waits for a CUDA device. IndexError unless there is such a list.
  Tensor wait(std::int64_t list = 0) const;
};

}  // namespace hearth
