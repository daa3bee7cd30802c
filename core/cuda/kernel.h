// SPDX-License-Identifier: Apache-2.0
// What a kernel source (.cu) is written in. Under nvcc these are CUDA's own words; in the emulated build
// (HEARTH_CUDA=EMULATE) the same sources are ordinary C++ on core/cuda/emulate. This is the only CUDA header a kernel
// source includes. No `<<<>>>`, no `__shared__` by hand, no `__CUDA_ARCH__`, no inline PTX outside this file and
// mma.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__CUDACC__)
#include <cuda_runtime.h>

/// HEARTH_SHARED(float, tile, [16][68]); declares static shared memory, 16-byte aligned.
#define HEARTH_SHARED(type, name, ...) __shared__ alignas(16) type name __VA_ARGS__
/// A large parameter struct, passed by reference to constant memory: void kernel(HEARTH_GRID_CONSTANT(Chunks) chunks).
#define HEARTH_GRID_CONSTANT(type) const __grid_constant__ type
#define HEARTH_UNROLL _Pragma("unroll")
#else
#include "tests/emulated_gpu/dialect.h"
#define HEARTH_UNROLL
#endif

#include "core/cuda/fault.h"
#include "core/cuda/launch.h"
#include "core/half.h"

namespace hearth::cuda {

/// Queues kernel(arguments...) on the stream. The only launch in the code base. `name` shows in errors and profiles. An
/// empty grid does nothing.
template <class... Parameters, class... Arguments>
void launch(Stream& stream, const char* name, const LaunchShape& shape, void (*kernel)(Parameters...),
            Arguments&&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments), "a kernel takes exactly its parameters");
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
  before_launch(name, shape, reinterpret_cast<const void*>(kernel), [](const void* which, int bytes) {
    const cudaError_t status = cudaFuncSetAttribute(which, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    // Told at once, so that the next launch is not blamed for it.
    if (status != cudaSuccess) (void)cudaGetLastError();
    return status;
  });
#if defined(__CUDACC__)
  kernel<<<shape.grid, shape.block, shape.shared_bytes, stream.raw()>>>(
      static_cast<Parameters>(std::forward<Arguments>(arguments))...);
#else
  emulate::launch_kernel(stream.raw(), name, shape.grid, shape.block, shape.shared_bytes, kernel,
                         static_cast<Parameters>(std::forward<Arguments>(arguments))...);
#endif
  after_launch(name, shape, cudaGetLastError());
}

#if defined(__CUDACC__)
/// The block's dynamic shared memory, 16-byte aligned.
template <class T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char hearth_dynamic_shared[];
  return reinterpret_cast<T*>(hearth_dynamic_shared);
}
#else
template <class T>
T* dynamic_shared() {
  return static_cast<T*>(emulate::dynamic_shared_bytes());
}
#endif

/// Notes that `value` is outside [0, bound); the first note since the host last looked stays.
__device__ inline void report_fault(FaultSlot* slot, FaultKind kind, std::int64_t value, std::int64_t bound) {
  if (atomicCAS(&slot->kind, 0u, static_cast<unsigned>(kind)) != 0u) return;
  slot->value = value;
  slot->bound = bound;
}

inline constexpr unsigned all_lanes = 0xffffffffu;
inline constexpr int warp_size = 32;

__device__ __forceinline__ int lane_id() { return static_cast<int>(threadIdx.x) & (warp_size - 1); }

/// The device's clock, the same for all of its blocks.
__device__ __forceinline__ std::int64_t nanoseconds_now() {
#if defined(__CUDACC__)
  std::int64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now) : : "memory");
  return now;
#else
  return emulate::nanoseconds_now();
#endif
}

/// How many blocks of `size` cover n, at most `most` (for grid-stride loops). 0 for n = 0.
inline unsigned blocks_for(std::int64_t n, std::int64_t size, std::int64_t most = 0x7fffffff) {
  const std::int64_t blocks = (n + size - 1) / size;
  return static_cast<unsigned>(blocks < most ? blocks : most);
}

/// This thread's index over the whole (one-dimensional) grid, and the number of threads in it.
__device__ __forceinline__ std::int64_t global_thread() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ std::int64_t global_threads() { return static_cast<std::int64_t>(gridDim.x) * blockDim.x; }

// Elements in the type that kernels compute in: f32 for the 16-bit types, else their own.
__device__ __forceinline__ float upcast(float value) { return value; }
__device__ __forceinline__ double upcast(double value) { return value; }
__device__ __forceinline__ float upcast(bf16 value) { return static_cast<float>(value); }
__device__ __forceinline__ float upcast(f16 value) {
#if defined(__CUDACC__)
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
  return wide;
#else
  return static_cast<float>(value);
#endif
}
/// Rounded to nearest even. On a device one instruction with the bits of half.h, except in what a NaN carries.
template <class T>
__device__ __forceinline__ T cast_down(acc_t<T> value) {
#if defined(__CUDACC__)
  if constexpr (std::is_same_v<T, bf16> || std::is_same_v<T, f16>) {
    std::uint16_t bits;
    if constexpr (std::is_same_v<T, bf16>)
      asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    else
      asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return T::from_bits(bits);
  }
#endif
  return T(value);
}

/// Two values in a word as they lie in memory, the first in its lower half; a NaN is 0x7fff. On a device one
/// instruction.
template <class T>
__device__ __forceinline__ unsigned cast_down_two(float first, float second) {
#if defined(__CUDACC__)
  unsigned word;
  if constexpr (std::is_same_v<T, bf16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
#else
  const auto bits = [](float value) {
    return value == value ? static_cast<unsigned>(cast_down<T>(value).bits) : 0x7fffu;
  };
  return bits(first) | bits(second) << 16;
#endif
}

/// 16 bytes to global memory, aligned to that, in one access; nvcc splits such a store of words that come from PTX.
__device__ __forceinline__ void store_words(void* p, unsigned a, unsigned b, unsigned c, unsigned d) {
#if defined(__CUDACC__)
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(__cvta_generic_to_global(p)), "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
#else
  *static_cast<uint4*>(p) = make_uint4(a, b, c, d);
#endif
}

/// Asks for what lies at `p` in global memory, which is read later, to come to the L2 cache.
__device__ __forceinline__ void prefetch([[maybe_unused]] const void* p) {
#if defined(__CUDACC__)
  asm volatile("prefetch.global.L2 [%0];" : : "l"(__cvta_generic_to_global(p)));
#endif
}

/// `count` neighbouring elements moved as one access; the address must be aligned to the whole.
template <class T, int count>
struct alignas(sizeof(T) * count) Pack {
  T at[count];
};
/// As many elements as 16 bytes hold.
template <class T>
inline constexpr int pack_size = static_cast<int>(16 / sizeof(T));

template <int count, class T>
__device__ __forceinline__ Pack<T, count> load_pack(const T* p) {
  return *reinterpret_cast<const Pack<T, count>*>(p);
}
template <int count, class T>
__device__ __forceinline__ void store_pack(T* p, const Pack<T, count>& pack) {
  *reinterpret_cast<Pack<T, count>*>(p) = pack;
}
/// Whether packs of 16 bytes may be used on this array of rows of `n` elements.
template <class T>
bool packs_fit(const T* p, std::int64_t n) {
  return reinterpret_cast<std::uintptr_t>(p) % 16 == 0 && n % pack_size<T> == 0;
}

struct Sum {
  template <class T>
  __device__ static T join(T a, T b) {
    return a + b;
  }
};
struct Largest {
  template <class T>
  __device__ static T join(T a, T b) {
    return a > b || a != a ? a : b;  // NaN wins
  }
};

/// The reduction over the 32 lanes of a full warp, in a fixed order; every lane gets it.
template <class Join, class T>
__device__ __forceinline__ T warp_reduce(T value) {
  HEARTH_UNROLL
  for (int step = warp_size / 2; step > 0; step /= 2)
    value = Join::join(value, __shfl_xor_sync(all_lanes, value, step));
  return value;
}

/// The reduction over a block of whole warps (blockDim.x a multiple of 32, at most 1024, y = z = 1), in a fixed order;
/// every thread gets it. All threads of the block must call. Ends with a barrier, so it may be called again at once.
template <class Join, class T>
__device__ T block_reduce(T value, T neutral) {
  HEARTH_SHARED(T, parts, [warp_size]);
  const int lane = lane_id(), warp = static_cast<int>(threadIdx.x) / warp_size;
  value = warp_reduce<Join>(value);
  if (lane == 0) parts[warp] = value;
  __syncthreads();
  value = lane < static_cast<int>(blockDim.x) / warp_size ? parts[lane] : neutral;
  value = warp_reduce<Join>(value);
  __syncthreads();
  return value;
}

/// Whether this block is the last of `count` to arrive at `counter`, one of arrival_counters(). What all of them did
/// before they arrived is done and seen by it, and by nobody else. All threads of the block call and get the answer.
__device__ inline bool last_to_arrive(unsigned* counter, unsigned count) {
  HEARTH_SHARED(unsigned, before, [1]);
  __syncthreads();
  if (threadIdx.x == 0) {
    // A fence holds for all that this thread has seen, so for what the block did before the barrier.
    __threadfence();
    before[0] = atomicAdd(counter, 1u);
    if (before[0] == count - 1) atomicExch(counter, 0u);
#if !defined(__CUDACC__)
    emulate::note_arrival(counter, before[0] == count - 1);
#endif
    __threadfence();
  }
  __syncthreads();
  return before[0] == count - 1;
}

}  // namespace hearth::cuda
