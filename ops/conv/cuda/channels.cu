// SPDX-License-Identifier: Apache-2.0
// Rows of channels copied into rows of more or fewer: a row a thread, which writes it as one word where it can.
#include "core/cuda/elementwise.h"
#include "ops/conv/kernels.h"

namespace hearth::kernels {
namespace {

using namespace cuda;

/// `known`: how many channels a row of y has, or 0 for `channels_y` of them. Traffic: what is copied is read once, y
/// is written once.
template <class X, class Y, int known>
__global__ void copy_channels_kernel(std::int64_t rows, const X* x, int pitch_x, int copied, Y* y, int channels_y) {
  for (std::int64_t row = global_thread(); row < rows; row += global_threads()) {
    const X* const from = x + row * pitch_x;
    if constexpr (known > 0) {
      Upcast<Y, known> wide;
      HEARTH_UNROLL
      for (int c = 0; c < known; ++c) wide.at[c] = c < copied ? upcast(from[c]) : acc_t<Y>(0);
      store_cast_down(y + row * known, wide, true);
    } else {
      for (int c = 0; c < channels_y; ++c)
        y[row * channels_y + c] = cast_down<Y>(c < copied ? upcast(from[c]) : acc_t<Y>(0));
    }
  }
}

template <class X, class Y>
void run(cuda::Stream& stream, const Tensor& x, std::int64_t pitch_x, std::int64_t copied, const Tensor& y) {
  const std::int64_t channels = y.dim(3), rows = y.size() / channels;
  const X* const from = x.data<X>();
  Y* const to = y.data<Y>();
  const LaunchShape shape{blocks_for(rows, element_block), element_block, 0,
                          rows * copied * static_cast<std::int64_t>(sizeof(X)) + bytes_of(y)};
  const auto queue = [&](auto kernel) {
    launch(stream, "conv2d channels", shape, kernel, rows, from, static_cast<int>(pitch_x), static_cast<int>(copied),
           to, static_cast<int>(channels));
  };
  const bool in_words = sizeof(Y) == 2 && is_aligned(to);
  if constexpr (sizeof(Y) == 2) {
    if (in_words && channels == 4) return queue(copy_channels_kernel<X, Y, 4>);
    if (in_words && channels == 8) return queue(copy_channels_kernel<X, Y, 8>);
  }
  queue(copy_channels_kernel<X, Y, 0>);
}

}  // namespace

void copy_channels(cuda::Stream& stream, const Tensor& x, const Tensor& y) {
  const std::int64_t pitch = pixel_stride(x), copied = std::min(x.dim(3), y.dim(3));
  visit_dtype("conv2d", y.dtype(), Types<f16, bf16, float>{}, [&]<class Y>() {
    if (x.dtype() == y.dtype()) return run<Y, Y>(stream, x, pitch, copied, y);
    run<float, Y>(stream, x, pitch, copied, y);
  });
}

}  // namespace hearth::kernels
