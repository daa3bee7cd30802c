// SPDX-License-Identifier: Apache-2.0
// A thread makes cosine and sine of one pair of channels of one row and turns that pair in every head, so neighbouring
// threads read neighbouring channels. Angles are f64 until they lie within one turn. Traffic: x is read and y written
// once.
#include <cmath>

#include "core/cuda/kernel.h"
#include "ops/attention/rotary.h"

namespace hearth::kernels {
namespace {

using namespace cuda;

constexpr int threads = 256;

template <class P>
__device__ __forceinline__ void turn_of(double angle, P& cosine, P& sine) {
  P rest = static_cast<P>(angle);
  if constexpr (std::is_same_v<P, float>) {
    constexpr double turn = 6.283185307179586476925;
    rest = static_cast<P>(angle - std::rint(angle / turn) * turn);
  }
  cosine = std::cos(rest);
  sine = std::sin(rest);
}

template <class T>
__global__ void __launch_bounds__(threads) rotate_pairs(HEARTH_GRID_CONSTANT(RotaryArguments) a, const T* x, T* y) {
  using P = acc_t<T>;
  const std::int64_t half = a.width / 2;
  const std::int64_t pairs = a.samples * a.rows * half;
  for (std::int64_t i = global_thread(); i < pairs; i += global_threads()) {
    const std::int64_t row = i / half, d = i % half;
    std::int64_t in_segment = row % a.rows;
    if (a.segments != nullptr) {
      const std::int64_t first = a.segments[2 * row];
      in_segment -= first < 0 ? 0 : first < in_segment ? first : in_segment;
    }
    const double position = static_cast<double>(a.first_position + in_segment);
    P cosine, sine;
    turn_of(position * a.frequency[static_cast<std::size_t>(d)] * a.direction, cosine, sine);
    std::int64_t at = row * a.heads * a.width + d;
    for (std::int64_t h = 0; h < a.rotated; ++h, at += a.width) {
      const P first = upcast(x[at]), second = upcast(x[at + half]);
      y[at] = cast_down<T>(first * cosine - second * sine);
      y[at + half] = cast_down<T>(second * cosine + first * sine);
    }
    for (std::int64_t h = a.rotated; x != y && h < a.heads; ++h, at += a.width) {
      y[at] = x[at];
      y[at + half] = x[at + half];
    }
  }
}

}  // namespace

void rotary(Stream& stream, const RotaryArguments& a, const Tensor& x, const Tensor& y) {
  visit_dtype("rotary", x.dtype(), Floats{}, [&]<class T>() {
    launch(stream, "rotary", {blocks_for(a.samples * a.rows * (a.width / 2), threads, 1 << 16), threads},
           rotate_pairs<T>, a, x.data<T>(), y.data<T>());
  });
}

}  // namespace hearth::kernels
