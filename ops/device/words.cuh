// SPDX-License-Identifier: Apache-2.0
// Rows copied in wide words, whatever their elements are.
#pragma once

#include <cstdint>

#include "core/cuda/kernel.h"
#include "core/tensor.h"

namespace hearth::cuda {

/// Words that rows of `bytes` bytes are made of: the widest that sizes and addresses allow.
template <class F>
void visit_word(std::int64_t bytes, const Tensor& x, const Tensor& y, F&& f) {
  const auto fits = [&](std::uintptr_t width) {
    return static_cast<std::uintptr_t>(bytes) % width == 0 &&
           reinterpret_cast<std::uintptr_t>(x.bytes()) % width == 0 &&
           reinterpret_cast<std::uintptr_t>(y.bytes()) % width == 0;
  };
  if (fits(16)) return f.template operator()<Pack<std::uint64_t, 2>>();
  if (fits(4)) return f.template operator()<std::uint32_t>();
  if (fits(2)) return f.template operator()<std::uint16_t>();
  f.template operator()<std::uint8_t>();
}

}  // namespace hearth::cuda
