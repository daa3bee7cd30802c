// SPDX-License-Identifier: Apache-2.0
// Source: Lavin, Gray, "Fast Algorithms for Convolutional Neural Networks" (CVPR 2016).
#include "ops/conv/cpu/winograd_kernels.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "core/cpu/lanes.h"
#include "ops/conv/cpu/winograd.h"

#ifndef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::winograd {

// Terms that are added up in registers: a panel of that depth stays in L1.
constexpr std::int64_t depth = 256;

}  // namespace hearth::kernels::winograd
#endif

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/conv/cpu/winograd_kernels.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::winograd::HEARTH_ISA_NAMESPACE {

#include "core/cpu/lanes.inc"

constexpr int vector_bytes = HEARTH_ISA_VECTOR_BYTES;
constexpr int lanes = vector_bytes / 4, width = 2 * lanes;
// As many rows as the registers hold: 32 vectors of 64 bytes, 16 of the shorter ones.
constexpr int register_rows = vector_bytes == 64 ? 14 : 6;

using Vector = Lanes<float>::Vector;
typedef float Unaligned __attribute__((vector_size(vector_bytes), aligned(4), may_alias));

// The first `count` of a vector; zeros for the rest.
template <class T>
inline Vector load_some(const T* from, std::int64_t count) {
  Vector v{};
  for (int i = 0; i < lanes; ++i)
    if (i < count) v[i] = static_cast<float>(from[i]);
  return v;
}

template <class T>
inline void store_some(Vector v, T* to, std::int64_t count) {
  if (count >= lanes) return store_lanes(to, v);
  for (int i = 0; i < lanes; ++i)
    if (i < count) to[i] = static_cast<T>(v[i]);
}

#include "ops/conv/cpu/winograd_lines.inc"

// Two lines of a transformed square, or one.
template <class Line, int first, int second, class Get, class Put>
inline __attribute__((always_inline)) void transform_lines(const Get& get, const Put& put) {
  Vector half[2][Line::from];
#pragma GCC unroll 6
  for (int j = 0; j < Line::from; ++j) {
    Vector in[Line::from], out[Line::to];
#pragma GCC unroll 6
    for (int i = 0; i < Line::from; ++i) in[i] = get(i, j);
    Line::run(in, out);
    half[0][j] = out[first], half[1][j] = out[second];
  }
  constexpr int rows[] = {first, second};
#pragma GCC unroll 2
  for (int i = 0; i < (first == second ? 1 : 2); ++i) {
    Vector out[Line::to];
    Line::run(half[i], out);
#pragma GCC unroll 6
    for (int j = 0; j < Line::to; ++j) put(rows[i], j, out[j]);
  }
  // Has the elements loaded again for the next lines: there are no registers for all.
  asm volatile("" ::: "memory");
}

// By way of memory, for squares of which even two lines take too many registers.
template <class Line, class Get, class Put>
inline __attribute__((always_inline)) void transform_wide(const Get& get, const Put& put) {
  Vector half[Line::to][Line::from];
#pragma GCC unroll 1
  for (int j = 0; j < Line::from; ++j) {
    Vector in[Line::from], out[Line::to];
#pragma GCC unroll 9
    for (int i = 0; i < Line::from; ++i) in[i] = get(i, j);
    Line::run(in, out);
#pragma GCC unroll 9
    for (int i = 0; i < Line::to; ++i) half[i][j] = out[i];
  }
#pragma GCC unroll 1
  for (int i = 0; i < Line::to; ++i) {
    Vector out[Line::to];
    Line::run(half[i], out);
#pragma GCC unroll 9
    for (int j = 0; j < Line::to; ++j) put(i, j, out[j]);
  }
}

// get(i, j) are the elements of a square; put(i, j, v) takes those of the transformed one. Lines that share sums are
// made together.
template <class Line, class Get, class Put>
inline __attribute__((always_inline)) void transform(const Get& get, const Put& put) {
  if constexpr (std::max(Line::from, Line::to) > 6) {
    transform_wide<Line>(get, put);
  } else if constexpr (Line::to == 6) {
    transform_lines<Line, 1, 2>(get, put);
    transform_lines<Line, 3, 4>(get, put);
    transform_lines<Line, 0, 5>(get, put);
  } else {
    transform_lines<Line, 0, 2>(get, put);
    transform_lines<Line, 1, Line::to == 4 ? 3 : 1>(get, put);
  }
}

// f.operator()<Lines<tile>>().
template <class F>
inline void with_lines(int tile, const F& f) {
  if (tile == wide_tile) return f.template operator()<Lines<wide_tile>>();
  f.template operator()<Lines<narrow_tile>>();
}

// Squares to come whose pixels are asked for: the processor does not foresee them.
constexpr std::int64_t ahead = 2;

// Asks for the pixels that no square before has, of one vector of channels.
template <bool written, class T>
inline void prefetch(const Squares& squares, const T* pixel) {
  for (int i = 0; i < squares.tile; ++i)
    for (int j = 0; j < squares.tile; ++j) __builtin_prefetch(pixel + (i * squares.w + j) * squares.channels, written);
}

template <class Line, class T>
inline void transform_squares(const Squares& squares, const T* images, const T* outside, Range channels, Range which,
                              const Planes& planes_of, float* to) {
  constexpr int side = Line::from, patch = Line::to;
  const std::int64_t count = channels.size(), row = squares.w * squares.channels;
  for (std::int64_t index = which.begin; index < which.end; ++index, to += planes_of.row) {
    const Squares::Corner corner = squares.corner(index), next = squares.corner(index + ahead);
    const T* const first = images + squares.pixel(corner.image, corner.h, corner.w) + channels.begin;
    const T* const later =
        images + squares.pixel(next.image, next.h + squares.pad_h, next.w + squares.pad_w) + channels.begin;
    const auto put = [&](std::int64_t c) {
      return [=](int i, int j, Vector v) { store_lanes(to + (i * patch + j) * planes_of.plane + c, v); };
    };
    std::int64_t c = 0;
    const std::int64_t rows = Line::from < patch ? corner.rows : side,
                       columns = Line::from < patch ? corner.columns : side;
    if (corner.h >= 0 && corner.h + side <= squares.h && corner.w >= 0 && corner.w + side <= squares.w &&
        rows == side && columns == side)
      for (; c + lanes <= count; c += lanes) {
        prefetch<false>(squares, later + c);
        transform<Line>([&](int i, int j) { return load_lanes(first + i * row + j * squares.channels + c); }, put(c));
      }
    if (c == round_up(count, width)) continue;
    const T* pixels[side][side];
    for (int i = 0; i < side; ++i)
      for (int j = 0; j < side; ++j) {
        const std::int64_t h = corner.h + i, w = corner.w + j;
        const bool inside = h >= 0 && h < squares.h && w >= 0 && w < squares.w && i < rows && j < columns;
        pixels[i][j] = inside ? first + i * row + j * squares.channels : outside;
      }
    for (; c + lanes <= count; c += lanes) {
      prefetch<false>(squares, later + c);
      transform<Line>([&](int i, int j) { return load_lanes(pixels[i][j] + c); }, put(c));
    }
    for (; c < round_up(count, width); c += lanes)
      transform<Line>([&](int i, int j) { return load_some(pixels[i][j] + c, count - c); }, put(c));
  }
}

template <class T>
void transform_images(const Squares& squares, const T* images, const T* outside, Range which, const Planes& to) {
  with_lines(squares.tile, [&]<class Lines>() {
    transform_squares<typename Lines::Image>(squares, images, outside, {0, squares.channels}, which, to, to.data);
  });
}

template <class T>
void transform_gradients(const Squares& squares, const T* gradients, const T* outside, Range channels, Range which,
                         const Planes& to) {
  with_lines(squares.tile, [&]<class Lines>() {
    transform_squares<typename Lines::Gradient>(squares, gradients, outside, channels, which, to, to.data);
  });
}

// Terms of filters that lie side by side, as far as there are whole vectors of them: how many.
template <class T, class W>
inline std::int64_t turn_filters(const Filters<W>& filters, std::int64_t first, T* gathered) {
  constexpr std::int64_t later = 4 * 64 / sizeof(W);
  const std::int64_t whole = filters.terms / lanes * lanes;
  for (std::int64_t o = 0; o < chunk; o += lanes)
    for (int t = 0; t < taps; ++t)
      for (std::int64_t i = 0; i < whole; i += lanes) {
        const W* const from = filters.data + t * filters.tap + i + (first + o) * filters.output;
        Vector square[lanes];
#pragma GCC unroll 16
        for (int k = 0; k < lanes; ++k) {
          square[k] = load_lanes(from + k * filters.output);
          __builtin_prefetch(from + k * filters.output + later);
        }
        turn_vectors<1>(square);
        T* const to = gathered + (t * filters.terms + i) * chunk + o;
#pragma GCC unroll 16
        for (int k = 0; k < lanes; ++k) store_lanes(to + k * chunk, square[k]);
      }
  return whole;
}

template <class T, class W>
void gather_filters(const Filters<W>& filters, std::int64_t first, T* gathered) {
  constexpr std::int64_t later = 16;  // terms, far apart in memory
  const std::int64_t outputs = std::min(chunk, filters.outputs - first), tap = filters.terms * chunk;
  if (outputs < chunk) std::fill_n(gathered, taps * tap, T());
  const bool side_by_side = filters.term == 1 && outputs == chunk;
  for (std::int64_t i = side_by_side ? turn_filters(filters, first, gathered) : 0; i < filters.terms; ++i)
    for (int t = 0; t < taps; ++t) {
      const W* const from = filters.data + t * filters.tap + i * filters.term + first * filters.output;
      T* const to = gathered + t * tap + i * chunk;
      if (filters.output == 1 && outputs == chunk) {
        __builtin_prefetch(from + later * filters.term);
        for (std::int64_t o = 0; o < chunk; o += lanes) store_lanes(to + o, load_lanes(from + o));
      } else {
        for (std::int64_t o = 0; o < outputs; ++o) to[o] = static_cast<T>(static_cast<float>(from[o * filters.output]));
      }
    }
}

template <class Line, class T>
inline void transform_row(int row, const T* gathered, const FilterPanels& panels) {
  const std::int64_t plane = FilterPanels::plane_of(panels.terms), tap = panels.terms * chunk;
  float factors[3];
  for (int r = 0; r < 3; ++r) {
    Vector unit[3] = {}, column[Line::to];
    unit[r] += 1.0f;
    Line::run(unit, column);
    factors[r] = column[row][0];
  }
  for (std::int64_t panel = 0; panel < chunk; panel += width)
    for (std::int64_t term = 0; term < panels.terms; ++term)
      for (int o = 0; o < width; o += lanes) {
        const T* const from = gathered + term * chunk + panel + o;
        float* const to = panels.data + (panel * panels.terms + term * width) + o;
        Vector half[3], out[Line::to];
#pragma GCC unroll 3
        for (int s = 0; s < 3; ++s)
          half[s] = factors[0] * load_lanes(from + s * tap) + factors[1] * load_lanes(from + (3 + s) * tap) +
                    factors[2] * load_lanes(from + (6 + s) * tap);
        Line::run(half, out);
#pragma GCC unroll 9
        for (int j = 0; j < Line::to; ++j) store_lanes(to + j * plane, out[j]);
      }
}

template <class T>
void transform_filters(int tile, int row, const T* gathered, const FilterPanels& to) {
  with_lines(tile, [&]<class Lines>() { transform_row<typename Lines::Filter>(row, gathered, to); });
}

// c[rows][width] = or += the product of a[rows][terms] and b[terms][width]. An operand's rows are so far apart; with
// `transposed` a lies as [terms][rows].
template <int rows, bool transposed>
void multiply_rows(std::int64_t terms, const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float* c,
                   std::int64_t ldc, bool accumulate) {
  Vector sum[rows][2] = {};
  for (std::int64_t p = 0; p < terms; ++p) {
    const Vector left = load_lanes(b), right = load_lanes(b + lanes);
    if (transposed) {
      __builtin_prefetch(b + 16 * ldb);
      __builtin_prefetch(b + 16 * ldb + lanes);
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      const float factor = transposed ? a[i] : a[i * lda];
      sum[i][0] += factor * left;
      sum[i][1] += factor * right;
    }
    a += transposed ? lda : 1;
    b += ldb;
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
    Unaligned* row = reinterpret_cast<Unaligned*>(c + i * ldc);
    row[0] = accumulate ? row[0] + sum[i][0] : sum[i][0];
    row[1] = accumulate ? row[1] + sum[i][1] : sum[i][1];
  }
}

using MultiplyRows = void(std::int64_t, const float*, std::int64_t, const float*, std::int64_t, float*, std::int64_t,
                          bool);

template <bool transposed, int... rows>
inline MultiplyRows* multiply_of(int wanted, std::integer_sequence<int, rows...>) {
  static constexpr MultiplyRows* all[] = {multiply_rows<rows + 1, transposed>...};
  return all[wanted - 1];
}

// b: panels of `width` columns, `panel` elements apart.
struct Panels {
  const float* data;
  std::int64_t row, panel;
};

// c[m][n] = or += a b, n being a multiple of `width`; without terms zeros.
template <bool transposed>
void multiply(std::int64_t m, std::int64_t n, std::int64_t terms, const float* a, std::int64_t lda, Panels b, float* c,
              std::int64_t ldc, bool accumulate) {
  const std::int64_t groups = ceil_div(m, register_rows);
  for (std::int64_t p = 0; p == 0 || p < terms; p += depth)
    for (std::int64_t j = 0; j < n; j += width) {
      const float* panel = b.data + j / width * b.panel + p * b.row;
      std::int64_t i = 0;
      for (std::int64_t left = groups; left > 0; --left) {
        const int rows = static_cast<int>(ceil_div(m - i, left));
        multiply_of<transposed>(rows, std::make_integer_sequence<int, register_rows>())(
            std::min(depth, terms - p), transposed ? a + p * lda + i : a + i * lda + p, lda, panel, b.row,
            c + i * ldc + j, ldc, accumulate || p > 0);
        i += rows;
      }
    }
}

void multiply_filters(const Squares& squares, Range which, int row, const Planes& images, const FilterPanels& filters,
                      const Planes& sums) {
  const std::int64_t plane = FilterPanels::plane_of(filters.terms);
  for (int j = 0; j < squares.patch(); ++j) {
    const std::int64_t i = row * squares.patch() + j;
    const Range rows = squares.in_plane(i, which);
    const std::int64_t first = rows.begin - which.begin;
    multiply<false>(rows.size(), chunk, filters.terms, images.from_row(first).at(i), images.row,
                    {filters.data + j * plane, width, filters.terms * width}, sums.from_row(first).at(i), sums.row,
                    false);
  }
}

void multiply_squares(std::int64_t m, std::int64_t n, const Squares& squares, Range which, const Planes& gradients,
                      const Planes& images, const Planes& sums, bool accumulate) {
  for (std::int64_t i = 0; i < squares.planes(); ++i) {
    const Range terms = squares.in_plane(i, which);
    const std::int64_t first = terms.begin - which.begin;
    multiply<true>(m, n, terms.size(), gradients.from_row(first).at(i), gradients.row,
                   {images.from_row(first).at(i), images.row, width}, sums.at(i), sums.row, accumulate);
  }
}

template <class Line, class T>
inline void store_squares(const Squares& squares, Range which, Range channels, const Planes& planes_of,
                          const Finish& finish, T* results) {
  const float* sums = planes_of.data;
  for (std::int64_t index = which.begin; index < which.end; ++index, sums += planes_of.row) {
    const Squares::Corner corner = squares.corner(index), next = squares.corner(index + ahead);
    const std::int64_t rows = std::min(corner.rows, squares.h - corner.h);
    const std::int64_t columns = std::min(corner.columns, squares.w - corner.w);
    T* const to = results + squares.pixel(corner.image, corner.h, corner.w) + channels.begin;
    const T* const later = results + squares.pixel(next.image, next.h, next.w) + channels.begin;
    for (std::int64_t c = 0; c < channels.size(); c += lanes) {
      const std::int64_t count = channels.size() - c;
      prefetch<true>(squares, later + c);
      Vector added{};
      if (finish.bias != nullptr) {
        const float* bias = finish.bias + channels.begin + c;
        added = count >= lanes ? load_lanes(bias) : load_some(bias, count);
      }
      transform<Line>([&](int i, int j) { return load_lanes(sums + (i * Line::from + j) * planes_of.plane + c); },
                      [&](int i, int j, Vector v) {
                        if (i >= rows || j >= columns) return;
                        T* const result = to + (i * squares.w + j) * squares.channels + c;
                        const T* const held = result;
                        v += added;
                        if (finish.accumulate) v += count >= lanes ? load_lanes(held) : load_some(held, count);
                        if (finish.relu) v = v < 0 ? Vector{} : v;  // NaN stays
                        store_some(v, result, count);
                      });
    }
  }
}

template <class T>
void store_results(const Squares& squares, Range which, Range channels, const Planes& sums, const Finish& finish,
                   T* results) {
  with_lines(squares.tile, [&]<class Lines>() {
    store_squares<typename Lines::Result>(squares, which, channels, sums, finish, results);
  });
}

template <class Line, class W>
inline void store_lines(std::int64_t rows, std::int64_t channels, const Planes& sums, const Parts& parts, W* dw) {
  const std::int64_t step = parts.apart * sums.row;
  for (std::int64_t k = 0; k < rows; ++k)
    for (std::int64_t c = 0; c < channels; c += lanes)
      transform<Line>(
          [&](int r, int s) {
            const float* const first = sums.at(r * Line::from + s) + k * sums.row + c;
            Vector sum = load_lanes(first);
            for (std::int64_t part = 1; part < parts.count; ++part) sum += load_lanes(first + part * step);
            return sum;
          },
          [&](int r, int s, Vector v) { store_some(v, dw + ((k * 3 + r) * 3 + s) * channels + c, channels - c); });
}

template <class W>
void store_filters(int tile, std::int64_t rows, std::int64_t channels, const Planes& sums, const Parts& parts, W* dw) {
  with_lines(tile,
             [&]<class Lines>() { store_lines<typename Lines::FilterGradient>(rows, channels, sums, parts, dw); });
}

template <class W>
void add_filters(const float* first, const Parts& parts, std::int64_t size, W* dw) {
  for (std::int64_t i = 0; i < size; i += lanes) {
    const std::int64_t count = size - i;
    Vector sum{};
    for (std::int64_t part = 0; part < parts.count; ++part) {
      const float* const term = first + part * parts.apart + i;
      sum += count >= lanes ? load_lanes(term) : load_some(term, count);
    }
    store_some(sum, dw + i, count);
  }
}

}  // namespace hearth::kernels::winograd::HEARTH_ISA_NAMESPACE
#else

namespace hearth::kernels::winograd {

template <class T>
void transform_images(const Squares& squares, const T* images, const T* outside, Range which, const Planes& to) {
  HEARTH_ISA_CALL(transform_images, squares, images, outside, which, to);
}
template <class T>
void transform_gradients(const Squares& squares, const T* gradients, const T* outside, Range channels, Range which,
                         const Planes& to) {
  HEARTH_ISA_CALL(transform_gradients, squares, gradients, outside, channels, which, to);
}
template <class T, class W>
void gather_filters(const Filters<W>& filters, std::int64_t first, T* gathered) {
  HEARTH_ISA_CALL(gather_filters, filters, first, gathered);
}
template <class T>
void transform_filters(int tile, int row, const T* gathered, const FilterPanels& to) {
  HEARTH_ISA_CALL(transform_filters, tile, row, gathered, to);
}
void multiply_filters(const Squares& squares, Range which, int row, const Planes& images, const FilterPanels& filters,
                      const Planes& sums) {
  HEARTH_ISA_CALL(multiply_filters, squares, which, row, images, filters, sums);
}
void multiply_squares(std::int64_t m, std::int64_t n, const Squares& squares, Range which, const Planes& gradients,
                      const Planes& images, const Planes& sums, bool accumulate) {
  HEARTH_ISA_CALL(multiply_squares, m, n, squares, which, gradients, images, sums, accumulate);
}
template <class T>
void store_results(const Squares& squares, Range which, Range channels, const Planes& sums, const Finish& finish,
                   T* results) {
  HEARTH_ISA_CALL(store_results, squares, which, channels, sums, finish, results);
}
template <class W>
void store_filters(int tile, std::int64_t rows, std::int64_t channels, const Planes& sums, const Parts& parts, W* dw) {
  HEARTH_ISA_CALL(store_filters, tile, rows, channels, sums, parts, dw);
}
template <class W>
void add_filters(const float* first, const Parts& parts, std::int64_t size, W* dw) {
  HEARTH_ISA_CALL(add_filters, first, parts, size, dw);
}

#define HEARTH_INSTANTIATE(T)                                                                         \
  template void transform_images(const Squares&, const T*, const T*, Range, const Planes&);           \
  template void transform_gradients(const Squares&, const T*, const T*, Range, Range, const Planes&); \
  template void transform_filters(int, int, const T*, const FilterPanels&);                           \
  template void store_results(const Squares&, Range, Range, const Planes&, const Finish&, T*);        \
  template void store_filters(int, std::int64_t, std::int64_t, const Planes&, const Parts&, T*);      \
  template void add_filters(const float*, const Parts&, std::int64_t, T*);
HEARTH_INSTANTIATE(float)
HEARTH_INSTANTIATE(bf16)
#undef HEARTH_INSTANTIATE
template void gather_filters(const Filters<float>&, std::int64_t, float*);
template void gather_filters(const Filters<float>&, std::int64_t, bf16*);
template void gather_filters(const Filters<bf16>&, std::int64_t, bf16*);

}  // namespace hearth::kernels::winograd
#endif
