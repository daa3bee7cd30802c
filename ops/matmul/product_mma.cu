// SPDX-License-Identifier: Apache-2.0
// The matrix product of 16-bit types on tensor cores: tiles of 128 x 128, f32 sums.
#include "core/cuda/kernel.h"
#include "ops/matmul/activated_store.cuh"
#include "ops/matmul/mma_tile.cuh"
#include "ops/matmul/product.h"

namespace hearth::kernels {
namespace {

struct Arguments {
  std::int64_t m, n, k;
  std::int64_t a_row_step, a_depth_step;  ///< of op(A) [m, k]
  std::int64_t b_row_step, b_depth_step;  ///< of op(B)^T [n, k]
  std::int64_t a_matrix, b_matrix;        ///< elements from one matrix of the batch to the next
  std::int64_t batch, row_tiles, column_tiles, tiles;
  tile::Split split;
};

/// A block makes one tile of one part of one matrix of the batch, and goes on with the next of the grid's stride.
/// Reads each element of A n/128 times and of B m/128 times, mostly from the caches; writes C once.
template <class T, class Into>
__global__ void __launch_bounds__(mma_tile::threads, 2)
    multiply_mma(HEARTH_GRID_CONSTANT(Arguments) p, const T* a, const T* b, Into store) {
  T* const memory = cuda::dynamic_shared<T>();
  for (std::int64_t at = blockIdx.x; at < p.tiles; at += gridDim.x) {
    const std::int64_t column = at % p.column_tiles * mma_tile::side;
    const std::int64_t row = at / p.column_tiles % p.row_tiles * mma_tile::side;
    const std::int64_t matrix = at / p.column_tiles / p.row_tiles;
    const std::int64_t part = matrix / p.batch, item = matrix % p.batch;
    const mma_tile::Stored<T> left{a + item * p.a_matrix, p.m, p.a_row_step, p.a_depth_step};
    const mma_tile::Stored<T> right{b + item * p.b_matrix, p.n, p.b_row_step, p.b_depth_step};
    const std::int64_t begin = part * p.split.size;
    const std::int64_t end = begin + p.split.size < p.k ? begin + p.split.size : p.k;
    float sum[mma_tile::row_fragments][mma_tile::column_fragments][4] = {};
    mma_tile::multiply(left, right, row, column, begin, end, memory, sum);
    mma_tile::visit_own(sum, row, column, p.m, p.n,
                        [&](std::int64_t r, std::int64_t c, float first, float second, bool both) {
                          store.pair((matrix * p.m + r) * p.n + c, c, first, second, both);
                        });
  }
}

Arguments arguments_of(const MatmulProblem& problem) {
  Arguments p{};
  p.m = problem.m;
  p.n = problem.n;
  p.k = problem.k;
  p.a_row_step = problem.transpose_a ? 1 : p.k;
  p.a_depth_step = problem.transpose_a ? p.m : 1;
  p.b_row_step = problem.transpose_b ? p.k : 1;
  p.b_depth_step = problem.transpose_b ? 1 : p.n;
  p.a_matrix = p.m * p.k;
  p.b_matrix = problem.batch_stride_b == 0 ? 0 : p.k * p.n;
  p.batch = problem.batch;
  p.row_tiles = (p.m + mma_tile::side - 1) / mma_tile::side;
  p.column_tiles = (p.n + mma_tile::side - 1) / mma_tile::side;
  const std::int64_t tiles = p.row_tiles * p.column_tiles * p.batch;
  p.split = tile::split_of(tiles, p.k, mma_tile::depth);
  p.tiles = tiles * p.split.count;
  return p;
}

template <class T, class Into>
void multiply_into(cuda::Stream& stream, const MatmulProblem& problem, const ProductOperands& o, const Into& store) {
  const Arguments p = arguments_of(problem);
  const cuda::LaunchShape shape{cuda::blocks_for(p.tiles, 1), mma_tile::threads, mma_tile::shared_bytes};
  if (p.split.count == 1)
    return cuda::launch(stream, "matmul mma", shape, multiply_mma<T, Into>, p, o.a.data<T>(), o.b.data<T>(), store);
  const std::int64_t elements = problem.batch * p.m * p.n;
  const Tensor parts = Tensor::empty({p.split.count, elements}, DType::f32, o.c.device());
  cuda::launch(stream, "matmul mma parts", shape, multiply_mma<T, tile::Store<float>>, p, o.a.data<T>(), o.b.data<T>(),
               tile::Store<float>{parts.data<float>(), nullptr, false, false});
  cuda::launch(stream, "matmul sum", {cuda::blocks_for(elements, 256, 1 << 16), 256},
               tile::sum_parts<typename Into::Element, Into>, static_cast<const float*>(parts.data<float>()),
               p.split.count, elements, p.n, store);
}

template <class T, class TC>
void multiply(cuda::Stream& stream, const MatmulProblem& problem, const ProductOperands& o) {
  const bool bias_as_c = o.bias.defined() && o.bias.dtype() == dtype_of<TC>();
  const Tensor row = o.bias.defined() && !bias_as_c ? o.bias.to(DType::f32) : o.bias;
  const tile::Store<TC> store{o.c.data<TC>(), row.defined() ? row.bytes() : nullptr, !bias_as_c, problem.accumulate};
  if constexpr (std::is_same_v<T, TC>)
    if (problem.activation != Activation::none)
      return multiply_into<T>(stream, problem, o, tile::activated(store, problem, o));
  multiply_into<T>(stream, problem, o, store);
}

template <class T>
void multiply_narrow(cuda::Stream& stream, const MatmulProblem& problem, const ProductOperands& o) {
  if (problem.c == DType::f32) return multiply<T, float>(stream, problem, o);
  multiply<T, T>(stream, problem, o);
}

}  // namespace

void product_mma(cuda::Stream& stream, const MatmulProblem& problem, const ProductOperands& operands) {
  if (problem.a == DType::bf16) return multiply_narrow<bf16>(stream, problem, operands);
  multiply_narrow<f16>(stream, problem, operands);
}

}  // namespace hearth::kernels
