// SPDX-License-Identifier: Apache-2.0
#include "core/convert.h"

#include <algorithm>

#include "core/cpu/element.h"
#include "core/cpu/parallel.h"

#ifndef HEARTH_ISA_NAMESPACE
namespace hearth {
namespace {
template <class T>
constexpr bool is_floating_element = std::is_floating_point_v<acc_t<T>>;
}  // namespace
}  // namespace hearth
#endif

namespace hearth {}

#define HEARTH_ISA_SOURCE "core/convert.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::HEARTH_ISA_NAMESPACE {

template <class From, class To>
void convert_run(const From* __restrict source, To* __restrict destination, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    // Structs copied in a loop would keep it from vectorising; see core/cpu/element.h.
    if constexpr (std::is_same_v<From, double> && sizeof(To) == 2)
      cpu::store(destination + i, cut_to_odd(source[i]));
    else if constexpr (is_floating_element<From> && is_floating_element<To>)
      cpu::store(destination + i, static_cast<acc_t<To>>(cpu::load(source + i)));
    else
      destination[i] = convert_element<To>(source[i]);
  }
}

}  // namespace hearth::HEARTH_ISA_NAMESPACE
#else

namespace hearth {
namespace {

constexpr std::int64_t grain = 1 << 16;

template <class From, class To>
void copy_nested(const StridedBytes& source, const StridedBytes& destination, const Shape& shape) {
  const auto* from = reinterpret_cast<const From*>(source.bytes);
  auto* to = reinterpret_cast<To*>(destination.bytes);
  const int rank = shape.rank();
  if (rank == 0) {
    *to = convert_element<To>(*from);
    return;
  }
  const std::int64_t inner = shape[rank - 1];
  const std::int64_t from_step = source.strides[static_cast<std::size_t>(rank - 1)];
  const std::int64_t to_step = destination.strides[static_cast<std::size_t>(rank - 1)];
  const std::int64_t outer = shape.size() / inner;
  cpu::parallel_for(outer, std::max<std::int64_t>(1, grain / inner), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      std::int64_t rest = row, from_at = 0, to_at = 0;
      for (int axis = rank - 2; axis >= 0; --axis) {
        const std::int64_t index = rest % shape[axis];
        rest /= shape[axis];
        from_at += index * source.strides[static_cast<std::size_t>(axis)];
        to_at += index * destination.strides[static_cast<std::size_t>(axis)];
      }
      for (std::int64_t i = 0; i < inner; ++i)
        to[to_at + i * to_step] = convert_element<To>(from[from_at + i * from_step]);
    }
  });
}

}  // namespace

namespace kernels {

void fill(cpu::Stream&, DType dtype, std::byte* y, std::int64_t n, double value) {
  visit_dtype("fill", dtype, AllTypes{},
              [&]<class T>() { std::fill_n(reinterpret_cast<T*>(y), n, convert_element<T>(value)); });
}

void convert(cpu::Stream&, DType from, const std::byte* source, DType to, std::byte* destination, std::int64_t n) {
  visit_dtype("convert", from, AllTypes{}, [&]<class From>() {
    visit_dtype("convert", to, AllTypes{}, [&]<class To>() {
      const auto* in = reinterpret_cast<const From*>(source);
      auto* out = reinterpret_cast<To*>(destination);
      cpu::parallel_for(n, grain, [&](std::int64_t begin, std::int64_t end) {
        HEARTH_ISA_CALL(convert_run, in + begin, out + begin, end - begin);
      });
    });
  });
}

void copy_strided(cpu::Stream&, const StridedBytes& source, const StridedBytes& destination, const Shape& shape) {
  if (shape.size() == 0) return;
  visit_dtype("copy", source.dtype, AllTypes{}, [&]<class From>() {
    if (source.dtype == destination.dtype) {
      copy_nested<From, From>(source, destination, shape);
      return;
    }
    visit_dtype("copy", destination.dtype, AllTypes{},
                [&]<class To>() { copy_nested<From, To>(source, destination, shape); });
  });
}

}  // namespace kernels
}  // namespace hearth
#endif
