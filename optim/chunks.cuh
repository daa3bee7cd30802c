// SPDX-License-Identifier: Apache-2.0
// How update kernels share the plan: every piece is dealt to four blocks, each with a quarter of a full piece, so that
// one launch covers all parameters. A block looks up its piece's range once; threads take 16 bytes at a time.
#pragma once

#include "core/cuda/elementwise.h"
#include "core/tensor.h"
#include "optim/copies.h"
#include "optim/ema.h"
#include "optim/groups.h"
#include "optim/optimizer.h"

namespace hearth::kernels {

using optim::Copies;

inline constexpr int chunks_a_piece = 4;

/// The plan's tables as kernels take them.
struct PlanTables {
  const std::int64_t* pieces;
  const std::int64_t* first_pieces;
  const double* ranges;
};

inline PlanTables tables_of(const optim::UpdatePlan& plan) {
  return {plan.piece_table().data<std::int64_t>(), plan.first_pieces().data<std::int64_t>(),
          plan.range_table().data<double>()};
}

struct RangeOptions {
  double lr_scale;
  double weight_decay;
  bool adapts;
};

__device__ __forceinline__ RangeOptions options_of(const PlanTables& plan, std::int64_t range) {
  const double* const row = plan.ranges + 3 * range;
  return {row[0], row[1], row[2] != 0.0};
}

/// The elements of one block. May be empty.
struct Chunk {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t range;
};

__device__ __forceinline__ Chunk chunk_of_block(const PlanTables& plan) {
  const std::int64_t* const row = plan.pieces + 3 * (blockIdx.x / chunks_a_piece);
  constexpr std::int64_t size = optim::UpdatePlan::piece_elements / chunks_a_piece;
  const std::int64_t begin = row[0] + blockIdx.x % chunks_a_piece * size;
  const std::int64_t end = begin + size < row[1] ? begin + size : row[1];
  return {begin, end, row[2]};
}

/// f(first element, whether it begins a whole pack) for what this thread has of the share. Ranges begin on 64 bytes.
template <class T, class F>
__device__ __forceinline__ void walk_chunk(const Chunk& share, const F& f) {
  constexpr std::int64_t count = cuda::pack_size<T>;
  const std::int64_t packs = share.end > share.begin ? (share.end - share.begin) / count : 0;
  for (std::int64_t i = threadIdx.x; i < packs; i += blockDim.x) f(share.begin + i * count, true);
  for (std::int64_t i = share.begin + packs * count + threadIdx.x; i < share.end; i += blockDim.x) f(i, false);
}

/// Copies as kernels take them; null for what there is not.
template <class T, class N>
struct CopyTargets {
  N* low_precision;
  T* average;
  const double* share;
};

/// f(places) of the copies of values of type T.
template <class T, class F>
void with_copies(cuda::Stream& stream, const Copies& copies, const F& f) {
  T* const average = copies.average.defined() ? copies.average.data<T>() : nullptr;
  const double* const share = copies.weight != nullptr ? copies.weight->at(stream) : nullptr;
  const bool has_low_precision = copies.low_precision.defined();
  if (has_low_precision && copies.low_precision.dtype() == DType::f16)
    return f(CopyTargets<T, f16>{copies.low_precision.data<f16>(), average, share});
  f(CopyTargets<T, bf16>{has_low_precision ? copies.low_precision.data<bf16>() : nullptr, average, share});
}

/// Brings the copies of updated values up to date.
template <class T, int count, class N>
__device__ __forceinline__ void store_copies(const CopyTargets<T, N>& copies, std::int64_t at,
                                             const cuda::Upcast<T, count>& values, bool packed) {
  if (copies.low_precision != nullptr) {
    cuda::Upcast<N, count> rounded;
    HEARTH_UNROLL
    for (int k = 0; k < count; ++k) rounded.at[k] = static_cast<float>(values.at[k]);
    cuda::store_cast_down(copies.low_precision + at, rounded, packed);
  }
  if (copies.average != nullptr) {
    const double share = *copies.share;
    cuda::Upcast<T, count> average = cuda::load_upcast<count>(copies.average + at, packed);
    HEARTH_UNROLL
    for (int k = 0; k < count; ++k) average.at[k] = blended(average.at[k], values.at[k], share);
    cuda::store_cast_down(copies.average + at, average, packed);
  }
}

/// A launch over the plan's pieces that moves so many bytes.
inline cuda::LaunchShape shape_of(const optim::UpdatePlan& plan, std::int64_t bytes) {
  return {cuda::blocks_for(static_cast<std::int64_t>(plan.piece_count()) * chunks_a_piece, 1), cuda::element_block, 0,
          bytes};
}

/// What an update reads and writes: `state` are the values and moments, which it does both with.
template <class... State>
std::int64_t bytes_of_update(const optim::UpdateBuffers& on, const State&... state) {
  return cuda::bytes_of(on.grads, on.copies.low_precision, on.copies.average, on.copies.average) +
         2 * cuda::bytes_of(on.values, state...);
}

}  // namespace hearth::kernels
