// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/cpu/parallel.h"
#include "core/dtype.h"
#include "ops/index/sort.h"

namespace hearth::kernels {
namespace {

/// As a type that compares: 16-bit types in f32.
template <class T>
auto comparable(T value) {
  if constexpr (std::is_same_v<T, f16> || std::is_same_v<T, bf16>)
    return static_cast<float>(value);
  else
    return value;
}

template <class V>
bool below(V a, V b) {
  if constexpr (std::is_floating_point_v<V>)
    return std::isnan(b) ? !std::isnan(a) : a < b;
  else
    return a < b;
}

template <class T>
void sort_row(const T* row, std::int64_t cols, std::int64_t k, bool descending, std::vector<std::int64_t>& order,
              std::int64_t* columns) {
  order.resize(static_cast<std::size_t>(cols));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  // The position decides between equals, so any algorithm is stable.
  const auto before = [&](std::int64_t a, std::int64_t b) {
    const auto va = comparable(row[a]), vb = comparable(row[b]);
    if (below(va, vb)) return !descending;
    if (below(vb, va)) return descending;
    return a < b;
  };
  if (k == cols)
    std::sort(order.begin(), order.end(), before);
  else
    std::partial_sort(order.begin(), order.begin() + k, order.end(), before);
  std::copy_n(order.begin(), k, columns);
}

}  // namespace

void sort_columns(cpu::Stream&, const Tensor& x, bool descending, const Tensor& columns) {
  const std::int64_t rows = x.dim(0), cols = x.dim(1), k = columns.dim(1);
  visit_dtype("sort", x.dtype(), AllTypes{}, [&]<class T>() {
    const T* const from = x.data<T>();
    std::int64_t* const to = columns.data<std::int64_t>();
    cpu::parallel_for(rows, std::max<std::int64_t>(1, (1 << 12) / cols), [&](std::int64_t begin, std::int64_t end) {
      std::vector<std::int64_t> order;
      for (std::int64_t r = begin; r < end; ++r) sort_row(from + r * cols, cols, k, descending, order, to + r * k);
    });
  });
}

}  // namespace hearth::kernels
