// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/blocks.h"

#include "core/cpu/element.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "core/cpu/blocks.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::cpu::HEARTH_ISA_NAMESPACE {

template <class From, class To>
void convert_block(const From* from, To* to, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) cpu::store(to + i, cpu::load(from + i));
}

}  // namespace hearth::cpu::HEARTH_ISA_NAMESPACE
#else
namespace hearth::cpu {

void upcast(const f16* x, float* strip, std::int64_t n) { HEARTH_ISA_CALL(convert_block, x, strip, n); }
void upcast(const bf16* x, float* strip, std::int64_t n) { HEARTH_ISA_CALL(convert_block, x, strip, n); }
void cast_down(const float* strip, f16* y, std::int64_t n) { HEARTH_ISA_CALL(convert_block, strip, y, n); }
void cast_down(const float* strip, bf16* y, std::int64_t n) { HEARTH_ISA_CALL(convert_block, strip, y, n); }

}  // namespace hearth::cpu
#endif
