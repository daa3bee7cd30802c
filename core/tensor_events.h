// SPDX-License-Identifier: Apache-2.0
// Copies, fills and reads of whole tensors, for tools that ask what a step does besides its kernels.
#pragma once

#include <cstdint>

#include "core/export.h"

namespace hearth {

class Tensor;

enum class TensorEvent : std::uint8_t {
  copy,  ///< elements are copied, converted or put in another order
  fill,  ///< all elements become a number
  read,  ///< the host reads the values
};

/// Is told of the event before it happens. `from` is undefined for a fill, `to` for a read.
using TensorListener = void (*)(TensorEvent event, const Tensor& from, const Tensor& to);
/// Tells this function of the calling thread's events; null: nobody.
HEARTH_API void listen_to_tensors(TensorListener listener) noexcept;

}  // namespace hearth
