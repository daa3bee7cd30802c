// SPDX-License-Identifier: Apache-2.0
// A block sums a run of elements, one more block adds the blocks' sums in order; both inputs are read once. Differences
// and squares in acc_t, sums beyond 16 bytes' worth in f64.
#include "ops/loss/mse.h"

#include <algorithm>

#include "ops/row_split.cuh"

namespace hearth::kernels {
namespace {

using namespace cuda;

constexpr int block = 256;
constexpr std::int64_t most_blocks = 1024;

template <class T, int width>
__global__ void __launch_bounds__(block)
    squared_error_parts(const T* x, const T* target, std::int64_t n, std::int64_t each, double* partial) {
  using P = acc_t<T>;
  const std::int64_t begin = blockIdx.x * each, count = n - begin < each ? n - begin : each;
  double sum = 0;
  each_column<width>(static_cast<int>(threadIdx.x), block, count, [&](std::int64_t i) {
    P a[width], b[width], part = 0;
    load_unit(x + begin + i, a);
    load_unit(target + begin + i, b);
    HEARTH_UNROLL
    for (int k = 0; k < width; ++k) part += (a[k] - b[k]) * (a[k] - b[k]);
    sum += static_cast<double>(part);
  });
  sum = block_reduce<Sum>(sum, 0.0);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

template <class P>
__global__ void __launch_bounds__(block) mean_of_parts(const double* partial, std::int64_t parts, double n, P* y) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < parts; i += block) sum += partial[i];
  sum = block_reduce<Sum>(sum, 0.0);
  if (threadIdx.x == 0) *y = static_cast<P>(sum / n);
}

template <class T, int width>
__global__ void __launch_bounds__(block)
    scaled_difference(const T* x, const T* target, const acc_t<T>* dy, double factor, std::int64_t n, T* dx) {
  using P = acc_t<T>;
  const P scale = static_cast<P>(static_cast<double>(*dy) * factor);
  for (std::int64_t i = global_thread() * width; i < n; i += global_threads() * width) {
    P a[width], b[width];
    load_unit(x + i, a);
    load_unit(target + i, b);
    HEARTH_UNROLL
    for (int k = 0; k < width; ++k) a[k] = (a[k] - b[k]) * scale;
    store_unit(dx + i, a);
  }
}

}  // namespace

void squared_error(cuda::Stream& stream, const Tensor& x, const Tensor& target, const Tensor& y) {
  const std::int64_t n = x.size();
  // Multiples of 16 elements, so that every run starts aligned.
  const std::int64_t each = std::max<std::int64_t>((n + most_blocks - 1) / most_blocks, 4096) / 16 * 16 + 16;
  const std::int64_t parts = (n + each - 1) / each;
  const Tensor partial = Tensor::empty({parts}, DType::f64, x.device());
  visit_rows("mse", x.dtype(), n, {x.bytes(), target.bytes()}, [&]<class T, int width>() {
    launch(stream, "mse", {blocks_for(parts, 1), block}, squared_error_parts<T, width>, x.data<T>(), target.data<T>(),
           n, each, partial.data<double>());
    launch(stream, "mse", {1, block}, mean_of_parts<acc_t<T>>, partial.data<double>(), parts, static_cast<double>(n),
           y.data<acc_t<T>>());
  });
}

void squared_error_grad(cuda::Stream& stream, const Tensor& x, const Tensor& target, const Tensor& dy, double factor,
                        const Tensor& dx) {
  const std::int64_t n = x.size();
  visit_rows("mse", x.dtype(), n, {x.bytes(), target.bytes(), dx.bytes()}, [&]<class T, int width>() {
    launch(stream, "mse_grad", {blocks_for(n, block * width, 1 << 16), block}, scaled_difference<T, width>, x.data<T>(),
           target.data<T>(), dy.data<acc_t<T>>(), factor, n, dx.data<T>());
  });
}

}  // namespace hearth::kernels
