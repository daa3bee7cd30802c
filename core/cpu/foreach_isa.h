// SPDX-License-Identifier: Apache-2.0
// Compiles a kernel source once per instruction-set level, each in its own namespace, so that one
// binary uses wide vectors where the processor has them. A kernel file looks like this:
//
//   #include <...>                                         // every include, before the loop
//   namespace hearth {}                                    // ends what clangd compiles ahead of the rest of the file
//   #define HEARTH_ISA_SOURCE "ops/softmax/softmax_cpu.cpp"
//   #include "core/cpu/foreach_isa.h"               // includes this very file once per ISA level
//   #ifdef HEARTH_ISA_NAMESPACE
//   namespace hearth::kernels::HEARTH_ISA_NAMESPACE { template <class T> void rows(...) { plain loops } }
//   #else
//   namespace hearth::kernels { ... HEARTH_ISA_CALL(rows<T>, x, y, n); ... }
//   #endif
//
// HEARTH_ISA_CALL_UP_TO_V3 leaves v4 out: for f64, integers and what memory bounds, where wider vectors gain little and
// a third of the code is saved. HEARTH_ISA_CALL_FOR(T, ...) does so where T is f64 or f16.
// Inside the per-ISA level part nothing may be included, and only templates and functions of that namespace
// (or small inline arithmetic such as core/half.h, which is inlined) may be called in hot loops.
// HEARTH_ISA_VECTOR_BYTES is the ISA level's vector size; __AVX512F__ and the like do not follow the ISA level.
#ifndef HEARTH_ISA_SOURCE
#error "define HEARTH_ISA_SOURCE before including foreach_isa.h"
#endif

#ifndef HEARTH_ISA_NAMESPACE
#include "core/cpu/isa.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512")
#define HEARTH_ISA_NAMESPACE isa_v4
#define HEARTH_ISA_VECTOR_BYTES 64
#include HEARTH_ISA_SOURCE
#undef HEARTH_ISA_NAMESPACE
#undef HEARTH_ISA_VECTOR_BYTES
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
#define HEARTH_ISA_NAMESPACE isa_v3
#define HEARTH_ISA_VECTOR_BYTES 32
#include HEARTH_ISA_SOURCE
#undef HEARTH_ISA_NAMESPACE
#undef HEARTH_ISA_VECTOR_BYTES
#pragma GCC pop_options

#ifndef HEARTH_ISA_CALL
#define HEARTH_ISA_CALL(function, ...)                                              \
  (::hearth::cpu::isa() == ::hearth::cpu::Isa::v4   ? isa_v4::function(__VA_ARGS__) \
   : ::hearth::cpu::isa() == ::hearth::cpu::Isa::v3 ? isa_v3::function(__VA_ARGS__) \
                                                    : isa_baseline::function(__VA_ARGS__))
#define HEARTH_ISA_CALL_UP_TO_V3(function, ...) \
  (::hearth::cpu::isa() >= ::hearth::cpu::Isa::v3 ? isa_v3::function(__VA_ARGS__) : isa_baseline::function(__VA_ARGS__))
#endif
#elif !defined(HEARTH_ISA_CALL)
#define HEARTH_ISA_CALL(function, ...) (isa_baseline::function(__VA_ARGS__))
#define HEARTH_ISA_CALL_UP_TO_V3 HEARTH_ISA_CALL
#endif
#ifndef HEARTH_ISA_CALL_FOR
#define HEARTH_ISA_CALL_FOR(T, function, ...)                 \
  [&] {                                                       \
    if constexpr (::hearth::cpu::has_v4<T>)                   \
      return HEARTH_ISA_CALL(function, __VA_ARGS__);          \
    else                                                      \
      return HEARTH_ISA_CALL_UP_TO_V3(function, __VA_ARGS__); \
  }()
#endif

#define HEARTH_ISA_NAMESPACE isa_baseline
#define HEARTH_ISA_VECTOR_BYTES 16
#include HEARTH_ISA_SOURCE
#undef HEARTH_ISA_NAMESPACE
#undef HEARTH_ISA_VECTOR_BYTES
#undef HEARTH_ISA_SOURCE
#endif
