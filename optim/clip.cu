// SPDX-License-Identifier: Apache-2.0
// Reductions over the flat gradients: a block reduces a chunk of fixed size in f64, one more launch joins the chunks in
// a fixed order. Traffic: one read.
#include <cmath>

#include "core/cuda/elementwise.h"
#include "optim/clip.h"

namespace hearth::kernels {
namespace {

using namespace cuda;

constexpr std::int64_t chunk_elements = 16384;
constexpr int join_block = 1024;

struct SquareOf {
  using Join = Sum;
  double scale;
  __device__ double operator()(double x) const {
    const double scaled = x * scale;
    return scaled * scaled;
  }
};

struct MagnitudeOf {
  using Join = Largest;
  __device__ double operator()(double x) const { return x < 0 ? -x : x; }
};

/// partials[block] = the chunk's elements, as f makes them, joined. `packed` where x is aligned.
template <class F, class T>
__global__ void reduce_chunks(F f, const T* x, std::int64_t n, bool packed, double* partials) {
  using Join = typename F::Join;
  constexpr int count = pack_size<T>;
  const std::int64_t begin = blockIdx.x * chunk_elements;
  const std::int64_t length = n - begin < chunk_elements ? n - begin : chunk_elements;
  const std::int64_t packs = packed ? length / count : 0;
  double result = 0;
  for (std::int64_t i = threadIdx.x; i < packs; i += blockDim.x) {
    const Upcast<T, count> wide = load_upcast<count>(x + begin + i * count, true);
    HEARTH_UNROLL
    for (int k = 0; k < count; ++k) result = Join::join(result, f(wide.at[k]));
  }
  for (std::int64_t i = packs * count + threadIdx.x; i < length; i += blockDim.x)
    result = Join::join(result, f(x[begin + i]));
  result = block_reduce<Join>(result, 0.0);
  if (threadIdx.x == 0) partials[blockIdx.x] = result;
}

/// result = all partials joined, by one block.
template <class Join>
__global__ void __launch_bounds__(join_block) join_chunks(const double* partials, std::int64_t n, double* result) {
  double joined = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) joined = Join::join(joined, partials[i]);
  joined = block_reduce<Join>(joined, 0.0);
  if (threadIdx.x == 0) *result = joined;
}

/// result, f64 [], = f of all elements of x joined; 0 if there are none.
template <class F>
void reduce(cuda::Stream& stream, const char* name, F f, const Tensor& x, const Tensor& result) {
  const std::int64_t chunks = blocks_for(x.size(), chunk_elements);
  const Tensor partials = Tensor::empty({chunks}, DType::f64, x.device());
  visit_dtype(name, x.dtype(), FullFloats{}, [&]<class T>() {
    const T* const from = x.data<T>();
    launch(stream, name, {static_cast<unsigned>(chunks), element_block, 0, bytes_of(x, partials)}, reduce_chunks<F, T>,
           f, from, x.size(), is_aligned(from), partials.data<double>());
  });
  launch(stream, name, {1, join_block, 0, bytes_of(partials, result)}, join_chunks<typename F::Join>,
         partials.data<double>(), chunks, result.data<double>());
}

__global__ void clip_one(const double* sum, double max_norm, double* norm, double* grad_scale) {
  const double length = std::sqrt(*sum);
  *norm = length;
  const double scale = max_norm / (length + 1e-6);
  // NaN passes through.
  *grad_scale *= scale > 1.0 ? 1.0 : scale;
}

}  // namespace

void clip_by_sum(cuda::Stream& stream, const Tensor& sum, double max_norm, const Tensor& norm, double* grad_scale) {
  launch(stream, "clip", {1, 1, 0, bytes_of(sum, norm)}, clip_one, sum.data<double>(), max_norm, norm.data<double>(),
         grad_scale);
}

void sum_of_squares(cuda::Stream& stream, const Tensor& x, double scale, const Tensor& sum) {
  reduce(stream, "sum_of_squares", SquareOf{scale}, x, sum);
}

double sum_of_squares(cuda::Stream& stream, const Tensor& x, double scale) {
  const Tensor sum = Tensor::empty({}, DType::f64, x.device());
  sum_of_squares(stream, x, scale, sum);
  return sum.item();
}

double largest_magnitude(cuda::Stream& stream, const Tensor& x) {
  const Tensor largest = Tensor::empty({}, DType::f64, x.device());
  reduce(stream, "largest_magnitude", MagnitudeOf{}, x, largest);
  return largest.item();
}

}  // namespace hearth::kernels
