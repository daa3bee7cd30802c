// SPDX-License-Identifier: Apache-2.0
// What an update writes beside the values, in its own pass over them.
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "optim/staged.h"

namespace hearth::optim {

struct Copies {
  Tensor low_precision{};  ///< f16 or bf16: receives the new values, f32, rounded; undefined for none
  Tensor average{};        ///< of the values' type: += weight * (new values - average); undefined for none
  const Staged<double>* weight = nullptr;  ///< 0 leaves the average as it is
};

/// Brings [begin, end) of the copies up to date, on the calling thread: for updates on the CPU, one piece at a time
/// while its values are in the cache.
HEARTH_API void copy_piece(const Tensor& values, const Copies& copies, std::int64_t begin, std::int64_t end);

}  // namespace hearth::optim
