// SPDX-License-Identifier: Apache-2.0
// Broadcasting arithmetic: the last merged axis of the walk runs along the threads' x, all others are rows, whose
// places in the operands each thread works out once a row. Where all arrays allow it a thread takes 16 bytes, else one
// element. Traffic: each array once; repeated operands come from the caches.
#include <algorithm>

#include "core/cuda/elementwise.h"
#include "ops/pointwise/binary.h"
#include "ops/pointwise/binary_step.h"
#include "ops/pointwise/walk.h"

namespace hearth::kernels {
namespace {

using namespace cuda;
using AllArithmetic = Types<float, double, f16, bf16, std::int32_t, std::int64_t>;

/// An operand: elements in memory, or one number where `first` is null.
template <class T>
struct Operand {
  const T* first;
  acc_t<T> number;
};

template <class T>
__device__ __forceinline__ acc_t<T> to_arithmetic(T value) {
  if constexpr (std::is_integral_v<T>)
    return value;
  else
    return upcast(value);
}

template <class T>
__device__ __forceinline__ T from_arithmetic(acc_t<T> value) {
  if constexpr (std::is_integral_v<T>)
    return value;
  else
    return cast_down<T>(value);
}

/// Elements at `at` and behind it, `stride` apart; a pack only for strides 0 and 1.
template <int count, class T>
__device__ __forceinline__ void read(const Operand<T>& operand, std::int64_t at, std::int64_t stride, bool packed,
                                     acc_t<T>* values) {
  if (operand.first == nullptr || stride == 0 || !packed) {
    const acc_t<T> value = operand.first == nullptr ? operand.number : to_arithmetic(operand.first[at]);
    HEARTH_UNROLL
    for (int k = 0; k < count; ++k) values[k] = value;
    return;
  }
  const Pack<T, count> pack = load_pack<count>(operand.first + at);
  HEARTH_UNROLL
  for (int k = 0; k < count; ++k) values[k] = to_arithmetic(pack.at[k]);
}

template <Binary step, class T>
__global__ void step_elements(HEARTH_GRID_CONSTANT(Walk) walk, Operand<T> a, Operand<T> b, const T* dy, T* y,
                              std::int64_t rows, bool packed) {
  constexpr int count = pack_size<T>;
  const int last = walk.rank - 1;
  const std::int64_t length = walk.extents[last];
  const std::int64_t stride_a = walk.strides[0][last], stride_b = walk.strides[1][last];
  const std::int64_t size = packed ? count : 1;
  walk_rows(rows, length / size, [&](std::int64_t row, std::int64_t unit) {
    std::int64_t rest = row, row_a = 0, row_b = 0;
    for (int axis = last - 1; axis >= 0; --axis) {
      const std::int64_t index = axis == 0 ? rest : rest % walk.extents[axis];
      rest = axis == 0 ? 0 : rest / walk.extents[axis];
      row_a += index * walk.strides[0][axis];
      row_b += index * walk.strides[1][axis];
    }
    const std::int64_t i = unit * size;
    acc_t<T> of_a[count], of_b[count], of_dy[count];
    read<count>(a, row_a + i * stride_a, stride_a, packed, of_a);
    read<count>(b, row_b + i * stride_b, stride_b, packed, of_b);
    T* const to = y + row * length + i;
    if constexpr (is_gradient(step)) read<count>(Operand<T>{dy, {}}, row * length + i, 1, packed, of_dy);
    Pack<T, count> pack;
    HEARTH_UNROLL
    for (int k = 0; k < count; ++k) {
      const acc_t<T> slope = is_gradient(step) ? of_dy[k] : acc_t<T>(0);
      pack.at[k] = from_arithmetic<T>(evaluate<step>(of_a[k], of_b[k], slope));
    }
    if (packed)
      store_pack(to, pack);
    else
      *to = pack.at[0];
  });
}

/// Whether every pack of the operand is one aligned access or one repeated element.
template <class T>
bool packs_along(const Operand<T>& operand, const std::int64_t* strides, int last) {
  if (operand.first == nullptr) return true;
  if (strides[last] != 0 && (strides[last] != 1 || !is_aligned(operand.first))) return false;
  if (strides[last] == 0) return true;
  return std::all_of(strides, strides + last, [](std::int64_t stride) { return stride % pack_size<T> == 0; });
}

template <class T>
Operand<T> operand_of(const Tensor& tensor) {
  if (!tensor.device().is_cpu()) return {tensor.data<T>(), {}};
  return {nullptr,
          tensor.dtype() == dtype_of<T>() ? static_cast<acc_t<T>>(*tensor.data<T>()) : *tensor.data<acc_t<T>>()};
}

}  // namespace

void binary(cuda::Stream& stream, Binary function, const Tensor& a, const Tensor& b, const Tensor& y,
            const Tensor& dy) {
  if (y.size() == 0) return;
  const Walk walk = walk_over(y.shape(), {a, b, Tensor()});
  const auto run = [&]<Binary step, class T>() {
    const Operand<T> left = operand_of<T>(a), right = operand_of<T>(b);
    const T* const from_dy = dy.defined() ? dy.data<T>() : nullptr;
    T* const to = y.data<T>();
    const int last = walk.rank - 1;
    const std::int64_t length = walk.extents[last];
    const bool packed = length % pack_size<T> == 0 && is_aligned(from_dy) && is_aligned(to) &&
                        packs_along(left, walk.strides[0], last) && packs_along(right, walk.strides[1], last);
    const std::int64_t rows = y.size() / length;
    const std::int64_t moved =
        bytes_of(y, dy) + (a.device().is_cpu() ? 0 : bytes_of(a)) + (b.device().is_cpu() ? 0 : bytes_of(b));
    launch(stream, name_of(function), shape_over_rows(rows, packed ? length / pack_size<T> : length).moving(moved),
           step_elements<step, T>, walk, left, right, from_dy, to, rows, packed);
  };
  visit_binary(function, [&]<Binary step>() {
    visit_dtype("binary", y.dtype(), AllArithmetic{}, [&]<class T>() {
      if constexpr (is_defined<step, acc_t<T>>) run.template operator()<step, T>();
    });
  });
}

}  // namespace hearth::kernels
