// SPDX-License-Identifier: Apache-2.0
// CUDA's arithmetic words that the host's <math.h> does not have. The approximate ones are off by up to 2 ulp
// (rounding.h).
#pragma once

#include <math.h>  // the global names that kernels use

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <type_traits>

#include "tests/emulated_gpu/rounding.h"

// --- smaller and larger, for equal types as CUDA has them; a number wins over NaN
// ----------------------------

template <class T>
requires std::is_integral_v<T>
constexpr T min(T a, T b) { return b < a ? b : a; }
template <class T>
requires std::is_integral_v<T>
constexpr T max(T a, T b) { return a < b ? b : a; }
inline float min(float a, float b) { return ::fminf(a, b); }
inline float max(float a, float b) { return ::fmaxf(a, b); }
inline double min(double a, double b) { return ::fmin(a, b); }
inline double max(double a, double b) { return ::fmax(a, b); }

// --- floating point
// ---------------------------------------------------------------------------------------------------

inline float rsqrtf(float x) { return hearth::cuda::emulate::approximate(1.0f / sqrtf(x), x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
inline float normcdff(float x) { return 0.5f * erfcf(-x * 0.70710678118654752f); }
inline double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }

// glibc declares some of these names for itself, so they are macros over our own.
namespace hearth::cuda::emulate {
inline float fast_exp(float x) { return approximate(expf(x), x); }
inline float fast_exp2(float x) { return approximate(exp2f(x), x); }
inline float fast_exp10(float x) { return approximate(powf(10.0f, x), x); }
inline float fast_log(float x) { return approximate(logf(x), x); }
inline float fast_log2(float x) { return approximate(log2f(x), x); }
inline float fast_log10(float x) { return approximate(log10f(x), x); }
inline float fast_sin(float x) { return approximate(sinf(x), x); }
inline float fast_cos(float x) { return approximate(cosf(x), x); }
inline float fast_tan(float x) { return approximate(tanf(x), x); }
inline float fast_pow(float x, float y) { return approximate(powf(x, y), x); }
inline float fast_tanh(float x) { return approximate(tanhf(x), x); }
inline void fast_sincos(float x, float* s, float* c) {
  *s = fast_sin(x);
  *c = fast_cos(x);
}
}  // namespace hearth::cuda::emulate
#define __expf ::hearth::cuda::emulate::fast_exp
#define __exp10f ::hearth::cuda::emulate::fast_exp10
#define __logf ::hearth::cuda::emulate::fast_log
#define __log2f ::hearth::cuda::emulate::fast_log2
#define __log10f ::hearth::cuda::emulate::fast_log10
#define __sinf ::hearth::cuda::emulate::fast_sin
#define __cosf ::hearth::cuda::emulate::fast_cos
#define __tanf ::hearth::cuda::emulate::fast_tan
#define __powf ::hearth::cuda::emulate::fast_pow
#define __tanhf ::hearth::cuda::emulate::fast_tanh
#define __sincosf ::hearth::cuda::emulate::fast_sincos

inline float __fdividef(float a, float b) { return hearth::cuda::emulate::approximate(a / b, b); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __frsqrt_rn(float a) { return static_cast<float>(1.0 / sqrt(static_cast<double>(a))); }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __drcp_rn(double a) { return 1.0 / a; }
inline double __dsqrt_rn(double a) { return sqrt(a); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
// Never fused with a neighbouring operation: through a volatile object, which the compiler may not contract over.
inline float __fadd_rn(float a, float b) {
  const volatile float sum = a + b;
  return sum;
}
inline float __fsub_rn(float a, float b) { return __fadd_rn(a, -b); }
inline float __fmul_rn(float a, float b) {
  const volatile float product = a * b;
  return product;
}
inline double __dadd_rn(double a, double b) {
  const volatile double sum = a + b;
  return sum;
}
inline double __dsub_rn(double a, double b) { return __dadd_rn(a, -b); }
inline double __dmul_rn(double a, double b) {
  const volatile double product = a * b;
  return product;
}
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

// --- conversions
// ------------------------------------------------------------------------------------------------------

inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline int __double2hiint(double x) { return static_cast<int>(std::bit_cast<std::uint64_t>(x) >> 32); }
inline int __double2loint(double x) { return static_cast<int>(std::bit_cast<std::uint64_t>(x)); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }
/// To the nearest integer, ties to even; out of range to the nearest representable, NaN to 0, as the hardware.
inline int __float2int_rn(float x) {
  if (x != x) return 0;
  if (x >= 2147483648.0f) return 2147483647;
  return x < -2147483648.0f ? -2147483647 - 1 : static_cast<int>(nearbyintf(x));
}
inline int __float2int_rd(float x) { return __float2int_rn(floorf(x)); }
inline int __float2int_ru(float x) { return __float2int_rn(ceilf(x)); }
inline int __float2int_rz(float x) { return __float2int_rn(truncf(x)); }

// --- integers
// ---------------------------------------------------------------------------------------------------------

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline int __ffsll(long long x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned long long>(x)) + 1; }
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; ++i) reversed |= (x >> i & 1u) << (31 - i);
  return reversed;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(std::uint64_t{a} * b >> 32); }
inline int __mulhi(int a, int b) { return static_cast<int>(std::int64_t{a} * b >> 32); }
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
  return static_cast<unsigned>(((std::uint64_t{high} << 32 | low) << (by & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  return static_cast<unsigned>((std::uint64_t{high} << 32 | low) >> (by & 31));
}
/// Four bytes chosen from the eight of x (bytes 0 to 3) and y (4 to 7).
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const std::uint64_t bytes = std::uint64_t{y} << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned choice = selector >> 4 * i & 15;
    const unsigned byte = static_cast<unsigned>(bytes >> 8 * (choice & 7) & 0xff);
    result |= ((choice & 8) != 0 ? ((byte & 0x80) != 0 ? 0xffu : 0u) : byte) << 8 * i;
  }
  return result;
}

// --- loads and stores with a cache hint
// -------------------------------------------------------------------------------

template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcs(const T* p) {
  return *p;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
template <class T>
T __ldca(const T* p) {
  return *p;
}
template <class T>
void __stcs(T* p, std::type_identity_t<T> value) {
  *p = value;
}
template <class T>
void __stcg(T* p, std::type_identity_t<T> value) {
  *p = value;
}
template <class T>
void __stwt(T* p, std::type_identity_t<T> value) {
  *p = value;
}
