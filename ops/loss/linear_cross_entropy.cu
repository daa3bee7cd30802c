// SPDX-License-Identifier: Apache-2.0
// A thread scales 16 bytes of the wide sums: they are read once, and the gradient is written once, or read and written.
#include "ops/loss/linear_cross_entropy.h"

#include <algorithm>

#include "core/cuda/elementwise.h"

namespace hearth::kernels {
namespace {

using namespace cuda;

template <class T>
__global__ void scale_elements(const acc_t<T>* from, const acc_t<T>* dy, const double* row_weight, double constant,
                               bool adds, T* into, std::int64_t n, std::int64_t packs) {
  using P = acc_t<T>;
  constexpr int count = pack_size<P>;
  const P factor = static_cast<P>(static_cast<double>(*dy) * *row_weight * constant);
  for (std::int64_t i = global_thread(); i < packs; i += global_threads()) {
    Upcast<P, count> value = load_upcast<count>(from + i * count, true);
    const Pack<T, count> before = adds ? load_pack<count>(into + i * count) : Pack<T, count>{};
    Pack<T, count> after;
    HEARTH_UNROLL
    for (int k = 0; k < count; ++k) {
      const P scaled = value.at[k] * factor;
      after.at[k] = cast_down<T>(adds ? upcast(before.at[k]) + scaled : scaled);
    }
    store_pack(into + i * count, after);
  }
  for (std::int64_t i = packs * count + global_thread(); i < n; i += global_threads())
    into[i] = cast_down<T>(adds ? upcast(into[i]) + from[i] * factor : from[i] * factor);
}

}  // namespace

// With some 150 operations a byte, adding to the sums of w's gradient takes a tenth of a chunk's time at 2000 rows.
std::int64_t head_rows(cuda::Stream& stream, std::int64_t row_bytes) {
  return std::max<std::int64_t>(2048, cuda::device_info(stream.device()).memory_bytes / 12 / row_bytes);
}

void scale_gradient(cuda::Stream& stream, const Tensor& from, const Tensor& dy, const Tensor& row_weight, double factor,
                    bool adds, const Tensor& into) {
  visit_dtype("linear_cross_entropy", into.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    const std::int64_t n = from.size();
    const bool packed = is_aligned(from.bytes()) && is_aligned(into.bytes());
    const std::int64_t packs = packed ? n / pack_size<P> : 0, rest = n - packs * pack_size<P>;
    launch(stream, "scale_gradient",
           {blocks_for(std::max(packs, rest), element_block), element_block, 0,
            bytes_of(from, into) + (adds ? bytes_of(into) : 0)},
           scale_elements<T>, from.data<P>(), dy.data<P>(), row_weight.data<double>(), factor, adds, into.data<T>(), n,
           packs);
  });
}

}  // namespace hearth::kernels
