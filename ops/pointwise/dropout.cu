// SPDX-License-Identifier: Apache-2.0
// A thread draws one Philox block and uses its four words for the elements that the CPU kernel gives them to. So
// sixteen neighbouring threads read and write runs of sixteen elements, and the choice is the same on every device.
// Traffic: x is read and y written once.
#include "ops/pointwise/dropout.h"

#include "core/cuda/elementwise.h"
#include "ops/pointwise/dropout.cuh"

namespace hearth::kernels {
namespace {

using namespace cuda;

template <class T>
__global__ void drop_elements(const T* x, DropoutDraws draws, acc_t<T> scale, T* y, std::int64_t n) {
  draws.each_block(0, n, global_thread(), global_threads(), [&](std::uint64_t block, std::int64_t first) {
    const auto words = draws.words(block);
    HEARTH_UNROLL
    for (int j = 0; j < 4; ++j) {
      const std::int64_t i = first + 16 * j;
      if (i >= 0 && i < n) y[i] = cast_down<T>(words[j] >= draws.threshold ? upcast(x[i]) * scale : acc_t<T>(0));
    }
  });
}

}  // namespace

void dropout(cuda::Stream& stream, const Tensor& x, const RandomKey& key, double p, const Tensor& y) {
  if (x.size() == 0) return;
  visit_dtype("dropout", x.dtype(), Floats{}, [&]<class T>() {
    const auto scale = static_cast<acc_t<T> >(1.0 / (1.0 - p));
    const std::int64_t n = x.size();
    launch(stream, "dropout", {blocks_for((n + 3) / 4 + 16, element_block), element_block, 0, bytes_of(x, y)},
           drop_elements<T>, x.data<T>(), dropout_draws(stream, key, p, n), scale, y.data<T>(), n);
  });
}

}  // namespace hearth::kernels
