// SPDX-License-Identifier: Apache-2.0
// Forward: a block a group of an image, which it reads from memory once and twice more from the cache. Gradient: a
// first launch sums by image and channel, a second makes dx, a block a group, and a third adds the images up for the
// parameters. Runs of values are summed in P and joined in f64, in a fixed order.
// Reference: group_norm_cpu.cpp.
#include "ops/norm/group_norm.h"

#include <cmath>

#include "core/cuda/kernel.h"
#include "core/dtype.h"
#include "ops/device/column_tile.cuh"

namespace hearth::kernels {
namespace {

using namespace cuda;

constexpr int threads = 256;
constexpr std::int64_t max_blocks = 1 << 16;

/// A long sum: 64 values in P at a time, those in f64.
template <class P>
struct LongSum {
  double total = 0;
  P part = 0;
  int held = 0;

  __device__ void add(P value) {
    part += value;
    if (++held < 64) return;
    total += static_cast<double>(part);
    part = 0;
    held = 0;
  }
  __device__ double value() const { return total + static_cast<double>(part); }
};

/// How many neighbouring threads share a pixel's channels of a group: a power of two.
int threads_across(std::int64_t channels) {
  int across = 1;
  while (across < threads && across < channels) across *= 2;
  return across;
}

/// f(offset from the group's first element, channel in the group) for this thread's elements of a group.
template <class F>
__device__ __forceinline__ void each_element(const GroupedImages& s, int across, F&& f) {
  const int thread = static_cast<int>(threadIdx.x);
  for (std::int64_t pixel = thread / across; pixel < s.pixels; pixel += threads / across)
    for (std::int64_t c = thread & (across - 1); c < s.channels; c += across) f(pixel * s.width() + c, c);
}

/// Where group `at` of all images begins.
__device__ __forceinline__ std::int64_t begin_of(const GroupedImages& s, std::int64_t at) {
  return at / s.groups * s.pixels * s.width() + at % s.groups * s.channels;
}

template <class T>
__global__ void __launch_bounds__(threads)
    normalize_groups(GroupedImages s, int across, const T* images, const acc_t<T>* gamma, const acc_t<T>* beta,
                     double eps, T* results, acc_t<T>* means, acc_t<T>* rstds) {
  using P = acc_t<T>;
  const double count = static_cast<double>(s.pixels) * static_cast<double>(s.channels);
  for (std::int64_t at = blockIdx.x; at < s.images * s.groups; at += gridDim.x) {
    const std::int64_t begin = begin_of(s, at), first_channel = at % s.groups * s.channels;
    const T* const x = images + begin;
    T* const y = results + begin;
    // From the first value on, so that a large mean does not take the sum's digits.
    const P first = upcast(x[0]);
    LongSum<P> sum;
    each_element(s, across, [&](std::int64_t i, std::int64_t) { sum.add(upcast(x[i]) - first); });
    const P centre = static_cast<P>(static_cast<double>(first) + block_reduce<Sum>(sum.value(), 0.0) / count);
    LongSum<P> rests, squares;
    each_element(s, across, [&](std::int64_t i, std::int64_t) {
      const P d = upcast(x[i]) - centre;
      rests.add(d);
      squares.add(d * d);
    });
    // What rounding left in the centre is taken out of both.
    const double rest = block_reduce<Sum>(rests.value(), 0.0) / count;
    const double spread = block_reduce<Sum>(squares.value(), 0.0) / count - rest * rest;
    const P mean = static_cast<P>(static_cast<double>(centre) + rest);
    const P rstd = static_cast<P>(1.0 / std::sqrt((spread < 0 ? 0.0 : spread) + eps));
    if (threadIdx.x == 0) {
      means[at] = mean;
      rstds[at] = rstd;
    }
    each_element(s, across, [&](std::int64_t i, std::int64_t c) {
      y[i] = cast_down<T>((upcast(x[i]) - mean) * rstd * gamma[first_channel + c] + beta[first_channel + c]);
    });
  }
}

/// partial [images, 2, C]: the sums of dy, and of dy times normalised x, over the pixels.
template <class T>
__global__ void __launch_bounds__(tile_block)
    sum_channels(GroupedImages s, ColumnTiles cut, const T* x, const T* dy, const acc_t<T>* means,
                 const acc_t<T>* rstds, double* partial) {
  using P = acc_t<T>;
  HEARTH_SHARED(double, shared, [tile_block * 2]);
  for (std::int64_t block = blockIdx.x; block < s.images * cut.tiles; block += gridDim.x) {
    const std::int64_t image = block / cut.tiles;
    const TilePlace place(cut, block % cut.tiles);
    const bool inside = place.unit < cut.units;
    const std::int64_t group = image * s.groups + (inside ? place.unit : 0) / s.channels;
    const P mean = means[group], rstd = rstds[group];
    LongSum<P> sum, product;
    for (std::int64_t row = place.first_row; row < place.end_row; row += place.down) {
      const std::int64_t at = (image * s.pixels + row) * s.width() + place.unit;
      const P d = upcast(dy[at]);
      sum.add(d);
      product.add(d * ((upcast(x[at]) - mean) * rstd));
    }
    double sums[2] = {sum.value(), product.value()};
    sum_down<2>(sums, shared, cut.across);
    if (inside && static_cast<int>(threadIdx.x) < cut.across) {
      partial[2 * image * s.width() + place.unit] = sums[0];
      partial[(2 * image + 1) * s.width() + place.unit] = sums[1];
    }
  }
}

/// dx, which may be dy.
template <class T>
__global__ void __launch_bounds__(threads)
    group_gradient(GroupedImages s, int across, const T* images, const T* gradients, const acc_t<T>* gamma,
                   const acc_t<T>* means, const acc_t<T>* rstds, const double* partial, T* results) {
  using P = acc_t<T>;
  const double count = static_cast<double>(s.pixels) * static_cast<double>(s.channels);
  for (std::int64_t at = blockIdx.x; at < s.images * s.groups; at += gridDim.x) {
    const std::int64_t begin = begin_of(s, at), first_channel = at % s.groups * s.channels;
    const T *const x = images + begin, *const dy = gradients + begin;
    T* const dx = results + begin;
    const P* const scale = gamma + first_channel;
    const double* const sums = partial + 2 * (at / s.groups) * s.width() + first_channel;
    double sum = 0, product = 0;
    for (std::int64_t c = threadIdx.x; c < s.channels; c += threads) {
      sum += static_cast<double>(scale[c]) * sums[c];
      product += static_cast<double>(scale[c]) * sums[s.width() + c];
    }
    const P a = static_cast<P>(block_reduce<Sum>(sum, 0.0) / count);
    const P b = static_cast<P>(block_reduce<Sum>(product, 0.0) / count);
    const P mean = means[at], rstd = rstds[at];
    each_element(s, across, [&](std::int64_t i, std::int64_t c) {
      const P normal = (upcast(x[i]) - mean) * rstd;
      dx[i] = cast_down<T>(rstd * (upcast(dy[i]) * scale[c] - a - normal * b));
    });
  }
}

/// The gradients of the parameters, each of which may be null.
template <class P>
__global__ void add_images(GroupedImages s, const double* partial, P* d_gamma, P* d_beta) {
  for (std::int64_t c = global_thread(); c < s.width(); c += global_threads()) {
    double sum = 0, product = 0;
    for (std::int64_t image = 0; image < s.images; ++image) {
      sum += partial[2 * image * s.width() + c];
      product += partial[(2 * image + 1) * s.width() + c];
    }
    if (d_beta != nullptr) d_beta[c] = static_cast<P>(sum);
    if (d_gamma != nullptr) d_gamma[c] = static_cast<P>(product);
  }
}

}  // namespace

void group_norm(cuda::Stream& stream, const GroupedImages& s, const Tensor& x, const GroupNormalized& o) {
  visit_dtype("group_norm", x.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    launch(
        stream, "group_norm",
        {blocks_for(s.images * s.groups, 1, max_blocks), threads, 0, bytes_of(x, o.gamma, o.beta, o.y, o.mean, o.rstd)},
        normalize_groups<T>, s, threads_across(s.channels), x.data<T>(), o.gamma.data<P>(), o.beta.data<P>(), o.eps,
        o.y.data<T>(), o.mean.data<P>(), o.rstd.data<P>());
  });
}

void group_norm_grad(cuda::Stream& stream, const GroupedImages& s, const Tensor& x, const GroupNormGradient& g) {
  const Tensor partial = Tensor::empty({s.images, 2, s.width()}, DType::f64, x.device());
  const ColumnTiles cut = cut_columns(s.pixels, s.width(), 1, 1);
  visit_dtype("group_norm", x.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    const auto values = [](const Tensor& gradient) { return gradient.defined() ? gradient.data<P>() : nullptr; };
    launch(stream, "group_norm_grad_sums",
           {blocks_for(s.images * cut.tiles, 1, max_blocks), tile_block, 0, bytes_of(x, g.dy, g.mean, g.rstd, partial)},
           sum_channels<T>, s, cut, x.data<T>(), g.dy.data<T>(), g.mean.data<P>(), g.rstd.data<P>(),
           partial.data<double>());
    if (g.dx.defined())
      launch(stream, "group_norm_grad",
             {blocks_for(s.images * s.groups, 1, max_blocks), threads, 0,
              bytes_of(x, g.dy, g.gamma, g.mean, g.rstd, partial, g.dx)},
             group_gradient<T>, s, threads_across(s.channels), x.data<T>(), g.dy.data<T>(), g.gamma.data<P>(),
             g.mean.data<P>(), g.rstd.data<P>(), partial.data<double>(), g.dx.data<T>());
    if (g.d_gamma.defined() || g.d_beta.defined())
      launch(stream, "group_norm_grad_images",
             {blocks_for(s.width(), threads, max_blocks), threads, 0, bytes_of(partial, g.d_gamma, g.d_beta)},
             add_images<P>, s, partial.data<double>(), values(g.d_gamma), values(g.d_beta));
  });
}

}  // namespace hearth::kernels
