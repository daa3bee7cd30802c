// SPDX-License-Identifier: Apache-2.0
// The portable matrix product on the device: tiles of 64 x 64 in f32 (f64 for f64), every type and transposition.
#include "core/cuda/kernel.h"
#include "ops/matmul/cuda/product.cuh"

namespace hearth::kernels {
namespace {

/// A block makes one tile of one part of one matrix of the batch, and goes on with the next of the grid's stride.
/// Reads each element of A n/64 times and of B m/64 times, mostly from the caches.
template <class TA, class TB, class Into>
__global__ void __launch_bounds__(tile::threads)
    multiply_tiles(HEARTH_GRID_CONSTANT(tile::ProductTiles) p, const TA* left, const TB* right, Into store) {
  using A = acc_t<typename Into::Element>;
  for (std::int64_t at = blockIdx.x; at < p.count; at += gridDim.x) {
    const tile::ProductTile z(p, tile::side, at);
    const tile::Stored<TA> a{left + z.item * p.a_matrix, p.m, p.a_row_step, p.a_depth_step};
    const tile::Stored<TB> b{right + z.item * p.b_matrix, p.n, p.b_row_step, p.b_depth_step};
    A sum[tile::share][tile::share] = {};
    tile::multiply(a, b, z.row, z.column, z.begin, z.end, sum);
    tile::visit_own(sum, z.row, z.column, p.m, p.n,
                    [&](std::int64_t r, std::int64_t c, A value) { store((z.matrix * p.m + r) * p.n + c, c, value); });
  }
}

template <class TA, class TB, class TC>
void multiply(cuda::Stream& stream, const MatmulProblem& problem, const ProductOperands& o) {
  const tile::ProductTiles p = tile::tiles_of(problem, tile::side, tile::depth);
  const std::int64_t in =
      cuda::bytes_of(o.a, o.b, o.bias, o.pre, o.a_sums) + (problem.accumulate ? cuda::bytes_of(o.c) : 0);
  const cuda::LaunchShape shape{cuda::blocks_for(p.count, 1), tile::threads};
  tile::with_store<TC, std::is_same_v<TA, TC>>(problem, o, [&](const auto& store) {
    tile::launch_split(
        stream, {"matmul", "matmul parts", "matmul sum"}, p.split, o.c, p.n, store,
        [&]<class Into>(const char* name, const Into& into, std::int64_t part_elements) {
          cuda::launch(stream, name,
                       shape.moving(tile::moved_by(in, p.split, o.c, part_elements, sizeof(typename Into::Element))),
                       multiply_tiles<TA, TB, Into>, p, o.a.data<TA>(), o.b.data<TB>(), into);
        });
  });
}

/// 16-bit operands: b and c may be f32, though not both.
template <class T>
void multiply_low_precision(cuda::Stream& stream, const MatmulProblem& problem, const ProductOperands& o) {
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
      return multiply_low_precision<f16>(stream, problem, operands);
    case DType::bf16:
      return multiply_low_precision<bf16>(stream, problem, operands);
    default:
      return multiply<float, float, float>(stream, problem, operands);
  }
}

}  // namespace hearth::kernels
