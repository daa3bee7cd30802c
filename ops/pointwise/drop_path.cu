// SPDX-License-Identifier: Apache-2.0
// Threads run along a sample in x and over the samples in y, each with a pack of 16 bytes or an element at a time, and
// draw the sample's word themselves, so that nothing is prepared. Traffic: the residual is read and y written once, x
// read once where its sample stays.
#include "ops/pointwise/drop_path.h"

#include <cmath>

#include "core/cuda/elementwise.h"
#include "ops/pointwise/dropout.cuh"

namespace hearth::kernels {
namespace {

using namespace cuda;

template <class T>
__global__ void drop_samples(const T* x, const T* residual, DropoutDraws draws, acc_t<T> scale, T* y,
                             std::int64_t samples, std::int64_t units, bool packed) {
  constexpr int pack = pack_size<T>;
  const int count = packed ? pack : 1;
  walk_rows(samples, units, [&](std::int64_t sample, std::int64_t unit) {
    const std::int64_t i = (sample * units + unit) * count;
    Upcast<T, pack> sum{};
    if (residual != nullptr) sum = load_upcast<pack>(residual + i, packed);
    if (draws.keeps(sample)) {
      const Upcast<T, pack> added = load_upcast<pack>(x + i, packed);
      // A sum is rounded once, as in add_layer_norm; to a zero here the sign of another would be lost.
      HEARTH_UNROLL
      for (int k = 0; k < pack; ++k)
        sum.at[k] = residual == nullptr ? added.at[k] * scale : std::fma(added.at[k], scale, sum.at[k]);
    }
    store_cast_down(y + i, sum, packed);
  });
}

}  // namespace

void drop_path(cuda::Stream& stream, const Tensor& x, const Tensor& residual, const RandomKey& key, double p,
               const Tensor& y) {
  visit_dtype("drop_path", x.dtype(), Floats{}, [&]<class T>() {
    const std::int64_t samples = x.dim(0), size = x.size() / samples;
    const T* const base = residual.defined() ? residual.data<T>() : nullptr;
    const bool packed =
        size % pack_size<T> == 0 && is_aligned(x.data<T>()) && is_aligned(base) && is_aligned(y.data<T>());
    const std::int64_t units = size / (packed ? pack_size<T> : 1);
    launch(stream, "drop_path", shape_over_rows(samples, units).moving(bytes_of(x, residual, y)), drop_samples<T>,
           x.data<T>(), base, dropout_draws(stream, key, p, samples), static_cast<acc_t<T> >(1.0 / (1.0 - p)),
           y.data<T>(), samples, units, packed);
  });
}

}  // namespace hearth::kernels
