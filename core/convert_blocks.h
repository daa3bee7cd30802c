// SPDX-License-Identifier: Apache-2.0
// Conversion between element types on the CPU, for blocks of neighbouring elements on the calling thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"

namespace hearth {

/// How elements of one type become those of another, as convert_element() of core/convert.h does it: 16-bit types by
/// way of f32, the others by one function of a block.
class BlockConversion {
 public:
  BlockConversion(DType from, DType to);
  /// n elements of any number.
  void run(const std::byte* source, std::byte* destination, std::int64_t n) const;

 private:
  using Block = void (*)(const std::byte* source, std::byte* destination, std::int64_t n);

  /// At most a block, of which one side has 16 bits.
  void run_short(const std::byte* source, std::byte* destination, std::int64_t n) const;

  DType from_, to_;
  Block middle_ = nullptr;  ///< between types that are computed in; null where they are the same
};

}  // namespace hearth
