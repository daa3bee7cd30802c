// SPDX-License-Identifier: Apache-2.0
// One tile of a matrix product on the device, in ordinary arithmetic and for operands of any form: the portable matmul
// and convolution are made of it. For kernel sources only.
//
// A block of 256 threads makes 64 x 64 values of C = A B from steps of 16 along the depth k. Each thread fetches four
// elements of A and four of B a step into registers while the block multiplies the step before, and owns 4 x 4 values
// of C. Per step and block: 2 x 16 x 64 elements read, 64 x 64 x 16 products. Sums run in order of k.
#pragma once

#include "core/cuda/kernel.h"
#include "core/tensor.h"

namespace hearth::kernels::tile {

inline constexpr int side = 64;
inline constexpr int depth = 16;
inline constexpr int threads = 256;
inline constexpr int share = 4;  ///< elements of an operand that a thread fetches a step; also rows and columns it owns

/// Rows and columns of the tile that this thread owns.
__device__ __forceinline__ int own_row(int i) { return static_cast<int>(threadIdx.x) / depth * share + i; }
__device__ __forceinline__ int own_column(int j) { return static_cast<int>(threadIdx.x) % depth + depth * j; }

/// A stored matrix as an operand: element (row, k) at data[row * row_step + k * depth_step], one of the steps being 1.
/// An operand has these members. `begin` is called once for a tile with the thread's row (the first of its four where
/// they do not lie along the depth), `fetch` once a step with its k (the first of four where they do); what lies
/// outside is zero.
template <class T>
struct Stored {
  const T* data;
  std::int64_t rows, row_step, depth_step;
  std::int64_t row = 0;

  __device__ bool along_depth() const { return depth_step == 1; }
  __device__ void begin(std::int64_t first) { row = first; }
  __device__ void fetch(std::int64_t k, std::int64_t end, acc_t<T> (&out)[share]) const {
    const bool along = along_depth();
    const T* const from = data + row * row_step + k * depth_step;
    HEARTH_UNROLL
    for (int i = 0; i < share; ++i) {
      const bool inside = along ? row < rows && k + i < end : row + i < rows && k < end;
      out[i] = inside ? cuda::upcast(from[i]) : acc_t<T>(0);
    }
  }
};

/// This thread's part in bringing one operand to shared memory.
template <class A, class Operand>
struct Carrier {
  Operand operand;
  bool along;
  int row, k;
  A held[share];

  __device__ Carrier(const Operand& whole, std::int64_t first_row) : operand(whole), along(whole.along_depth()) {
    const int t = static_cast<int>(threadIdx.x);
    row = along ? t / share : t % depth * share;
    k = along ? t % share * share : t / depth;
    operand.begin(first_row + row);
  }
  __device__ void fetch(std::int64_t step, std::int64_t end) { operand.fetch(step + k, end, held); }
  __device__ void put(A (*into)[side + share]) const {
    HEARTH_UNROLL
    for (int i = 0; i < share; ++i) into[along ? k + i : k][along ? row : row + i] = held[i];
  }
};

/// sum[i][j] += the products over k in [begin, end) of `left`'s row and `right`'s row (a column of B) that this thread
/// owns. All threads of the block call. Ends with a barrier.
template <class A, class Left, class Right>
__device__ void multiply(const Left& left, const Right& right, std::int64_t row, std::int64_t column,
                         std::int64_t begin, std::int64_t end, A (&sum)[share][share]) {
  HEARTH_SHARED(A, a_step, [depth][side + share]);
  HEARTH_SHARED(A, b_step, [depth][side + share]);
  Carrier<A, Left> a(left, row);
  Carrier<A, Right> b(right, column);
  a.fetch(begin, end);
  b.fetch(begin, end);
  for (std::int64_t step = begin; step < end; step += depth) {
    a.put(a_step);
    b.put(b_step);
    __syncthreads();
    if (step + depth < end) {
      a.fetch(step + depth, end);
      b.fetch(step + depth, end);
    }
    HEARTH_UNROLL
    for (int k = 0; k < depth; ++k) {
      A x[share], y[share];
      HEARTH_UNROLL
      for (int i = 0; i < share; ++i) {
        x[i] = a_step[k][own_row(i)];
        y[i] = b_step[k][own_column(i)];
      }
      HEARTH_UNROLL
      for (int i = 0; i < share; ++i) {
        HEARTH_UNROLL
        for (int j = 0; j < share; ++j) sum[i][j] += x[i] * y[j];
      }
    }
    __syncthreads();
  }
}

/// f(row, column, sum) for the values that this thread owns of the tile at (row, column) of a rows x columns matrix.
template <class A, class F>
__device__ __forceinline__ void visit_own(const A (&sum)[share][share], std::int64_t row, std::int64_t column,
                                          std::int64_t rows, std::int64_t columns, F&& f) {
  HEARTH_UNROLL
  for (int i = 0; i < share; ++i) {
    const std::int64_t r = row + own_row(i);
    HEARTH_UNROLL
    for (int j = 0; j < share; ++j) {
      const std::int64_t c = column + own_column(j);
      if (r < rows && c < columns) f(r, c, sum[i][j]);
    }
  }
}

/// What becomes of a sum: c[at] = relu?(sum + bias[column] (+ c[at])), in the sum's type and rounded once.
template <class T>
struct Store {
  using Element = T;
  T* c;
  const void* bias;  ///< or null
  bool wide_bias;    ///< bias of the sum's type, else of T
  bool accumulate;
  bool relu = false;

  __device__ void operator()(std::int64_t at, std::int64_t column, acc_t<T> sum) const {
    c[at] = cuda::cast_down<T>(total(at, column, sum));
  }

  /// The same for two neighbours of a row, the second only if `both`; in one access where the address allows.
  __device__ void pair(std::int64_t at, std::int64_t column, acc_t<T> first, acc_t<T> second, bool both) const {
    if (!both) return (*this)(at, column, first);
    const cuda::Pack<T, 2> values{cuda::cast_down<T>(total(at, column, first)),
                                  cuda::cast_down<T>(total(at + 1, column + 1, second))};
    if (reinterpret_cast<std::uintptr_t>(c + at) % sizeof(values) == 0) return cuda::store_pack(c + at, values);
    c[at] = values.at[0];
    c[at + 1] = values.at[1];
  }

  __device__ acc_t<T> total(std::int64_t at, std::int64_t column, acc_t<T> sum) const {
    using A = acc_t<T>;
    if (bias != nullptr)
      sum += wide_bias ? static_cast<const A*>(bias)[column] : cuda::upcast(static_cast<const T*>(bias)[column]);
    if (accumulate) sum += cuda::upcast(c[at]);
    // NaN stays.
    return relu && sum < A(0) ? A(0) : sum;
  }
};

/// How a long depth is shared among blocks when there are few tiles: `count` parts of `size`, a multiple of `step`, by
/// the shape alone.
struct Split {
  std::int64_t count = 1;
  std::int64_t size = 0;
};
inline Split split_of(std::int64_t tiles, std::int64_t whole, std::int64_t step = depth) {
  constexpr std::int64_t enough_tiles = 128, least = 512, most = 64;
  std::int64_t count = (enough_tiles + tiles - 1) / (tiles > 0 ? tiles : 1);
  if (count > whole / least) count = whole / least;
  if (count > most) count = most;
  if (count < 1) count = 1;
  const std::int64_t size = ((whole + count - 1) / count + step - 1) / step * step;
  return {(whole + size - 1) / size, size};
}

/// c [elements] = the sums of `count` parts [count, elements], added in order, and stored as `store` says. One thread
/// an element; count + 1 accesses an element.
template <class T, class Into = Store<T>>
__global__ void sum_parts(const acc_t<T>* parts, std::int64_t count, std::int64_t elements, std::int64_t columns,
                          Into store) {
  for (std::int64_t i = cuda::global_thread(); i < elements; i += cuda::global_threads()) {
    acc_t<T> sum = 0;
    for (std::int64_t part = 0; part < count; ++part) sum += parts[part * elements + i];
    store(i, i % columns, sum);
  }
}

/// The bias as a Store takes it: of the result's type, or of its sum's. Undefined where there is none.
inline Tensor bias_row(const Tensor& bias, const Tensor& result) {
  if (!bias.defined() || bias.dtype() == result.dtype()) return bias;
  return bias.to(result.dtype() == DType::f64 ? DType::f64 : DType::f32);
}
/// `row` must outlive the launch's queueing.
template <class T>
Store<T> store_of(const Tensor& result, const Tensor& row, bool accumulate, bool relu = false) {
  const bool has_bias = row.defined();
  return {result.data<T>(), has_bias ? row.bytes() : nullptr, has_bias && row.dtype() != result.dtype(), accumulate,
          relu};
}

struct LaunchNames {
  const char *whole, *parts, *sum;
};

/// What a launch moves whose operands have `in` bytes: with the result, or with the parts of one.
inline std::int64_t moved_by(std::int64_t in, const Split& split, const Tensor& result, std::int64_t part_elements,
                             std::size_t part_element) {
  if (part_elements == 0) return in + cuda::bytes_of(result);
  return in + split.count * part_elements * static_cast<std::int64_t>(part_element);
}

/// Sums that go to `store`, of a result with this many columns: run(name, store, 0) where the depth is not shared. Else
/// run(name, store of the parts, elements of a part), and the parts are added.
template <class Into, class Run>
void launch_split(cuda::Stream& stream, const LaunchNames& names, const Split& split, const Tensor& result,
                  std::int64_t columns, const Into& store, Run&& run) {
  using A = acc_t<typename Into::Element>;
  if (split.count == 1) return run(names.whole, store, std::int64_t{0});
  const std::int64_t elements = result.size();
  const Tensor parts = Tensor::empty({split.count, elements}, dtype_of<A>(), result.device());
  run(names.parts, Store<A>{parts.data<A>(), nullptr, false, false}, elements);
  cuda::launch(stream, names.sum, {cuda::blocks_for(elements, 256, 1 << 16), 256, 0, cuda::bytes_of(parts, result)},
               sum_parts<typename Into::Element, Into>, static_cast<const A*>(parts.data<A>()), split.count, elements,
               columns, store);
}

}  // namespace hearth::kernels::tile
