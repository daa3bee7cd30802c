// SPDX-License-Identifier: Apache-2.0
// The Adam update: one launch over all parameters. Traffic: reads w, g, m, v and writes w, m, v and
// the copies.
#include "optim/shares.cuh"
#include "optim/step.h"

namespace hearth::kernels {
namespace {

using namespace cuda;

template <class T, class C>
__global__ void adam_shares(PlanTables plan, const AdamCoefficients* coefficients, T* w, const T* g, T* m, T* v,
                            C copies) {
  if (coefficients->skip) return;
  constexpr int count = pack_size<T>;
  const Share share = share_of_block(plan);
  const RangeOptions options = options_of(plan, share.range);
  const AdamRange<T> c = adam_range<T>(*coefficients, options.lr_scale, options.weight_decay);
  walk_share<T>(share, [&](std::int64_t at, bool packed) {
    const Wide<T, count> gradient = load_wide<count>(g + at, packed);
    Wide<T, count> weight = load_wide<count>(w + at, packed);
    Wide<T, count> first = load_wide<count>(m + at, packed);
    Wide<T, count> second = load_wide<count>(v + at, packed);
    HEARTH_UNROLL
    for (int k = 0; k < count; ++k) {
      const AdamState<T> next = adam_step(AdamState<T>{weight.at[k], first.at[k], second.at[k]}, gradient.at[k], c);
      weight.at[k] = next.w;
      first.at[k] = next.m;
      second.at[k] = next.v;
    }
    store_wide(w + at, weight, packed);
    store_copies(copies, at, weight, packed);
    store_wide(m + at, first, packed);
    store_wide(v + at, second, packed);
  });
}

}  // namespace

void adam_update(cuda::Stream& stream, const UpdateBuffers& on, const Tensor& first, const Tensor& second,
                 const Staged<AdamCoefficients>& coefficients) {
  visit_dtype("adam", on.values.dtype(), WideFloats{}, [&]<class T>() {
    with_copies<T>(stream, on.copies, [&]<class C>(const C& places) {
      launch(stream, "adam_update", shape_of(on.plan), adam_shares<T, C>, tables_of(on.plan), coefficients.at(stream),
             on.values.data<T>(), on.grads.data<T>(), first.data<T>(), second.data<T>(), places);
    });
  });
}

}  // namespace hearth::kernels
