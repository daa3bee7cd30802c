// SPDX-License-Identifier: Apache-2.0
// The Adam update: one launch over all parameters. Traffic: reads w, g, m, v and writes w, m, v and
// the copies.
#include "optim/chunks.cuh"
#include "optim/step.h"

namespace hearth::kernels {
namespace {

using namespace cuda;

template <class T, class C>
__global__ void adam_shares(PlanTables plan, const AdamCoefficients* coefficients, T* w, const T* g, T* m, T* v,
                            C copies) {
  if (coefficients->skip) return;
  constexpr int count = pack_size<T>;
  const Chunk chunk = chunk_of_block(plan);
  const RangeOptions options = options_of(plan, chunk.range);
  const AdamRange<T> c = adam_range<T>(*coefficients, options.lr_scale, options.weight_decay);
  walk_chunk<T>(chunk, [&](std::int64_t at, bool packed) {
    const Upcast<T, count> gradient = load_upcast<count>(g + at, packed);
    Upcast<T, count> weight = load_upcast<count>(w + at, packed);
    Upcast<T, count> first = load_upcast<count>(m + at, packed);
    Upcast<T, count> second = load_upcast<count>(v + at, packed);
    HEARTH_UNROLL
    for (int k = 0; k < count; ++k) {
      const AdamState<T> next = adam_step(AdamState<T>{weight.at[k], first.at[k], second.at[k]}, gradient.at[k], c);
      weight.at[k] = next.w;
      first.at[k] = next.m;
      second.at[k] = next.v;
    }
    store_cast_down(w + at, weight, packed);
    store_copies(copies, at, weight, packed);
    store_cast_down(m + at, first, packed);
    store_cast_down(v + at, second, packed);
  });
}

}  // namespace

void adam_update(cuda::Stream& stream, const UpdateBuffers& on, const Tensor& first, const Tensor& second,
                 const Staged<AdamCoefficients>& coefficients) {
  visit_dtype("adam", on.values.dtype(), FullFloats{}, [&]<class T>() {
    with_copies<T>(stream, on.copies, [&]<class C>(const C& places) {
      launch(stream, "adam_update", shape_of(on.plan, bytes_of_update(on, first, second)), adam_shares<T, C>,
             tables_of(on.plan), coefficients.at(stream), on.values.data<T>(), on.grads.data<T>(), first.data<T>(),
             second.data<T>(), places);
    });
  });
}

}  // namespace hearth::kernels
