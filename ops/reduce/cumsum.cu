// SPDX-License-Identifier: Apache-2.0
// A block a row, in rounds of one element a thread: sums within a warp by shuffles, then those of the warps before,
// then the carry of the rounds before. The order depends on the shape alone.
#include "ops/reduce/cumsum.h"

#include "core/cuda/kernel.h"
#include "core/dtype.h"

namespace hearth::kernels {
namespace {

constexpr int threads = 256;
constexpr int warps = threads / cuda::warp_size;

/// What sums of T are kept in, integers without a sign: they wrap around.
template <class T>
using Total = std::conditional_t<std::is_same_v<T, std::int64_t>, unsigned long long, double>;

template <class T>
__device__ __forceinline__ Total<T> read_total(T value) {
  if constexpr (std::is_same_v<T, std::int64_t>)
    return static_cast<Total<T>>(value);
  else
    return static_cast<double>(cuda::upcast(value));
}

template <class T>
__device__ __forceinline__ T total_as(Total<T> total) {
  if constexpr (std::is_same_v<T, std::int64_t>)
    return static_cast<std::int64_t>(total);
  else
    return cuda::cast_down<T>(static_cast<acc_t<T>>(total));
}

template <class T>
__global__ void __launch_bounds__(threads)
    sum_along_rows(const T* x, std::int64_t rows, std::int64_t cols, bool reverse, T* y) {
  using S = Total<T>;
  HEARTH_SHARED(S, warp_sums, [warps]);
  const int t = static_cast<int>(threadIdx.x), warp = t / cuda::warp_size;
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    S carry = 0;
    for (std::int64_t first = 0; first < cols; first += threads) {
      const std::int64_t c = first + t, at = row * cols + (reverse ? cols - 1 - c : c);
      S sum = c < cols ? read_total(x[at]) : S{0};
      for (int step = 1; step < cuda::warp_size; step *= 2) {
        const S below = __shfl_up_sync(cuda::all_lanes, sum, step);
        if (cuda::lane_id() >= step) sum += below;
      }
      if (cuda::lane_id() == cuda::warp_size - 1) warp_sums[warp] = sum;
      __syncthreads();
      S before = carry;
      for (int w = 0; w < warps; ++w) {
        if (w == warp) before = carry;
        carry += warp_sums[w];
      }
      if (c < cols) y[at] = total_as<T>(before + sum);
      __syncthreads();
    }
  }
}

}  // namespace

void cumsum(cuda::Stream& stream, const Tensor& x, std::int64_t rows, std::int64_t cols, bool reverse,
            const Tensor& y) {
  visit_dtype("cumsum", x.dtype(), Types<float, double, f16, bf16, std::int64_t>{}, [&]<class T>() {
    cuda::launch(stream, "cumsum", {cuda::blocks_for(rows, 1, 1 << 16), threads, 0, cuda::bytes_of(x, y)},
                 sum_along_rows<T>, x.data<T>(), rows, cols, reverse, y.data<T>());
  });
}

}  // namespace hearth::kernels
