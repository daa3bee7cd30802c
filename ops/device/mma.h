// SPDX-License-Identifier: Apache-2.0
// The instructions that have no word in CUDA C++: tensor-core products, matrix loads from shared memory, asynchronous
// copies into it, and the bare power of two and reciprocal. But for the conversions in kernel.h this is the only inline
// PTX of the code base. Each entry is one instruction with an emulated twin (tests/emulated_gpu/mma.cpp); layouts are
// those of the PTX ISA, chapter "Matrix multiply-accumulate". All 32 lanes of a warp must come to mma and ldmatrix
// together.
#pragma once

#include "core/cuda/kernel.h"

#if !defined(__CUDACC__)
#include "tests/emulated_gpu/mma.h"
#endif

namespace hearth::cuda {

/// d += a b with a [16, 16], b [16, 8] and d [16, 8] spread over the warp, T bf16 or f16, two elements a word, sums in
/// f32. With g = lane / 4 and t = lane % 4, a lane holds in each word the columns 2t and 2t + 1 of a, or rows of b:
///   a[0] row g, a[1] row g + 8, a[2] row g and columns + 8, a[3] row g + 8 and columns + 8;
///   b[0] rows 2t, 2t + 1 of column g, b[1] the same 8 rows below;
///   d[0], d[1] row g, columns 2t and 2t + 1; d[2], d[3] row g + 8.
template <class T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  static_assert(std::is_same_v<T, bf16> || std::is_same_v<T, f16>, "mma_m16n8k16 multiplies bf16 or f16");
#if defined(__CUDACC__)
  if constexpr (std::is_same_v<T, bf16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
#else
  emulate::mma_m16n8k16(d, a, b, std::is_same_v<T, bf16>);
#endif
}

/// Loads `count` (1, 2 or 4) matrices of 8 x 8 elements of 16 bits from shared memory. Lane 8m + r hands in the address
/// of row r of matrix m, 16 bytes, aligned to 16; lanes from 8 count on hand in anything. Lane l gets in to[m] elements
/// 2 (l % 4) and + 1 of row l / 4 of matrix m.
template <int count>
__device__ __forceinline__ void ldmatrix(unsigned (&to)[count], const void* row) {
  static_assert(count == 1 || count == 2 || count == 4);
#if defined(__CUDACC__)
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if constexpr (count == 1)
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(to[0]) : "r"(address) : "memory");
  else if constexpr (count == 2)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1])
                 : "r"(address)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
#else
  emulate::ldmatrix(to, count, row, false);
#endif
}

/// As ldmatrix, but each matrix is transposed on the way: lane l gets elements l / 4 of rows 2 (l % 4) and + 1.
template <int count>
__device__ __forceinline__ void ldmatrix_transposed(unsigned (&to)[count], const void* row) {
  static_assert(count == 1 || count == 2 || count == 4);
#if defined(__CUDACC__)
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if constexpr (count == 1)
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(to[0]) : "r"(address) : "memory");
  else if constexpr (count == 2)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1])
                 : "r"(address)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
#else
  emulate::ldmatrix(to, count, row, true);
#endif
}

/// Starts to copy 16 bytes from global to shared memory, both aligned to 16. With valid = false nothing is read and
/// zeros are written (the address must still be one of the array). The bytes are there for this thread after the
/// cp_async_wait that covers the group, for others after a barrier behind it.
__device__ __forceinline__ void cp_async(void* shared, const void* global, bool valid = true) {
#if defined(__CUDACC__)
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(address), "l"(__cvta_generic_to_global(global)), "r"(valid ? 16 : 0)
               : "memory");
#else
  emulate::cp_async(shared, global, valid);
#endif
}

/// Closes the group of copies that this thread has started since the last one.
__device__ __forceinline__ void cp_async_commit() {
#if defined(__CUDACC__)
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  emulate::cp_async_commit();
#endif
}

/// Waits until at most the `pending` latest groups of this thread are under way.
template <int pending>
__device__ __forceinline__ void cp_async_wait() {
  static_assert(pending >= 0);
#if defined(__CUDACC__)
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
#else
  emulate::cp_async_wait(pending);
#endif
}

/// 2 to the power of x, to 22 bits; 0 where that would be subnormal.
__device__ __forceinline__ float exp2_rounded(float x) {
#if defined(__CUDACC__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return x < -126.0f ? 0.0f : emulate::fast_exp2(x);
#endif
}

/// 1 / x to 23 bits; 0 where that would be subnormal. x must not be subnormal.
__device__ __forceinline__ float reciprocal_rounded(float x) {
#if defined(__CUDACC__)
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::abs(x) > 0x1p126f ? 0.0f : __fdividef(1.0f, x);
#endif
}

}  // namespace hearth::cuda
