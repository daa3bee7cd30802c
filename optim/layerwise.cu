// SPDX-License-Identifier: Apache-2.0
// The updates of LARS and LAMB, two launches each. In the first a block sums its share's squares in f64; in the second
// every block joins the sums of its range in a fixed order (a few numbers a thread, from the cache) and works out the
// range's factor by itself.
// Traffic of LARS: reads w and g; then what SGD moves. Of LAMB: reads w, g, m, v and writes m, v; then reads w, m, v
// and writes w and the copies.
#include "optim/sgd.cuh"

namespace hearth::kernels {
namespace {

using namespace cuda;

/// The squared norms of one share.
struct Squares {
  double values;
  double others;  // of gradients or directions
};

/// The block's sums, by its first thread.
__device__ void store_squares(Squares* partials, double values, double others) {
  values = block_reduce<Sum>(values, 0.0);
  others = block_reduce<Sum>(others, 0.0);
  if (threadIdx.x == 0) partials[blockIdx.x] = {values, others};
}

/// The norms of a range, from the partial sums of its blocks; every thread of a block that asks gets them.
__device__ Squares norms_of_range(const PlanTables& plan, std::int64_t range, const Squares* partials) {
  const std::int64_t end = plan.first_pieces[range + 1] * chunks_a_piece;
  double values = 0, others = 0;
  for (std::int64_t i = plan.first_pieces[range] * chunks_a_piece + threadIdx.x; i < end; i += blockDim.x) {
    values += partials[i].values;
    others += partials[i].others;
  }
  return {std::sqrt(block_reduce<Sum>(values, 0.0)), std::sqrt(block_reduce<Sum>(others, 0.0))};
}

/// Whether this thread writes what there is once for its range.
__device__ __forceinline__ bool leads_range(const PlanTables& plan, std::int64_t range) {
  return threadIdx.x == 0 && blockIdx.x == plan.first_pieces[range] * chunks_a_piece;
}

template <class T>
__global__ void square_shares(PlanTables plan, const SgdCoefficients* coefficients, const T* w, const T* g,
                              Squares* partials, double* ratios) {
  constexpr int count = pack_size<T>;
  const double grad_scale = coefficients->grad_scale;
  double values = 0, grads = 0;
  const Chunk chunk = chunk_of_block(plan);
  // The second launch writes the ratio, unless it is skipped.
  if (leads_range(plan, chunk.range)) ratios[chunk.range] = optim::no_ratio;
  walk_chunk<T>(chunk, [&](std::int64_t at, bool packed) {
    const Upcast<T, count> weight = load_upcast<count>(w + at, packed), gradient = load_upcast<count>(g + at, packed);
    HEARTH_UNROLL
    for (int k = 0; k < count; ++k) {
      const double value = weight.at[k], scaled = gradient.at[k] * grad_scale;
      values += value * value;
      grads += scaled * scaled;
    }
  });
  store_squares(partials, values, grads);
}

struct LarsTrust {
  LarsConstants constants;
  const Squares* partials;
  double* ratios;

  __device__ double operator()(const PlanTables& plan, std::int64_t range, const SgdCoefficients& coefficients) const {
    const Squares norms = norms_of_range(plan, range, partials);
    const RangeOptions options = options_of(plan, range);
    const double lr = coefficients.lr * options.lr_scale;
    const double trust = lars_trust_of(constants, lr, options.weight_decay, options.adapts, norms.values, norms.others);
    if (leads_range(plan, range)) ratios[range] = trust;
    return trust;
  }
};

template <class T>
__global__ void lamb_moment_shares(PlanTables plan, const LambCoefficients* coefficients, const double* squares,
                                   const T* w, const T* g, T* m, T* v, Squares* partials, double* ratios) {
  const Chunk chunk = chunk_of_block(plan);
  // The second launch writes the ratio, unless it is skipped.
  if (leads_range(plan, chunk.range)) ratios[chunk.range] = optim::no_ratio;
  if (coefficients->skip) return;
  constexpr int count = pack_size<T>;
  const LambRange<T> c =
      lamb_range<T>(*coefficients, options_of(plan, chunk.range).weight_decay, lamb_grad_scale(*coefficients, squares));
  double values = 0, steps = 0;
  walk_chunk<T>(chunk, [&](std::int64_t at, bool packed) {
    const Upcast<T, count> weight = load_upcast<count>(w + at, packed), gradient = load_upcast<count>(g + at, packed);
    Upcast<T, count> first = load_upcast<count>(m + at, packed), second = load_upcast<count>(v + at, packed);
    HEARTH_UNROLL
    for (int k = 0; k < count; ++k) {
      const AdamState<T> next = lamb_moments(AdamState<T>{weight.at[k], first.at[k], second.at[k]}, gradient.at[k], c);
      first.at[k] = next.m;
      second.at[k] = next.v;
      // Beyond a lone element there is nothing.
      if (k > 0 && !packed) continue;
      const double value = next.w, step = lamb_direction(next.w, next.m, next.v, c);
      values += value * value;
      steps += step * step;
    }
    store_cast_down(m + at, first, packed);
    store_cast_down(v + at, second, packed);
  });
  store_squares(partials, values, steps);
}

template <class T, class C>
__global__ void lamb_shares(PlanTables plan, const LambCoefficients* coefficients, const Squares* partials, T* w,
                            const T* m, const T* v, double* ratios, C copies) {
  if (coefficients->skip) return;
  constexpr int count = pack_size<T>;
  const Chunk chunk = chunk_of_block(plan);
  const Squares norms = norms_of_range(plan, chunk.range, partials);
  const RangeOptions options = options_of(plan, chunk.range);
  const LambRange<T> c = lamb_range<T>(*coefficients, options.weight_decay, 1.0);
  const double ratio = lamb_ratio(*coefficients, options.adapts, norms.values, norms.others);
  if (leads_range(plan, chunk.range)) ratios[chunk.range] = ratio;
  const T length = static_cast<T>(coefficients->lr * options.lr_scale * ratio);
  walk_chunk<T>(chunk, [&](std::int64_t at, bool packed) {
    Upcast<T, count> weight = load_upcast<count>(w + at, packed);
    const Upcast<T, count> first = load_upcast<count>(m + at, packed), second = load_upcast<count>(v + at, packed);
    HEARTH_UNROLL
    for (int k = 0; k < count; ++k) weight.at[k] -= length * lamb_direction(weight.at[k], first.at[k], second.at[k], c);
    store_cast_down(w + at, weight, packed);
    store_copies(copies, at, weight, packed);
  });
}

/// Room for the partial sums of all blocks.
Tensor make_partials(const optim::UpdatePlan& plan, Device device) {
  return Tensor::empty({static_cast<std::int64_t>(plan.piece_count()) * chunks_a_piece, 2}, DType::f64, device);
}

/// Where ranks update a part each: blocks of other ranks' pieces have nothing and gave zeros, so that the sum over the
/// ranks is exact.
void sum_over_ranks(const UpdateBuffers& on, const Tensor& partials) {
  if (on.group != nullptr) on.group->all_reduce(partials).wait();
}

Squares* squares_of(const Tensor& partials) { return reinterpret_cast<Squares*>(partials.data<double>()); }

}  // namespace

void lars_update(cuda::Stream& stream, const UpdateBuffers& on, const Tensor& moment,
                 const Staged<SgdCoefficients>& coefficients, const LarsConstants& constants, const Tensor& ratios) {
  const Tensor partials = make_partials(on.plan, on.values.device());
  visit_dtype("lars", on.values.dtype(), FullFloats{}, [&]<class T>() {
    launch(stream, "lars_norms", shape_of(on.plan, bytes_of(on.values, on.grads, partials)), square_shares<T>,
           tables_of(on.plan), coefficients.at(stream), on.values.data<T>(), on.grads.data<T>(), squares_of(partials),
           ratios.data<double>());
    sum_over_ranks(on, partials);
    launch_sgd<T>(stream, on, moment, coefficients, LarsTrust{constants, squares_of(partials), ratios.data<double>()});
  });
}

void lamb_update(cuda::Stream& stream, const UpdateBuffers& on, const Tensor& first, const Tensor& second,
                 const Staged<LambCoefficients>& coefficients, const Tensor& ratios, const Tensor& squares) {
  const Tensor partials = make_partials(on.plan, on.values.device());
  visit_dtype("lamb", on.values.dtype(), FullFloats{}, [&]<class T>() {
    T* const w = on.values.data<T>();
    T* const m = first.data<T>();
    T* const v = second.data<T>();
    launch(stream, "lamb_moments",
           shape_of(on.plan, bytes_of(on.values, on.grads, partials) + 2 * bytes_of(first, second)),
           lamb_moment_shares<T>, tables_of(on.plan), coefficients.at(stream),
           squares.defined() ? squares.data<double>() : nullptr, w, on.grads.data<T>(), m, v, squares_of(partials),
           ratios.data<double>());
    sum_over_ranks(on, partials);
    with_copies<T>(stream, on.copies, [&]<class C>(const C& places) {
      launch(stream, "lamb_update", shape_of(on.plan, bytes_of(first, second) + bytes_of_update(on)), lamb_shares<T, C>,
             tables_of(on.plan), coefficients.at(stream), squares_of(partials), w, m, v, ratios.data<double>(), places);
    });
  });
}

}  // namespace hearth::kernels
