// SPDX-License-Identifier: Apache-2.0
// The matrix product of 16-bit types on tensor cores: tiles of 128 x 128, f32 sums.
#include "core/cuda/kernel.h"
#include "ops/matmul/cuda/mma_tile.cuh"
#include "ops/matmul/cuda/product.cuh"

namespace hearth::kernels {
namespace {

/// A block makes one tile of one part of one matrix of the batch, and goes on with the next of the grid's stride.
/// Reads each element of A n/128 times and of B m/128 times, mostly from the caches; writes C once.
template <class T, class Into>
__global__ void __launch_bounds__(mma_tile::threads, 2)
    multiply_mma(HEARTH_GRID_CONSTANT(tile::ProductTiles) p, const T* a, const T* b, Into store) {
  T* const memory = cuda::dynamic_shared<T>();
  for (std::int64_t at = blockIdx.x; at < p.count; at += gridDim.x) {
    const tile::ProductTile z(p, mma_tile::side, at);
    const mma_tile::Stored<T> left{a + z.item * p.a_matrix, p.m, p.a_row_step, p.a_depth_step};
    const mma_tile::Stored<T> right{b + z.item * p.b_matrix, p.n, p.b_row_step, p.b_depth_step};
    float sum[mma_tile::row_fragments][mma_tile::column_fragments][4] = {};
    mma_tile::multiply(left, right, z.row, z.column, z.begin, z.end, memory, sum);
    mma_tile::visit_own(sum, z.row, z.column, p.m, p.n,
                        [&](std::int64_t r, std::int64_t c, float first, float second, bool both) {
                          store.pair((z.matrix * p.m + r) * p.n + c, c, first, second, both);
                        });
  }
}

template <class T, class TC>
void multiply(cuda::Stream& stream, const MatmulProblem& problem, const ProductOperands& o) {
  const tile::ProductTiles p = tile::tiles_of(problem, mma_tile::side, mma_tile::depth);
  const std::int64_t in =
      cuda::bytes_of(o.a, o.b, o.bias, o.pre, o.a_sums) + (problem.accumulate ? cuda::bytes_of(o.c) : 0);
  const cuda::LaunchShape shape{cuda::blocks_for(p.count, 1), mma_tile::threads, mma_tile::shared_bytes};
  tile::with_store<TC, std::is_same_v<T, TC>>(problem, o, [&](const auto& store) {
    tile::launch_split(
        stream, {"matmul mma", "matmul mma parts", "matmul sum"}, p.split, o.c, p.n, store,
        [&]<class Into>(const char* name, const Into& into, std::int64_t part_elements) {
          cuda::launch(stream, name,
                       shape.moving(tile::moved_by(in, p.split, o.c, part_elements, sizeof(typename Into::Element))),
                       multiply_mma<T, Into>, p, o.a.data<T>(), o.b.data<T>(), into);
        });
  });
}

template <class T>
void multiply_low_precision(cuda::Stream& stream, const MatmulProblem& problem, const ProductOperands& o) {
  if (problem.c == DType::f32) return multiply<T, float>(stream, problem, o);
  multiply<T, T>(stream, problem, o);
}

}  // namespace

void product_mma(cuda::Stream& stream, const MatmulProblem& problem, const ProductOperands& operands) {
  if (problem.a == DType::bf16) return multiply_low_precision<bf16>(stream, problem, operands);
  multiply_low_precision<f16>(stream, problem, operands);
}

}  // namespace hearth::kernels
