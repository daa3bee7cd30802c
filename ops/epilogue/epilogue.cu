// SPDX-License-Identifier: Apache-2.0
// Bias and activation on the device. A thread takes 16 bytes of a row where the rows are aligned for it, else one
// element; each element is read once and written once, and the bias gradient is summed while the activation's gradient
// passes by. Column sums are of two launches: blocks of rows, whose size depends on the shape alone, then their sums in
// a fixed order; both in f32 (f64 for f64).
#include <algorithm>

#include "core/convert.h"
#include "core/cuda/elementwise.h"
#include "ops/epilogue/epilogue.h"
#include "ops/epilogue/functors.h"
#include "ops/pointwise/value_slope.h"

namespace hearth::kernels {
namespace {

using namespace cuda;

std::int64_t columns_of(const Tensor& y) { return y.rank() == 0 ? 1 : y.dim(-1); }

/// Whether rows of `cols` elements at p may be read in packs.
template <class T>
bool rows_fit(const T* p, std::int64_t cols) {
  return p == nullptr || packs_fit(p, cols);
}

/// y = bias in every row, plus what y held if `adds`.
template <class T, class B>
__global__ void bias_rows(const B* bias, T* y, std::int64_t rows, std::int64_t cols, bool adds, bool packed) {
  constexpr int count = pack_size<T>;
  const std::int64_t size = packed ? count : 1;
  walk_rows(rows, cols / size, [&](std::int64_t row, std::int64_t unit) {
    T* const to = y + row * cols + unit * size;
    Upcast<T, count> wide{};
    if (adds) wide = load_upcast<count>(to, packed);
    HEARTH_UNROLL
    for (int k = 0; k < count; ++k)
      if (k < size) wide.at[k] += upcast(bias[unit * size + k]);
    store_cast_down(to, wide, packed);
  });
}

template <class T>
void launch_bias(cuda::Stream& stream, const char* name, const Tensor& bias, const Tensor& y, bool adds) {
  const std::int64_t cols = columns_of(y);
  if (y.size() == 0) return;
  T* const to = y.data<T>();
  const std::int64_t rows = y.size() / cols;
  const bool packed = packs_fit(to, cols);
  const LaunchShape shape =
      shape_over_rows(rows, packed ? cols / pack_size<T> : cols).moving(bytes_of(bias, y) + (adds ? bytes_of(y) : 0));
  const auto with = [&]<class B>(const B* from) {
    launch(stream, name, shape, bias_rows<T, B>, from, to, rows, cols, adds, packed);
  };
  if (bias.dtype() == dtype_of<T>())
    with(static_cast<const T*>(bias.data<T>()));
  else
    with(static_cast<const acc_t<T>*>(bias.data<acc_t<T>>()));
}

/// How the rows are cut for column sums. The numbers depend on the shape only.
struct Cut {
  std::int64_t rows_a_piece;
  std::int64_t pieces;
  LaunchShape shape;
};

Cut cut_rows(std::int64_t rows, std::int64_t units) {
  LaunchShape shape = shape_over_rows(rows, units, 32);
  const std::int64_t high = shape.block.y;
  const std::int64_t most = std::clamp<std::int64_t>(512 / shape.grid.x, 1, 256);
  // Eight rows a thread at least pay for the joining at the end.
  const std::int64_t share = std::max((rows + most - 1) / most, 8 * high);
  const std::int64_t rows_a_piece = (share + high - 1) / high * high;
  const std::int64_t pieces = (rows + rows_a_piece - 1) / rows_a_piece;
  shape.grid.y = static_cast<unsigned>(pieces);
  return {rows_a_piece, pieces, shape};
}

/// partials [pieces, cols]: column sums of dy, or of dpre = dy * F's slope where `stores`. Threads of one x share
/// columns; those of one y share rows.
template <class F, class T, bool stores>
__global__ void sum_pieces(const T* reference, const T* dy, T* dpre, acc_t<T>* partials, std::int64_t rows,
                           std::int64_t cols, std::int64_t rows_a_piece, bool packed) {
  using A = acc_t<T>;
  constexpr int count = pack_size<T>;
  HEARTH_SHARED(A, parts, [count][element_block]);
  const int size = packed ? count : 1;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * size;
  const std::int64_t begin = blockIdx.y * rows_a_piece;
  const std::int64_t end = begin + rows_a_piece < rows ? begin + rows_a_piece : rows;
  A sums[count] = {};
  if (column < cols) {
    for (std::int64_t row = begin + threadIdx.y; row < end; row += blockDim.y) {
      const std::int64_t at = row * cols + column;
      Upcast<T, count> d = load_upcast<count>(dy + at, packed);
      if constexpr (stores) {
        const Upcast<T, count> of = load_upcast<count>(reference + at, packed);
        HEARTH_UNROLL
        for (int k = 0; k < count; ++k)
          if (k < size) d.at[k] *= F::slope(of.at[k]);
        store_cast_down(dpre + at, d, packed);
      }
      HEARTH_UNROLL
      for (int k = 0; k < count; ++k) sums[k] += d.at[k];
    }
  }
  const unsigned place = threadIdx.y * blockDim.x + threadIdx.x;
  HEARTH_UNROLL
  for (int k = 0; k < count; ++k) parts[k][place] = sums[k];
  __syncthreads();
  for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
    if (threadIdx.y < half) {
      HEARTH_UNROLL
      for (int k = 0; k < count; ++k) parts[k][place] += parts[k][place + half * blockDim.x];
    }
    __syncthreads();
  }
  if (threadIdx.y == 0 && column < cols)
    for (int k = 0; k < size; ++k) partials[blockIdx.y * cols + column + k] = parts[k][place];
}

constexpr int join_columns = 32, join_rows = 8;

/// db = the pieces' sums: eight running sums a column, one for every eighth piece, joined in order.
template <class A, class D>
__global__ void join_pieces(const A* partials, std::int64_t pieces, std::int64_t cols, D* db) {
  HEARTH_SHARED(A, parts, [join_rows][join_columns]);
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * join_columns + threadIdx.x;
  A sum = 0;
  if (column < cols)
    for (std::int64_t piece = threadIdx.y; piece < pieces; piece += join_rows) sum += partials[piece * cols + column];
  parts[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= cols) return;
  for (int row = 1; row < join_rows; ++row) sum += parts[row][threadIdx.x];
  db[column] = convert_element<D>(sum);
}

/// Column sums of dy into db, and dpre = dy * F's slope where `stores`.
template <class F, class T, bool stores>
void grad_with_sums(cuda::Stream& stream, const char* name, const Tensor& reference, const Tensor& dy,
                    const Tensor& dpre, const Tensor& db) {
  using A = acc_t<T>;
  const std::int64_t cols = columns_of(dy);
  if (cols == 0) return;
  const std::int64_t rows = dy.size() / cols;
  if (rows == 0) return db.fill_(0);
  const T* const gradient = dy.data<T>();
  const T* const other = stores ? reference.data<T>() : nullptr;
  T* const into = stores ? dpre.data<T>() : nullptr;
  const bool packed = packs_fit(gradient, cols) && rows_fit(other, cols) && rows_fit(into, cols);
  const Cut cut = cut_rows(rows, packed ? cols / pack_size<T> : cols);
  const Tensor partials = Tensor::empty({cut.pieces, cols}, dtype_of<A>(), dy.device());
  A* const sums = partials.data<A>();
  launch(stream, name, cut.shape.moving(bytes_of(dy, partials) + (stores ? bytes_of(reference, dpre) : 0)),
         sum_pieces<F, T, stores>, other, gradient, into, sums, rows, cols, cut.rows_a_piece, packed);
  visit_dtype("bias gradient", db.dtype(), Floats{}, [&]<class D>() {
    launch(stream, "bias_grad",
           {blocks_for(cols, join_columns), dim3(join_columns, join_rows), 0, bytes_of(partials, db)},
           join_pieces<A, D>, sums, cut.pieces, cols, db.data<D>());
  });
}

}  // namespace

void fill_rows(cuda::Stream& stream, const Tensor& bias, const Tensor& y) {
  visit_dtype("bias", y.dtype(), Floats{}, [&]<class T>() { launch_bias<T>(stream, "fill_rows", bias, y, false); });
}

void add_bias(cuda::Stream& stream, const Tensor& bias, const Tensor& y) {
  visit_dtype("bias", y.dtype(), Floats{}, [&]<class T>() { launch_bias<T>(stream, "add_bias", bias, y, true); });
}

void activate(cuda::Stream& stream, Activation activation, const Tensor& pre, const Tensor& y) {
  visit_dtype("activation", y.dtype(), Floats{}, [&]<class T>() {
    activations::visit_activation(activation, [&]<class F>(F) {
      cuda::map(stream, "activate", Value<F, acc_t<T>>{}, y.size(), y.data<T>(), static_cast<const T*>(pre.data<T>()));
    });
  });
}

void activate_grad(cuda::Stream& stream, Activation activation, const Tensor& reference, const Tensor& dy,
                   const Tensor& dpre, const Tensor& db) {
  visit_dtype("activation gradient", dy.dtype(), Floats{}, [&]<class T>() {
    activations::visit_activation(activation, [&]<class F>(F) {
      if (db.defined()) return grad_with_sums<F, T, true>(stream, "activate_grad", reference, dy, dpre, db);
      cuda::map(stream, "activate_grad", Slope<F, acc_t<T>>{}, dy.size(), dpre.data<T>(),
                static_cast<const T*>(reference.data<T>()), static_cast<const T*>(dy.data<T>()));
    });
  });
}

void sum_rows(cuda::Stream& stream, const Tensor& dy, const Tensor& db) {
  visit_dtype("bias gradient", dy.dtype(), Floats{}, [&]<class T>() {
    grad_with_sums<activations::NoActivation, T, false>(stream, "sum_rows", Tensor(), dy, Tensor(), db);
  });
}

}  // namespace hearth::kernels
