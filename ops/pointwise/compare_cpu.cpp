// SPDX-License-Identifier: Apache-2.0
// Row by row over the merged axes of the result, in blocks. Reference: for each position: y = f(a[place], b[place]), or
// y = condition ? a : b.
#include <algorithm>
#include <bit>
#include <type_traits>

#include "core/cpu/parallel.h"
#include "ops/pointwise/binary_blocks.h"
#include "ops/pointwise/block_operand.h"
#include "ops/pointwise/compare.h"
#include "ops/pointwise/walk.h"

namespace hearth::kernels {
namespace {

constexpr std::int64_t compare_grain = 1 << 14;

/// f(position, offsets, begin, count) for blocks of rows in [begin, end), of at most `longest` elements.
template <class F>
void each_row_block(const Walk& walk, std::int64_t begin, std::int64_t end, std::int64_t longest, const F& f) {
  each_row(walk, begin, end, [&](std::int64_t position, const std::int64_t* offsets, std::int64_t count) {
    for (std::int64_t i = 0; i < count; i += longest) {
      const std::int64_t n = std::min(longest, count - i);
      f(position + i, offsets, i, n);
      if (n == count) break;
    }
  });
}

/// Elements as they are compared: bool as bytes.
template <class T>
using Compared = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;

template <class T>
BlockOperand<Compared<T>> compared_operand(const Operand& operand, std::int64_t step) {
  using C = Compared<T>;
  const T* const first = operand.tensor.defined() ? operand.tensor.data<T>() : nullptr;
  return {reinterpret_cast<const C*>(first), step, static_cast<acc_t<C>>(operand.number)};
}

template <int bytes>
using Word = std::conditional_t<
    bytes == 1, std::uint8_t,
    std::conditional_t<bytes == 2, std::uint16_t, std::conditional_t<bytes == 4, std::uint32_t, std::uint64_t>>>;

/// The number as the bits of a T.
template <class T>
Word<sizeof(T)> word_of(double number) {
  return std::bit_cast<Word<sizeof(T)>>(T(static_cast<acc_t<T>>(number)));
}

/// An operand of `select`: bits, or those of its number.
template <class W>
struct SelectOperand {
  const W* first;
  W number;
};

template <class W>
void select_words(const Walk& walk, const Tensor& condition, const SelectOperand<W>& a, const SelectOperand<W>& b,
                  const Tensor& y) {
  const int last = walk.rank - 1;
  const auto* const mask = reinterpret_cast<const std::uint8_t*>(condition.bytes());
  W* const to = reinterpret_cast<W*>(y.bytes());
  cpu::parallel_for(y.size(), compare_grain, [&](std::int64_t begin, std::int64_t end) {
    BlockOperand<std::uint8_t> of_mask(mask, walk.strides[0][last], 0);
    BlockOperand<W> of_a(a.first, walk.strides[1][last], a.number), of_b(b.first, walk.strides[2][last], b.number);
    const std::int64_t longest = std::min({of_mask.longest(), of_a.longest(), of_b.longest()});
    each_row_block(walk, begin, end, longest,
                   [&](std::int64_t at, const std::int64_t* offsets, std::int64_t i, std::int64_t n) {
                     select_block(of_mask.block(offsets[0], i, n), of_a.block(offsets[1], i, n),
                                  of_b.block(offsets[2], i, n), to + at, n);
                   });
  });
}

}  // namespace

void compare(cpu::Stream&, Comparison comparison, const Operand& a, const Operand& b, const Tensor& y) {
  const Walk walk = walk_over(y.shape(), {a.tensor, b.tensor, Tensor()});
  const int last = walk.rank - 1;
  bool* const to = y.data<bool>();
  visit_dtype("compare", a.tensor.dtype(), AllTypes{}, [&]<class T>() {
    const CompareBlock<acc_t<Compared<T>>> compared = compare_block<acc_t<Compared<T>>>(comparison);
    cpu::parallel_for(y.size(), compare_grain, [&](std::int64_t begin, std::int64_t end) {
      auto of_a = compared_operand<T>(a, walk.strides[0][last]), of_b = compared_operand<T>(b, walk.strides[1][last]);
      each_row_block(walk, begin, end, std::min(of_a.longest(), of_b.longest()),
                     [&](std::int64_t at, const std::int64_t* offsets, std::int64_t i, std::int64_t n) {
                       compared(of_a.block(offsets[0], i, n), of_b.block(offsets[1], i, n), to + at, n);
                     });
    });
  });
}

void select(cpu::Stream&, const Tensor& condition, const Operand& a, const Operand& b, const Tensor& y) {
  const Walk walk = walk_over(y.shape(), {condition, a.tensor, b.tensor});
  visit_dtype("where", y.dtype(), AllTypes{}, [&]<class T>() {
    using W = Word<sizeof(T)>;
    const auto operand = [](const Operand& o) {
      return SelectOperand<W>{o.tensor.defined() ? reinterpret_cast<const W*>(o.tensor.bytes()) : nullptr,
                              word_of<T>(o.number)};
    };
    select_words<W>(walk, condition, operand(a), operand(b), y);
  });
}

}  // namespace hearth::kernels
