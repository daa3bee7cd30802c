// SPDX-License-Identifier: Apache-2.0
// Reading is one memcpy a row. Gradients go by target row: the positions are sorted by id (a stable counting sort),
// then each target row is summed by one task in order of the positions, so there are no atomics and no races.
#include <algorithm>
#include <cstring>
#include <vector>

#include "core/cpu/element.h"
#include "core/cpu/parallel.h"
#include "ops/index/index.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/index/index_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

/// y[0..cols) = the sum of the rows places[0..n) of x, whose rows lie `pitch` apart.
template <class T>
void sum_places(const T* x, std::int64_t pitch, const std::int64_t* places, std::int64_t n, std::int64_t cols, T* y) {
  constexpr std::int64_t tile = 256;
  double total[tile];
  for (std::int64_t begin = 0; begin < cols; begin += tile) {
    const std::int64_t count = std::min(tile, cols - begin);
#pragma omp simd
    for (std::int64_t c = 0; c < count; ++c) total[c] = 0;
    for (std::int64_t k = 0; k < n; ++k) {
      const T* const row = x + places[k] * pitch + begin;
#pragma omp simd
      for (std::int64_t c = 0; c < count; ++c) total[c] += static_cast<double>(cpu::load(row + c));
    }
#pragma omp simd
    for (std::int64_t c = 0; c < count; ++c) cpu::store(y + begin + c, static_cast<acc_t<T>>(total[c]));
  }
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {
namespace {

constexpr std::int64_t index_grain = 1 << 14;

std::int64_t rows_a_task(std::int64_t inner) {
  return std::max<std::int64_t>(1, index_grain / std::max<std::int64_t>(inner, 1));
}

/// Places sorted by id: those of id r are order[begin[r]] to order[begin[r + 1] - 1], ascending.
struct PlacesById {
  std::vector<std::int64_t> begin;
  std::vector<std::int64_t> order;

  PlacesById(const std::int64_t* ids, std::int64_t count, std::int64_t rows)
      : begin(static_cast<std::size_t>(rows) + 1, 0), order(static_cast<std::size_t>(count)) {
    for (std::int64_t i = 0; i < count; ++i) ++begin[static_cast<std::size_t>(ids[i]) + 1];
    for (std::size_t r = 1; r < begin.size(); ++r) begin[r] += begin[r - 1];
    std::vector<std::int64_t> next(begin.begin(), begin.end() - 1);
    for (std::int64_t i = 0; i < count; ++i)
      order[static_cast<std::size_t>(next[static_cast<std::size_t>(ids[i])]++)] = i;
  }
};

}  // namespace

void check_indices(cpu::Stream&, const char* op, const Tensor& ids, std::int64_t size) {
  const std::int64_t* const values = ids.data<std::int64_t>();
  for (std::int64_t i = 0; i < ids.size(); ++i) {
    if (values[i] >= 0 && values[i] < size) [[likely]]
      continue;
    throw IndexError(join_text(op, ": index ", values[i], " at place ", i, " of ids ", ids.shape(),
                               "; it must lie in [0, ", size, ")"));
  }
}

void take_rows(cpu::Stream&, const Tensor& x, const AroundAxis& in, const Tensor& ids, const Tensor& y) {
  if (y.size() == 0) return;
  const std::int64_t outer = in.outer, rows = in.rows, inner = in.inner;
  const std::int64_t* const id = ids.data<std::int64_t>();
  const std::int64_t count = ids.size();
  const auto bytes = inner * static_cast<std::int64_t>(size_of(x.dtype()));
  cpu::parallel_for(outer * count, rows_a_task(inner), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; ++at) {
      const std::int64_t row = at / count * rows + id[at % count];
      std::memcpy(y.bytes() + at * bytes, x.bytes() + row * bytes, static_cast<std::size_t>(bytes));
    }
  });
}

void sum_rows_by_id(cpu::Stream&, const Tensor& dy, const AroundAxis& in, const Tensor& ids, const Tensor& dx) {
  if (dx.size() == 0) return;
  const std::int64_t outer = in.outer, rows = in.rows, inner = in.inner;
  const std::int64_t count = ids.size();
  const PlacesById places(ids.data<std::int64_t>(), count, rows);
  visit_dtype("index gradient", dy.dtype(), Floats{}, [&]<class T>() {
    const T* const from = dy.data<T>();
    T* const to = dx.data<T>();
    cpu::parallel_for(outer * rows, rows_a_task(inner), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t at = begin; at < end; ++at) {
        const auto r = static_cast<std::size_t>(at % rows);
        const std::int64_t first = places.begin[r];
        const std::int64_t hits = places.begin[r + 1] - first;
        T* const row = to + at * inner;
        if (hits == 0)
          std::fill_n(row, inner, T{});
        else
          HEARTH_ISA_CALL(sum_places, from + at / rows * count * inner, inner, places.order.data() + first, hits, inner,
                          row);
      }
    });
  });
}

void take_along(cpu::Stream&, const Tensor& x, const AroundAxis& in, const Tensor& ids, const Tensor& y) {
  if (y.size() == 0) return;
  const std::int64_t outer = in.outer, rows = in.rows, inner = in.inner;
  const std::int64_t count = ids.size() / (outer * inner);
  const std::int64_t* const id = ids.data<std::int64_t>();
  visit_width(x.dtype(), [&]<class T>() {
    const T* const from = reinterpret_cast<const T*>(x.bytes());
    T* const to = reinterpret_cast<T*>(y.bytes());
    cpu::parallel_for(outer * count, rows_a_task(inner), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t at = begin; at < end; ++at) {
        const T* const slab = from + at / count * rows * inner;
        for (std::int64_t i = 0; i < inner; ++i) to[at * inner + i] = slab[id[at * inner + i] * inner + i];
      }
    });
  });
}

void sum_along(cpu::Stream&, const Tensor& dy, const AroundAxis& in, const Tensor& ids, const Tensor& dx) {
  if (dx.size() == 0) return;
  const std::int64_t outer = in.outer, rows = in.rows, inner = in.inner;
  const std::int64_t count = ids.size() / (outer * inner);
  // Column strips narrow enough for their sums to stay in cache.
  const std::int64_t tile = std::clamp<std::int64_t>((1 << 16) / rows, 1, inner);
  const std::int64_t tiles = (inner + tile - 1) / tile;
  const std::int64_t* const id = ids.data<std::int64_t>();
  visit_dtype("gather gradient", dy.dtype(), Floats{}, [&]<class T>() {
    const T* const from = dy.data<T>();
    T* const to = dx.data<T>();
    const auto strip = [&](std::int64_t o, std::int64_t begin, std::int64_t cols, std::vector<double>& total) {
      total.assign(static_cast<std::size_t>(rows * cols), 0.0);
      for (std::int64_t j = 0; j < count; ++j) {
        const std::int64_t at = (o * count + j) * inner + begin;
        for (std::int64_t c = 0; c < cols; ++c)
          total[static_cast<std::size_t>(id[at + c] * cols + c)] += static_cast<double>(cpu::load(from + at + c));
      }
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < cols; ++c)
          cpu::store(to + (o * rows + r) * inner + begin + c,
                     static_cast<acc_t<T>>(total[static_cast<std::size_t>(r * cols + c)]));
    };
    cpu::parallel_for(outer * tiles, rows_a_task((rows + count) * tile), [&](std::int64_t begin, std::int64_t end) {
      std::vector<double> total;
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t column = task % tiles * tile;
        strip(task / tiles, column, std::min(tile, inner - column), total);
      }
    });
  });
}

}  // namespace hearth::kernels
#endif
