// SPDX-License-Identifier: Apache-2.0
// The portable matrix product on the device: tiles of 64 x 64 in f32 (f64 for f64), every type and transposition.
#include "core/cuda/kernel.h"
#include "ops/matmul/activated_store.cuh"
#include "ops/matmul/product.h"
#include "ops/matmul/tile.cuh"

namespace hearth::kernels {
namespace {

struct Arguments {
  const void* a;
  const void* b;
  std::int64_t m, n, k;
  std::int64_t a_row_step, a_depth_step;  ///< of op(A) [m, k]
  std::int64_t b_row_step, b_depth_step;  ///< of op(B)^T [n, k]
  std::int64_t a_matrix, b_matrix;        ///< elements from one matrix of the batch to the next
  std::int64_t row_tiles, column_tiles, tiles;
  tile::Split split;
};

/// A block makes one tile of one part of one matrix of the batch, and goes on with the next of the grid's stride.
/// Reads each element of A n/64 times and of B m/64 times, mostly from the caches.
template <class TA, class TB, class Into>
__global__ void __launch_bounds__(tile::threads)
    multiply_tiles(HEARTH_GRID_CONSTANT(Arguments) p, Into store, std::int64_t batch) {
  using A = acc_t<typename Into::Element>;
  for (std::int64_t at = blockIdx.x; at < p.tiles; at += gridDim.x) {
    const std::int64_t column = at % p.column_tiles * tile::side;
    const std::int64_t row = at / p.column_tiles % p.row_tiles * tile::side;
    const std::int64_t matrix = at / p.column_tiles / p.row_tiles;
    const std::int64_t part = matrix / batch, item = matrix % batch;
    const tile::Stored<TA> a{static_cast<const TA*>(p.a) + item * p.a_matrix, p.m, p.a_row_step, p.a_depth_step};
    const tile::Stored<TB> b{static_cast<const TB*>(p.b) + item * p.b_matrix, p.n, p.b_row_step, p.b_depth_step};
    const std::int64_t begin = part * p.split.size;
    const std::int64_t end = begin + p.split.size < p.k ? begin + p.split.size : p.k;
    A sum[tile::share][tile::share] = {};
    tile::multiply(a, b, row, column, begin, end, sum);
    tile::visit_own(sum, row, column, p.m, p.n,
                    [&](std::int64_t r, std::int64_t c, A value) { store((matrix * p.m + r) * p.n + c, c, value); });
  }
}

Arguments arguments_of(const MatmulProblem& problem, const Tensor& a, const Tensor& b) {
  Arguments p{};
  p.a = a.bytes();
  p.b = b.bytes();
  p.m = problem.m;
  p.n = problem.n;
  p.k = problem.k;
  p.a_row_step = problem.transpose_a ? 1 : p.k;
  p.a_depth_step = problem.transpose_a ? p.m : 1;
  p.b_row_step = problem.transpose_b ? p.k : 1;
  p.b_depth_step = problem.transpose_b ? 1 : p.n;
  p.a_matrix = p.m * p.k;
  p.b_matrix = problem.batch_stride_b == 0 ? 0 : p.k * p.n;
  p.row_tiles = (p.m + tile::side - 1) / tile::side;
  p.column_tiles = (p.n + tile::side - 1) / tile::side;
  const std::int64_t tiles = p.row_tiles * p.column_tiles * problem.batch;
  p.split = tile::split_of(tiles, p.k);
  p.tiles = tiles * p.split.count;
  return p;
}

template <class TA, class TB, class Into>
void multiply_into(cuda::Stream& stream, const MatmulProblem& problem, const ProductOperands& o, const Into& store) {
  using A = acc_t<typename Into::Element>;
  const Arguments p = arguments_of(problem, o.a, o.b);
  const cuda::LaunchShape shape{cuda::blocks_for(p.tiles, 1), tile::threads};
  if (p.split.count == 1)
    return cuda::launch(stream, "matmul", shape, multiply_tiles<TA, TB, Into>, p, store, problem.batch);
  const std::int64_t elements = problem.batch * p.m * p.n;
  const Tensor parts = Tensor::empty({p.split.count, elements}, dtype_of<A>(), o.c.device());
  cuda::launch(stream, "matmul parts", shape, multiply_tiles<TA, TB, tile::Store<A>>, p,
               tile::Store<A>{parts.data<A>(), nullptr, false, false}, problem.batch);
  cuda::launch(stream, "matmul sum", {cuda::blocks_for(elements, 256), 256},
               tile::sum_parts<typename Into::Element, Into>, static_cast<const A*>(parts.data<A>()), p.split.count,
               elements, p.n, store);
}

template <class TA, class TB, class TC>
void multiply(cuda::Stream& stream, const MatmulProblem& problem, const ProductOperands& o) {
  const bool bias_as_c = o.bias.defined() && o.bias.dtype() == dtype_of<TC>();
  const Tensor row = o.bias.defined() && !bias_as_c ? o.bias.to(dtype_of<acc_t<TC>>()) : o.bias;
  const tile::Store<TC> store{o.c.data<TC>(), row.defined() ? row.bytes() : nullptr, !bias_as_c, problem.accumulate};
  if constexpr (std::is_same_v<TA, TC>)
    if (problem.activation != Activation::none)
      return multiply_into<TA, TB>(stream, problem, o, tile::activated(store, problem, o));
  multiply_into<TA, TB>(stream, problem, o, store);
}

/// 16-bit operands: b and c may be f32, though not both.
template <class T>
void multiply_narrow(cuda::Stream& stream, const MatmulProblem& problem, const ProductOperands& o) {
  if (problem.b == DType::f32) return multiply<T, float, T>(stream, problem, o);
  if (problem.c == DType::f32) return multiply<T, T, float>(stream, problem, o);
  multiply<T, T, T>(stream, problem, o);
}

}  // namespace

void product_tiles(cuda::Stream& stream, const MatmulProblem& problem, const ProductOperands& operands) {
  switch (problem.a) {
    case DType::f64:
      return multiply<double, double, double>(stream, problem, operands);
    case DType::f16:
      return multiply_narrow<f16>(stream, problem, operands);
    case DType::bf16:
      return multiply_narrow<bf16>(stream, problem, operands);
    default:
      return multiply<float, float, float>(stream, problem, operands);
  }
}

}  // namespace hearth::kernels
