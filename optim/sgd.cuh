// SPDX-License-Identifier: Apache-2.0
// The SGD update, and with a factor of each parameter's own LARS's: one launch over all parameters. Traffic: reads w, g
// (and m), writes w (and m) and the copies.
#pragma once

#include "optim/chunks.cuh"
#include "optim/step.h"

namespace hearth::kernels {

/// m null: no momentum. trust(plan, range, coefficients) is a factor on gradient and decay, worked out by the whole
/// block.
template <class T, class C, class Trust>
__global__ void sgd_shares(PlanTables plan, const SgdCoefficients* coefficients, Trust trust, T* w, const T* g, T* m,
                           C copies) {
  using namespace cuda;
  if (coefficients->skip) return;
  constexpr int count = pack_size<T>;
  const Chunk chunk = chunk_of_block(plan);
  const RangeOptions options = options_of(plan, chunk.range);
  const SgdRange<T> c =
      sgd_range<T>(*coefficients, options.lr_scale, options.weight_decay, trust(plan, chunk.range, *coefficients));
  walk_chunk<T>(chunk, [&](std::int64_t at, bool packed) {
    Upcast<T, count> weight = load_upcast<count>(w + at, packed);
    const Upcast<T, count> gradient = load_upcast<count>(g + at, packed);
    if (m == nullptr) {
      HEARTH_UNROLL
      for (int k = 0; k < count; ++k) weight.at[k] = sgd_step(weight.at[k], gradient.at[k], c);
    } else {
      Upcast<T, count> moment = load_upcast<count>(m + at, packed);
      HEARTH_UNROLL
      for (int k = 0; k < count; ++k) {
        const SgdState<T> next = sgd_step(SgdState<T>{weight.at[k], moment.at[k]}, gradient.at[k], c);
        weight.at[k] = next.w;
        moment.at[k] = next.m;
      }
      store_cast_down(m + at, moment, packed);
    }
    store_cast_down(w + at, weight, packed);
    store_copies(copies, at, weight, packed);
  });
}

template <class T, class Trust>
void launch_sgd(cuda::Stream& stream, const UpdateBuffers& on, const Tensor& moment,
                const Staged<SgdCoefficients>& coefficients, const Trust& trust) {
  T* const m = moment.defined() ? moment.data<T>() : nullptr;
  with_copies<T>(stream, on.copies, [&]<class C>(const C& places) {
    cuda::launch(stream, "sgd_update", shape_of(on.plan, bytes_of_update(on, moment)), sgd_shares<T, C, Trust>,
                 tables_of(on.plan), coefficients.at(stream), trust, on.values.data<T>(), on.grads.data<T>(), m,
                 places);
  });
}

}  // namespace hearth::kernels
