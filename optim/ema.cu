// SPDX-License-Identifier: Apache-2.0
// Blending and exchanging flat buffers, 16 bytes a thread. Traffic: blending reads both and writes one, exchanging
// reads and writes both.
#include "core/cuda/elementwise.h"
#include "optim/ema.h"

namespace hearth::kernels {
namespace {

using namespace cuda;

template <class T>
struct Blend {
  const double* weight;
  __device__ T operator()(T average, T value) const { return blended(average, value, *weight); }
};

template <class T>
__global__ void exchange_elements(T* a, T* b, std::int64_t n, std::int64_t packs) {
  constexpr int count = pack_size<T>;
  for (std::int64_t i = global_thread(); i < packs; i += global_threads()) {
    const Pack<T, count> of_a = load_pack<count>(a + i * count), of_b = load_pack<count>(b + i * count);
    store_pack(a + i * count, of_b);
    store_pack(b + i * count, of_a);
  }
  for (std::int64_t i = packs * count + global_thread(); i < n; i += global_threads()) {
    const T kept = a[i];
    a[i] = b[i];
    b[i] = kept;
  }
}

}  // namespace

void blend(cuda::Stream& stream, const Tensor& average, const Tensor& values, const Staged<double>& weight) {
  visit_dtype("ema", values.dtype(), FullFloats{}, [&]<class T>() {
    T* const into = average.data<T>();
    cuda::map(stream, "ema_blend", Blend<T>{weight.at(stream)}, values.size(), into, static_cast<const T*>(into),
              static_cast<const T*>(values.data<T>()));
  });
}

void exchange(cuda::Stream& stream, const Tensor& a, const Tensor& b) {
  visit_dtype("ema", a.dtype(), FullFloats{}, [&]<class T>() {
    T* const first = a.data<T>();
    T* const second = b.data<T>();
    const std::int64_t packs = is_aligned(first) && is_aligned(second) ? a.size() / pack_size<T> : 0;
    const std::int64_t rest = a.size() - packs * pack_size<T>;
    launch(stream, "ema_exchange",
           {blocks_for(std::max(packs, rest), element_block), element_block, 0, 2 * bytes_of(a, b)},
           exchange_elements<T>, first, second, a.size(), packs);
  });
}

}  // namespace hearth::kernels
