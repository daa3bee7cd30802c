// SPDX-License-Identifier: Apache-2.0
#include "dist/ordered_sum.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "core/error.h"
#include "core/half.h"

namespace hearth::dist {
namespace {

// Elements at a time, so that all rows of a block lie in the first cache.
constexpr std::int64_t block = 1024;

template <class T>
using Sum = std::conditional_t<std::is_same_v<T, f16> || std::is_same_v<T, bf16>, float, T>;

template <class A>
void combine(A* a, const A* b, std::int64_t count, Reduce op) {
  switch (op) {
    case Reduce::sum:
      for (std::int64_t i = 0; i < count; ++i) a[i] = static_cast<A>(a[i] + b[i]);
      return;
    case Reduce::min:
      for (std::int64_t i = 0; i < count; ++i) a[i] = b[i] < a[i] ? b[i] : a[i];
      return;
    case Reduce::max:
      for (std::int64_t i = 0; i < count; ++i) a[i] = a[i] < b[i] ? b[i] : a[i];
      return;
  }
}

template <class From, class To>
void reduce(std::span<const std::byte* const> rows, To* result, std::int64_t count, Reduce op) {
  using A = Sum<From>;
  const std::size_t ranks = rows.size();
  std::vector<A> held(ranks * block);
  for (std::int64_t begin = 0; begin < count; begin += block) {
    const std::int64_t n = std::min(block, count - begin);
    for (std::size_t r = 0; r < ranks; ++r) {
      const From* row = reinterpret_cast<const From*>(rows[r]) + begin;
      for (std::int64_t i = 0; i < n; ++i) held[r * block + static_cast<std::size_t>(i)] = static_cast<A>(row[i]);
    }
    for (std::size_t step = 1; step < ranks; step *= 2)
      for (std::size_t r = 0; r + step < ranks; r += 2 * step)
        combine(&held[r * block], &held[(r + step) * block], n, op);
    for (std::int64_t i = 0; i < n; ++i) result[begin + i] = static_cast<To>(held[static_cast<std::size_t>(i)]);
  }
}

}  // namespace

void reduce_rows(std::span<const std::byte* const> rows, DType from, std::byte* result, DType to, std::int64_t count,
                 Reduce op) {
  using Summed = Types<float, double, f16, bf16, std::int32_t, std::int64_t, std::uint8_t>;
  visit_dtype("all_reduce", from, Summed{}, [&]<class From>() {
    if (from == to) return reduce<From>(rows, reinterpret_cast<From*>(result), count, op);
    if constexpr (!std::is_same_v<Sum<From>, From>)
      if (to == DType::f32) return reduce<From>(rows, reinterpret_cast<float*>(result), count, op);
    if constexpr (std::is_same_v<From, float>) {
      if (to == DType::f16) return reduce<From>(rows, reinterpret_cast<f16*>(result), count, op);
      if (to == DType::bf16) return reduce<From>(rows, reinterpret_cast<bf16*>(result), count, op);
    }
    throw DTypeError(join_text("all_reduce: a sum of ", from, " cannot be stored as ", to));
  });
}

}  // namespace hearth::dist
