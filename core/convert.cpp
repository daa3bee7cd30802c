// SPDX-License-Identifier: Apache-2.0
#include "core/convert.h"

#include <algorithm>

#include "core/convert_blocks.h"
#include "core/cpu/blocks.h"
#include "core/cpu/parallel.h"

namespace hearth {
namespace {

constexpr std::int64_t convert_grain = 1 << 16;

/// Elements of a width, `step` apart on one side or on both.
template <class W>
void move_elements(const std::byte* source, std::int64_t from_step, std::byte* destination, std::int64_t to_step,
                   std::int64_t n) {
  const auto* const from = reinterpret_cast<const W*>(source);
  auto* const to = reinterpret_cast<W*>(destination);
  for (std::int64_t i = 0; i < n; ++i) to[i * to_step] = from[i * from_step];
}
using Move = void (*)(const std::byte*, std::int64_t, std::byte*, std::int64_t, std::int64_t);

Move move_of(DType dtype) {
  switch (size_of(dtype)) {
    case 1:
      return move_elements<std::uint8_t>;
    case 2:
      return move_elements<std::uint16_t>;
    case 4:
      return move_elements<std::uint32_t>;
    default:
      return move_elements<std::uint64_t>;
  }
}

/// Copies rows of elements that lie `from_step` and `to_step` apart.
class RowCopy {
 public:
  RowCopy(DType from, std::int64_t from_step, DType to, std::int64_t to_step)
      : conversion_(from, to),
        gather_(move_of(from)),
        scatter_(move_of(to)),
        from_size_(static_cast<std::int64_t>(size_of(from))),
        to_size_(static_cast<std::int64_t>(size_of(to))),
        from_step_(from_step),
        to_step_(to_step),
        same_type_(from == to) {}

  void run(const std::byte* source, std::byte* destination, std::int64_t n) const {
    if (from_step_ == 1 && to_step_ == 1) return conversion_.run(source, destination, n);
    if (same_type_) return gather_(source, from_step_, destination, to_step_, n);
    for (std::int64_t at = 0; at < n; at += cpu::block_size)
      run_block(source + at * from_step_ * from_size_, destination + at * to_step_ * to_size_,
                std::min(cpu::block_size, n - at));
  }

 private:
  void run_block(const std::byte* source, std::byte* destination, std::int64_t n) const {
    alignas(64) std::byte gathered[cpu::block_size * 8], converted[cpu::block_size * 8];
    if (from_step_ != 1) gather_(source, from_step_, gathered, 1, n);
    conversion_.run(from_step_ == 1 ? source : gathered, to_step_ == 1 ? destination : converted, n);
    if (to_step_ != 1) scatter_(converted, 1, destination, to_step_, n);
  }

  BlockConversion conversion_;
  Move gather_, scatter_;
  std::int64_t from_size_, to_size_, from_step_, to_step_;
  bool same_type_;
};

}  // namespace

namespace kernels {

void fill(cpu::Stream&, DType dtype, std::byte* y, std::int64_t n, double value) {
  visit_dtype("fill", dtype, AllTypes{},
              [&]<class T>() { std::fill_n(reinterpret_cast<T*>(y), n, convert_element<T>(value)); });
}

void convert(cpu::Stream&, DType from, const std::byte* source, DType to, std::byte* destination, std::int64_t n) {
  const BlockConversion conversion(from, to);
  const auto from_size = static_cast<std::int64_t>(size_of(from)), to_size = static_cast<std::int64_t>(size_of(to));
  cpu::parallel_for(n, convert_grain, [&](std::int64_t begin, std::int64_t end) {
    conversion.run(source + begin * from_size, destination + begin * to_size, end - begin);
  });
}

void copy_strided(cpu::Stream&, const StridedBytes& source, const StridedBytes& destination, const Shape& shape) {
  if (shape.size() == 0) return;
  const int last = shape.rank() - 1;
  const auto step_of = [&](const StridedBytes& side) {
    return last < 0 ? std::int64_t{1} : side.strides[static_cast<std::size_t>(last)];
  };
  const std::int64_t inner = last < 0 ? 1 : shape[last], outer = shape.size() / inner;
  const RowCopy copy(source.dtype, step_of(source), destination.dtype, step_of(destination));
  const auto from_size = static_cast<std::int64_t>(size_of(source.dtype)),
             to_size = static_cast<std::int64_t>(size_of(destination.dtype));
  cpu::parallel_for(outer, std::max<std::int64_t>(1, convert_grain / inner), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      std::int64_t rest = row, from_at = 0, to_at = 0;
      for (int axis = last - 1; axis >= 0; --axis) {
        const std::int64_t index = rest % shape[axis];
        rest /= shape[axis];
        from_at += index * source.strides[static_cast<std::size_t>(axis)];
        to_at += index * destination.strides[static_cast<std::size_t>(axis)];
      }
      copy.run(source.bytes + from_at * from_size, destination.bytes + to_at * to_size, inner);
    }
  });
}

}  // namespace kernels
}  // namespace hearth
