// SPDX-License-Identifier: Apache-2.0
// What elementwise kernels share: the map of a function over flat arrays, and the shape of a launch over rows. Data
// moves in packs of 16 bytes where every array is aligned for them, else one element at a time; which of both is one
// flag of the launch, so that each kernel exists once.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cuda/kernel.h"

namespace hearth::cuda {

/// Threads of a block in elementwise kernels.
inline constexpr int element_block = 256;

/// `count` elements in the type that kernels compute in.
template <class T, int count>
struct Upcast {
  acc_t<T> at[count];
};

/// The pack at p, or the one element at p and zeros behind it.
template <int count, class T>
__device__ __forceinline__ Upcast<T, count> load_upcast(const T* p, bool packed) {
  Upcast<T, count> values;
  if (packed) {
    const Pack<T, count> pack = load_pack<count>(p);
    HEARTH_UNROLL
    for (int k = 0; k < count; ++k) values.at[k] = upcast(pack.at[k]);
  } else {
    values.at[0] = upcast(*p);
    HEARTH_UNROLL
    for (int k = 1; k < count; ++k) values.at[k] = acc_t<T>(0);
  }
  return values;
}

/// Stores the pack at p, or only its first element.
template <int count, class T>
__device__ __forceinline__ void store_cast_down(T* p, const Upcast<T, count>& values, bool packed) {
  if (packed) {
    Pack<T, count> pack;
    HEARTH_UNROLL
    for (int k = 0; k < count; ++k) pack.at[k] = cast_down<T>(values.at[k]);
    store_pack(p, pack);
  } else {
    *p = cast_down<T>(values.at[0]);
  }
}

/// Whether p is aligned for packs of 16 bytes.
inline bool is_aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

/// out[i] = f(in[i]...). Pack i of all arrays belongs to thread i; elements behind the last whole pack one a thread.
/// Every element is read and written once; f computes in acc_t<T>. `out` may be one of `in`.
template <class F, class T, class... In>
__global__ void map_elements(F f, std::int64_t n, std::int64_t packs, T* out, const In*... in) {
  constexpr int count = pack_size<T>;
  for (std::int64_t i = global_thread(); i < packs; i += global_threads()) {
    [&](const auto&... values) {
      Upcast<T, count> result;
      HEARTH_UNROLL
      for (int k = 0; k < count; ++k) result.at[k] = f(values.at[k]...);
      store_cast_down(out + i * count, result, true);
    }(load_upcast<count>(in + i * count, true)...);
  }
  for (std::int64_t i = packs * count + global_thread(); i < n; i += global_threads())
    out[i] = cast_down<T>(f(upcast(in[i])...));
}

/// Queues out[i] = f(in[i]...) over n elements of one type. f is a small struct of numbers with a call operator.
template <class F, class T, class... In>
void map(Stream& stream, const char* name, F f, std::int64_t n, T* out, const In*... in) {
  static_assert((std::is_same_v<T, In> && ...), "all arrays have one element type");
  const bool packed = is_aligned(out) && (is_aligned(in) && ...);
  const std::int64_t packs = packed ? n / pack_size<T> : 0;
  const std::int64_t rest = n - packs * pack_size<T>;
  const std::int64_t bytes = n * static_cast<std::int64_t>(sizeof(T) * (1 + sizeof...(In)));
  launch(stream, name, {blocks_for(std::max(packs, rest), element_block), element_block, 0, bytes},
         map_elements<F, T, In...>, f, n, packs, out, in...);
}

/// A launch over `n` elements or packs, in no more blocks than keep a device busy: kernels go on with the stride of the
/// grid (global_threads).
inline LaunchShape shape_over(std::int64_t n) { return {blocks_for(n, element_block, 1 << 16), element_block}; }

/// A launch over `rows` rows of `units` units: threads run along the row in x and over the rows in y. Short rows share
/// a block. Kernels walk both with the strides of the grid (walk_rows).
inline LaunchShape shape_over_rows(std::int64_t rows, std::int64_t units, unsigned widest = element_block) {
  unsigned x = 1;
  while (x < units && x < widest) x *= 2;
  const unsigned y = element_block / x;
  return {dim3(blocks_for(units, x), blocks_for(rows, y, 65535)), dim3(x, y)};
}

/// f(row, unit) for the units of this thread.
template <class F>
__device__ __forceinline__ void walk_rows(std::int64_t rows, std::int64_t units, const F& f) {
  const std::int64_t row_step = static_cast<std::int64_t>(gridDim.y) * blockDim.y;
  const std::int64_t unit_step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
  const std::int64_t first_unit = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (std::int64_t row = first_row; row < rows; row += row_step)
    for (std::int64_t unit = first_unit; unit < units; unit += unit_step) f(row, unit);
}

}  // namespace hearth::cuda
