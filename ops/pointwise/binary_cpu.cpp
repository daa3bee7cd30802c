// SPDX-License-Identifier: Apache-2.0
// Broadcasting arithmetic: axes that lie one after the other in both operands are merged, and the rows of the innermost
// merged axis are computed in blocks.
#include <algorithm>

#include "core/cpu/parallel.h"
#include "ops/pointwise/binary.h"
#include "ops/pointwise/binary_blocks.h"
#include "ops/pointwise/block_operand.h"
#include "ops/pointwise/walk.h"

namespace hearth::kernels {
namespace {

constexpr std::int64_t binary_grain = 1 << 14;
using AllArithmetic = Types<float, double, f16, bf16, std::int32_t, std::int64_t>;

/// The tensor as an operand along the last axis of the walk. A scalar may be of acc_t<T>, which is a number.
template <class T>
BlockOperand<T> operand_of(const Tensor& tensor, const Tensor& y, std::int64_t step) {
  const bool is_number = tensor.rank() == 0 && (tensor.dtype() != y.dtype() || y.rank() > 0);
  if (!is_number) return {tensor.data<T>(), step, acc_t<T>{}};
  return {nullptr, 0,
          tensor.dtype() == y.dtype() ? static_cast<acc_t<T>>(*tensor.data<T>()) : *tensor.data<acc_t<T>>()};
}

}  // namespace

void binary(cpu::Stream&, Binary function, const Tensor& a, const Tensor& b, const Tensor& y, const Tensor& dy) {
  if (y.size() == 0) return;
  const Walk walk = walk_over(y.shape(), {a, b, Tensor()});
  const int last = walk.rank - 1;
  visit_dtype("binary", y.dtype(), AllArithmetic{}, [&]<class T>() {
    using A = acc_t<T>;
    const BinaryBlock<A> evaluate = binary_block<A>(function);
    T* const to = y.data<T>();
    // Functions that need no dy never look at it.
    const T* const arriving = dy.defined() ? dy.data<T>() : to;
    cpu::parallel_for(y.size(), binary_grain, [&](std::int64_t begin, std::int64_t end) {
      BlockOperand<T> of_a = operand_of<T>(a, y, walk.strides[0][last]);
      BlockOperand<T> of_b = operand_of<T>(b, y, walk.strides[1][last]);
      BlockOperand<T> of_dy(arriving, 1, A{});
      cpu::Strip<T> strip;
      each_row(walk, begin, end, [&](std::int64_t position, const std::int64_t* offsets, std::int64_t count) {
        const std::int64_t longest = std::min({count, of_a.longest(), of_b.longest(), of_dy.longest()});
        for (std::int64_t i = 0; i < count; i += longest) {
          const std::int64_t n = std::min(longest, count - i), at = position + i;
          const A* const slopes = is_gradient(function) ? of_dy.block(at, 0, n) : nullptr;
          evaluate(of_a.block(offsets[0], i, n), of_b.block(offsets[1], i, n), slopes, cpu::block_of(to + at, strip),
                   n);
          cpu::write_block(strip, to + at, n);
        }
      });
    });
  });
}

}  // namespace hearth::kernels
