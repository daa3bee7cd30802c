// SPDX-License-Identifier: Apache-2.0
// Sums are kept in acc_t for a short block, then in f64. Work is cut by shape: long sums into segments whose partial
// sums are combined in order, so the thread pool's size never shows.
#include <algorithm>
#include <limits>
#include <vector>

#include "core/cpu/element.h"
#include "core/cpu/parallel.h"
#include "ops/reduce/reduce.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/reduce/reduce_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

/// The sum of n consecutive elements: 32 lanes, each of at most 16 elements in acc_t, then f64.
template <class T>
void row_sum(const T* x, std::int64_t n, double* result) {
  constexpr std::int64_t lanes = 32;
  constexpr std::int64_t block = lanes * 16;
  double total = 0;
  std::int64_t i = 0;
  while (n - i >= lanes) {
    const std::int64_t end = i + std::min(block, (n - i) / lanes * lanes);
    acc_t<T> lane[lanes] = {};
    for (; i < end; i += lanes) {
#pragma omp simd
      for (std::int64_t l = 0; l < lanes; ++l) lane[l] += cpu::load(x + i + l);
    }
    for (const acc_t<T> value : lane) total += static_cast<double>(value);
  }
  for (; i < n; ++i) total += static_cast<double>(cpu::load(x + i));
  *result = total;
}

/// Column sums of `rows` x `cols` elements, rows `pitch` apart; cols <= 256.
template <class T>
void column_sum(const T* x, std::int64_t rows, std::int64_t cols, std::int64_t pitch, double* result) {
  acc_t<T> part[256];
  std::fill_n(result, cols, 0.0);
  for (std::int64_t begin = 0; begin < rows; begin += 16) {
    const std::int64_t end = std::min(rows, begin + 16);
    std::fill_n(part, cols, acc_t<T>(0));
    for (std::int64_t r = begin; r < end; ++r) {
      const T* const row = x + r * pitch;
#pragma omp simd
      for (std::int64_t c = 0; c < cols; ++c) part[c] += cpu::load(row + c);
    }
#pragma omp simd
    for (std::int64_t c = 0; c < cols; ++c) result[c] += static_cast<double>(part[c]);
  }
}

/// The largest of `sign` times the elements, and whether one is not a number.
template <class T>
void row_extreme(const T* x, std::int64_t n, bool smallest, acc_t<T>* value, bool* has_nan) {
  constexpr std::int64_t lanes = 16;
  const auto read = [](const T* p) {
    if constexpr (std::is_integral_v<T>)
      return *p;
    else
      return cpu::load(p);
  };
  acc_t<T> best[lanes];
  int odd[lanes] = {};
  for (acc_t<T>& b : best) b = read(x);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
#pragma omp simd
    for (std::int64_t l = 0; l < lanes; ++l) {
      const acc_t<T> v = read(x + i + l);
      const bool better = smallest ? v < best[l] : v > best[l];
      best[l] = better ? v : best[l];
      odd[l] |= v != v;
    }
  }
  for (; i < n; ++i) {
    const acc_t<T> v = read(x + i);
    best[0] = (smallest ? v < best[0] : v > best[0]) ? v : best[0];
    odd[0] |= v != v;
  }
  *value = best[0];
  *has_nan = false;
  for (std::int64_t l = 0; l < lanes; ++l) {
    *value = (smallest ? best[l] < *value : best[l] > *value) ? best[l] : *value;
    *has_nan = *has_nan || odd[l] != 0;
  }
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {
namespace {

constexpr std::int64_t reduce_grain = 1 << 14;

template <class T>
void store_scaled(T* y, double value, double scale) {
  cpu::store(y, static_cast<acc_t<T> >(value * scale));
}

template <class In, class Out>
void sum_rows(const In* x, std::int64_t rows, std::int64_t cols, double scale, Out* y) {
  constexpr std::int64_t segment = 1 << 16;
  if (cols <= segment) {
    cpu::parallel_for(rows, std::max<std::int64_t>(1, reduce_grain / std::max<std::int64_t>(cols, 1)),
                      [&](std::int64_t begin, std::int64_t end) {
                        for (std::int64_t r = begin; r < end; ++r) {
                          double total = 0;
                          HEARTH_ISA_CALL_FOR(In, row_sum, x + r * cols, cols, &total);
                          store_scaled(y + r, total, scale);
                        }
                      });
    return;
  }
  const std::int64_t segments = (cols + segment - 1) / segment;
  std::vector<double> partial(static_cast<std::size_t>(rows * segments));
  cpu::parallel_chunks(rows * segments, [&](std::int64_t task) {
    const std::int64_t begin = task % segments * segment;
    HEARTH_ISA_CALL_FOR(In, row_sum, x + task / segments * cols + begin, std::min(segment, cols - begin),
                        &partial[static_cast<std::size_t>(task)]);
  });
  for (std::int64_t r = 0; r < rows; ++r) {
    double total = 0;
    for (std::int64_t s = 0; s < segments; ++s) total += partial[static_cast<std::size_t>(r * segments + s)];
    store_scaled(y + r, total, scale);
  }
}

template <class In, class Out>
void sum_columns(const In* x, std::int64_t outer, std::int64_t reduced, std::int64_t inner, double scale, Out* y) {
  constexpr std::int64_t tile = 256;
  // At most 64 partial sums a column bound the extra memory.
  const std::int64_t segment = std::max<std::int64_t>(64, (reduced + 63) / 64);
  const std::int64_t segments = (reduced + segment - 1) / segment;
  const std::int64_t tiles = (inner + tile - 1) / tile;
  std::vector<double> partial(segments > 1 ? static_cast<std::size_t>(outer * segments * inner) : 0);
  const std::int64_t task_size = std::min(segment, reduced) * std::min(tile, inner);
  const auto run_task = [&](std::int64_t task) {
    const std::int64_t t = task % tiles, s = task / tiles % segments, o = task / tiles / segments;
    const std::int64_t cols = std::min(tile, inner - t * tile);
    const std::int64_t rows = std::min(segment, reduced - s * segment);
    const In* const from = x + (o * reduced + s * segment) * inner + t * tile;
    double total[tile];
    HEARTH_ISA_CALL_FOR(In, column_sum, from, rows, cols, inner, total);
    if (segments > 1) {
      std::copy_n(total, cols, partial.data() + (o * segments + s) * inner + t * tile);
    } else {
      for (std::int64_t c = 0; c < cols; ++c) store_scaled(y + o * inner + t * tile + c, total[c], scale);
    }
  };
  cpu::parallel_for(outer * segments * tiles,
                    std::max<std::int64_t>(1, reduce_grain / std::max<std::int64_t>(task_size, 1)),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t task = begin; task < end; ++task) run_task(task);
                    });
  if (segments == 1) return;
  cpu::parallel_for(outer * inner, std::max<std::int64_t>(1, reduce_grain / segments),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t at = begin; at < end; ++at) {
                        const double* const column = partial.data() + at / inner * segments * inner + at % inner;
                        double total = 0;
                        for (std::int64_t s = 0; s < segments; ++s) total += column[s * inner];
                        store_scaled(y + at, total, scale);
                      }
                    });
}

template <class T>
std::int64_t first_place(const T* x, std::int64_t n, acc_t<T> value, bool is_nan) {
  for (std::int64_t i = 0; i < n; ++i) {
    const acc_t<T> v = static_cast<acc_t<T> >(x[i]);
    if (is_nan ? v != v : v == value) return i;
  }
  throw InternalError("extreme: the extreme element was not found again");
}

}  // namespace

void sum(cpu::Stream&, const Tensor& x, std::int64_t outer, std::int64_t reduced, std::int64_t inner, double scale,
         const Tensor& y) {
  const auto run = [&]<class In, class Out>() {
    if (inner == 1)
      sum_rows(x.data<In>(), outer, reduced, scale, y.data<Out>());
    else
      sum_columns(x.data<In>(), outer, reduced, inner, scale, y.data<Out>());
  };
  visit_dtype("sum", x.dtype(), Floats{}, [&]<class In>() {
    if (y.dtype() == x.dtype())
      run.template operator()<In, In>();
    else if (y.dtype() == DType::f64)
      run.template operator()<In, double>();
    else if constexpr (std::is_same_v<In, double>)
      visit_dtype("sum", y.dtype(), Floats{}, [&]<class Out>() { run.template operator()<double, Out>(); });
    else
      throw InternalError("sum: neither type is f64");
  });
}

void extreme(cpu::Stream&, Extreme kind, const Tensor& x, std::int64_t rows, std::int64_t cols, const Tensor& y,
             const Tensor& column) {
  const bool smallest = kind == Extreme::smallest;
  visit_dtype("extreme", x.dtype(), Types<float, double, f16, bf16, std::int32_t, std::int64_t>{}, [&]<class T>() {
    const T* const from = x.data<T>();
    T* const to = y.defined() ? y.data<T>() : nullptr;
    std::int64_t* const places = column.data<std::int64_t>();
    cpu::parallel_for(rows, std::max<std::int64_t>(1, reduce_grain / cols), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const T* const row = from + r * cols;
        acc_t<T> value{};
        bool has_nan = false;
        HEARTH_ISA_CALL_FOR(T, row_extreme, row, cols, smallest, &value, &has_nan);
        places[r] = first_place(row, cols, value, has_nan);
        if (to != nullptr) to[r] = row[places[r]];
      }
    });
  });
}

void extreme_grad(cpu::Stream&, const Tensor& dy, const Tensor& column, std::int64_t rows, std::int64_t cols,
                  const Tensor& dx) {
  visit_dtype("extreme", dy.dtype(), Floats{}, [&]<class T>() {
    const T* const from = dy.data<T>();
    const std::int64_t* const places = column.data<std::int64_t>();
    T* const to = dx.data<T>();
    cpu::parallel_for(rows, std::max<std::int64_t>(1, reduce_grain / cols), [&](std::int64_t begin, std::int64_t end) {
      std::fill(to + begin * cols, to + end * cols, T{});
      for (std::int64_t r = begin; r < end; ++r) to[r * cols + places[r]] = from[r];
    });
  });
}

}  // namespace hearth::kernels
#endif
