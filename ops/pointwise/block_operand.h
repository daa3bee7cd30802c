// SPDX-License-Identifier: Apache-2.0
// Operands of a walk on the CPU as blocks of neighbouring elements.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/cpu/blocks.h"

namespace hearth::kernels {

/// Rows of T that a walk goes along, in the type that is computed in. Elements that are no block in memory (repeated,
/// apart, or of 16 bits) are gathered in a strip.
template <class T>
class BlockOperand {
 public:
  using A = acc_t<T>;

  /// Neighbours in a row lie `step` apart. Without `first` every element is `number`.
  BlockOperand(const T* first, std::int64_t step, A number)
      : first_(first), step_(first == nullptr ? 0 : step), number_(number) {}

  /// Elements that a block may have.
  std::int64_t longest() const {
    return cpu::computed_in<T> && step_ == 1 ? std::numeric_limits<std::int64_t>::max() : cpu::block_size;
  }
  /// Elements [begin, begin + n) of the row that starts at `offset`.
  const A* block(std::int64_t offset, std::int64_t begin, std::int64_t n) {
    if (step_ == 0) return repeated(first_ == nullptr ? number_ : value_of(first_ + offset), n);
    const T* const from = first_ + offset + begin * step_;
    if constexpr (cpu::computed_in<T>) {
      if (step_ == 1) return from;
      for (std::int64_t i = 0; i < n; ++i) strip_[i] = from[i * step_];
    } else {
      if (step_ == 1)
        cpu::upcast(from, strip_, n);
      else
        for (std::int64_t i = 0; i < n; ++i) strip_[i] = value_of(from + i * step_);
    }
    return strip_;
  }

 private:
  static A value_of(const T* p) { return static_cast<A>(*p); }
  const A* repeated(A value, std::int64_t n) {
    // What is there already serves for the next block too. Bits are compared: -0 is not 0.
    if (repeated_ < n || std::memcmp(strip_, &value, sizeof(A)) != 0) {
      std::fill_n(strip_, n, value);
      repeated_ = n;
    }
    return strip_;
  }

  const T* first_;
  std::int64_t step_;
  A number_;
  std::int64_t repeated_ = 0;  ///< elements of the strip that are all of one value
  alignas(64) A strip_[cpu::block_size];
};

}  // namespace hearth::kernels
