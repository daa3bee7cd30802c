// SPDX-License-Identifier: Apache-2.0
#include "core/convert_blocks.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/convert.h"
#include "core/cpu/blocks.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "core/convert_blocks.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::HEARTH_ISA_NAMESPACE {

template <class From, class To>
void convert_run(const From* from, To* to, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) to[i] = convert_element<To>(from[i]);
}

/// To an f32 that is rounded to 16 bits next.
inline void cut_run(const double* from, float* to, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) to[i] = cut_to_odd(from[i]);
}

}  // namespace hearth::HEARTH_ISA_NAMESPACE
#else

namespace hearth {
namespace {

using ComputedTypes = Types<float, double, std::int32_t, std::int64_t, std::uint8_t, bool>;

bool is_short(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }
DType computed_as(DType dtype) { return is_short(dtype) ? DType::f32 : dtype; }

void upcast_block(DType dtype, const std::byte* source, float* strip, std::int64_t n) {
  if (dtype == DType::f16)
    cpu::upcast(reinterpret_cast<const f16*>(source), strip, n);
  else
    cpu::upcast(reinterpret_cast<const bf16*>(source), strip, n);
}

void cast_down_block(DType dtype, const float* strip, std::byte* destination, std::int64_t n) {
  if (dtype == DType::f16)
    cpu::cast_down(strip, reinterpret_cast<f16*>(destination), n);
  else
    cpu::cast_down(strip, reinterpret_cast<bf16*>(destination), n);
}

template <class From, class To>
void converted(const std::byte* source, std::byte* destination, std::int64_t n) {
  HEARTH_ISA_CALL_UP_TO_V3(convert_run, reinterpret_cast<const From*>(source), reinterpret_cast<To*>(destination), n);
}

void cut(const std::byte* source, std::byte* destination, std::int64_t n) {
  HEARTH_ISA_CALL_UP_TO_V3(cut_run, reinterpret_cast<const double*>(source), reinterpret_cast<float*>(destination), n);
}

}  // namespace

BlockConversion::BlockConversion(DType from, DType to) : from_(from), to_(to) {
  if (from == to || computed_as(from) == computed_as(to)) return;
  if (from == DType::f64 && is_short(to)) {
    middle_ = cut;
    return;
  }
  visit_dtype("convert", computed_as(from), ComputedTypes{}, [&]<class From>() {
    visit_dtype("convert", computed_as(to), ComputedTypes{}, [&]<class To>() {
      if constexpr (!std::is_same_v<From, To>) middle_ = converted<From, To>;
    });
  });
}

void BlockConversion::run(const std::byte* source, std::byte* destination, std::int64_t n) const {
  if (from_ == to_) {
    std::memcpy(destination, source, static_cast<std::size_t>(n) * size_of(to_));
    return;
  }
  if (!is_short(from_) && !is_short(to_)) return middle_(source, destination, n);
  for (std::int64_t at = 0; at < n; at += cpu::block_size)
    run_short(source + at * static_cast<std::int64_t>(size_of(from_)),
              destination + at * static_cast<std::int64_t>(size_of(to_)), std::min(cpu::block_size, n - at));
}

void BlockConversion::run_short(const std::byte* source, std::byte* destination, std::int64_t n) const {
  alignas(64) float strips[2][cpu::block_size];
  const std::byte* from = source;
  if (is_short(from_)) {
    float* const strip = to_ == DType::f32 ? reinterpret_cast<float*>(destination) : strips[0];
    upcast_block(from_, source, strip, n);
    from = reinterpret_cast<const std::byte*>(strip);
  }
  if (!is_short(to_)) {
    if (middle_ != nullptr) middle_(from, destination, n);
    return;
  }
  if (middle_ != nullptr) {
    middle_(from, reinterpret_cast<std::byte*>(strips[1]), n);
    from = reinterpret_cast<const std::byte*>(strips[1]);
  }
  cast_down_block(to_, reinterpret_cast<const float*>(from), destination, n);
}

}  // namespace hearth
#endif
