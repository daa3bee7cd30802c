// SPDX-License-Identifier: Apache-2.0
// A thread draws one Philox block and uses its four words for the elements that the CPU kernel gives them to: word j of
// block 16 s + l belongs to the element numbered 64 s + 16 j + l. So sixteen neighbouring threads read and write runs
// of sixteen elements, and the choice is the same on every device. Traffic: x is read and y written once.
#include <algorithm>
#include <cmath>

#include "hearth/core/cuda/elementwise.h"
#include "hearth/core/cuda/graph.h"
#include "hearth/ops/pointwise/dropout.h"

namespace hearth::kernels {
namespace {

using namespace cuda;

template <class T>
__global__ void drop_elements(const T* x, RandomKey key, const std::uint64_t* step, std::int64_t first_number,
                              std::uint32_t threshold, acc_t<T> scale, T* y, std::int64_t n) {
  if (step != nullptr) key.step = *step;
  const std::int64_t skipped = first_number / 64, in_strip = first_number % 64;
  const std::int64_t draws = (in_strip + n + 63) / 64 * 16;
  for (std::int64_t draw = global_thread(); draw < draws; draw += global_threads()) {
    const auto block = static_cast<std::uint64_t>(skipped * 16 + draw);
    // Steps stay below 2^48 and blocks below 2^48, so both fit into the counter.
    const auto words =
        philox({static_cast<std::uint32_t>(block), key.op, static_cast<std::uint32_t>(key.step),
                static_cast<std::uint32_t>(key.step >> 32) ^ (static_cast<std::uint32_t>(block >> 32) << 16)},
               {static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32)});
    const std::int64_t first = draw / 16 * 64 + draw % 16 - in_strip;
    HEARTH_UNROLL
    for (int j = 0; j < 4; ++j) {
      const std::int64_t i = first + 16 * j;
      if (i >= 0 && i < n) y[i] = narrow<T>(words[j] >= threshold ? widen(x[i]) * scale : acc_t<T>(0));
    }
  }
}

}  // namespace

void dropout(cuda::Stream& stream, const Tensor& x, const RandomKey& key, double p, const Tensor& y) {
  if (x.size() == 0) return;
  // An element is dropped when its word lies below p * 2^32.
  const auto threshold = static_cast<std::uint32_t>(std::min(std::round(p * 0x1p32), 0x1p32 - 1));
  visit_dtype("dropout", x.dtype(), Floats{}, [&]<class T>() {
    const auto scale = static_cast<acc_t<T> >(1.0 / (1.0 - p));
    const std::int64_t n = x.size();
    launch(stream, "dropout", {blocks_for((n + 3) / 4 + 16, element_block), element_block}, drop_elements<T>,
           x.data<T>(), key, recorded_random_step(stream), key.first_element(n), threshold, scale, y.data<T>(), n);
  });
}

}  // namespace hearth::kernels
