// SPDX-License-Identifier: Apache-2.0
// Sums: a thread adds a few neighbouring elements in acc_t and everything else in f64. Long sums are cut into segments
// by the shape alone, whose partial sums (f64) go through the same kernels again. Extremes go the same way, with
// positions instead of sums. x is read once.
#include "ops/reduce/reduce.h"

#include <algorithm>

#include "ops/device/column_tile.cuh"
#include "ops/device/row_split.cuh"

namespace hearth::kernels {
namespace {

using namespace cuda;

constexpr std::int64_t short_row = 1024;    // up to here lanes of a warp share a row, beyond it a block does
constexpr std::int64_t row_segment = 8192;  // at least, when a row is cut
constexpr std::int64_t wanted_blocks = 1024;

// How rows are cut into segments so that few long rows fill the device.
struct RowCut {
  std::int64_t segments, segment_cols;
};

RowCut cut_rows(std::int64_t rows, std::int64_t cols) {
  const std::int64_t wanted = rows >= wanted_blocks ? 1 : wanted_blocks / std::max<std::int64_t>(rows, 1);
  const std::int64_t segments = std::clamp(cols / row_segment, std::int64_t{1}, wanted);
  const std::int64_t each = (cols + segments - 1) / segments;
  // Whole packs, so that every segment starts aligned.
  const std::int64_t segment_cols = std::max<std::int64_t>((each + 15) / 16 * 16, 1);
  return {std::max<std::int64_t>((cols + segment_cols - 1) / segment_cols, 1), segment_cols};
}

template <class Out>
__device__ __forceinline__ void store_scaled(Out* y, double value, double scale) {
  *y = cast_down<Out>(static_cast<acc_t<Out>>(value * scale));
}

// A group of threads a piece of a row; y [rows, segments].
template <class In, class Out, int width, class Group>
__global__ void __launch_bounds__(row_block)
    sum_row_pieces(const In* x, std::int64_t rows, std::int64_t cols, RowCut cut, double scale, Out* y, Group group) {
  each_row(group, rows * cut.segments, [&](std::int64_t piece, bool inside) {
    const std::int64_t begin = piece % cut.segments * cut.segment_cols, rest = cols - begin;
    const In* const from = x + piece / cut.segments * cols + begin;
    const std::int64_t count = !inside ? 0 : rest < cut.segment_cols ? rest : cut.segment_cols;
    double sum = 0;
    each_column<width>(group.index(), group.threads(), count, [&](std::int64_t c) {
      acc_t<In> value[width];
      load_unit(from + c, value);
      acc_t<In> part = value[0];
      HEARTH_UNROLL
      for (int k = 1; k < width; ++k) part += value[k];
      sum += static_cast<double>(part);
    });
    sum = group.template reduce<Sum>(sum, 0.0);
    if (inside && group.index() == 0) store_scaled(y + piece, sum, scale);
  });
}

template <class In, class Out>
void sum_rows(cuda::Stream& stream, const Tensor& x, std::int64_t rows, std::int64_t cols, double scale,
              const Tensor& y) {
  if (rows == 0) return;
  const RowCut cut = cut_rows(rows, cols);
  const auto run = [&]<class To>(To* to, double factor) {
    const std::int64_t moved = bytes_of(x) + rows * cut.segments * static_cast<std::int64_t>(sizeof(To));
    with_width<In>(rows_fit<In>(cols, {x.bytes()}), [&]<int width>() {
      if (cols <= short_row) {
        const LaneGroup group{lanes_for(cols, width, 4)};
        launch(stream, "sum", {lane_group_blocks(rows, group.lanes), row_block, 0, moved},
               sum_row_pieces<In, To, width, LaneGroup>, x.data<In>(), rows, cols, cut, factor, to, group);
      } else {
        launch(stream, "sum", {blocks_for(rows * cut.segments, 1), row_block, 0, moved},
               sum_row_pieces<In, To, width, BlockGroup>, x.data<In>(), rows, cols, cut, factor, to, BlockGroup{});
      }
    });
  };
  if (cut.segments == 1) return run(y.data<Out>(), scale);
  const Tensor partial = Tensor::empty({rows, cut.segments}, DType::f64, x.device());
  run(partial.data<double>(), 1.0);
  sum_rows<double, Out>(stream, partial, rows, cut.segments, scale, y);
}

// A thread a unit of columns and every `down`-th row of a segment; y [outer, segments, inner]. Blocks are numbered
// segment by segment within an outer index.
template <class In, class Out, int width>
__global__ void __launch_bounds__(tile_block, 2)
    sum_column_segments(const In* x, std::int64_t inner, ColumnTiles cut, double scale, Out* y) {
  HEARTH_SHARED(double, shared, [tile_block * width]);
  const std::int64_t block = blockIdx.x, per_outer = cut.tiles * cut.segments, outer = block / per_outer;
  const TilePlace place(cut, block % per_outer);
  const In* const from = x + outer * cut.rows * inner + place.unit * width;
  double sum[width] = {};
  for (std::int64_t row = place.first_row; row < place.end_row; row += 4 * place.down) {
    acc_t<In> part[width] = {};
    HEARTH_UNROLL
    for (int step = 0; step < 4; ++step) {
      const std::int64_t at = row + step * place.down;
      if (at >= place.end_row) break;
      acc_t<In> value[width];
      load_unit(from + at * inner, value);
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) part[k] += value[k];
    }
    HEARTH_UNROLL
    for (int k = 0; k < width; ++k) sum[k] += static_cast<double>(part[k]);
  }
  sum_down(sum, shared, cut.across);
  if (place.unit >= cut.units || static_cast<int>(threadIdx.x) >= cut.across) return;
  Out* const to = y + (outer * cut.segments + place.segment) * inner + place.unit * width;
  HEARTH_UNROLL
  for (int k = 0; k < width; ++k) store_scaled(to + k, sum[k], scale);
}

// A thread a column: where there are many columns of a few elements.
template <class In, class Out>
__global__ void __launch_bounds__(tile_block, 2)
    sum_short_columns(const In* x, std::int64_t columns, std::int64_t reduced, std::int64_t inner, double scale,
                      Out* y) {
  for (std::int64_t column = global_thread(); column < columns; column += global_threads()) {
    const In* const from = x + column / inner * reduced * inner + column % inner;
    double sum = 0;
    for (std::int64_t r = 0; r < reduced; ++r) sum += static_cast<double>(upcast(from[r * inner]));
    store_scaled(y + column, sum, scale);
  }
}

template <class In, class Out>
void sum_columns(cuda::Stream& stream, const Tensor& x, std::int64_t outer, std::int64_t reduced, std::int64_t inner,
                 double scale, const Tensor& y) {
  const std::int64_t columns = outer * inner;
  if (columns == 0) return;
  if (reduced <= 32 && columns >= 8192) {
    launch(stream, "sum", {blocks_for(columns, tile_block), tile_block, 0, bytes_of(x, y)}, sum_short_columns<In, Out>,
           x.data<In>(), columns, reduced, inner, scale, y.data<Out>());
    return;
  }
  with_width<In>(rows_fit<In>(inner, {x.bytes()}), [&]<int width>() {
    const ColumnTiles cut =
        cut_columns(reduced, (inner + width - 1) / width, std::max<std::int64_t>(wanted_blocks / outer, 1), 4);
    const unsigned blocks = blocks_for(outer * cut.blocks(), 1);
    if (cut.segments == 1) {
      launch(stream, "sum", {blocks, tile_block, 0, bytes_of(x, y)}, sum_column_segments<In, Out, width>, x.data<In>(),
             inner, cut, scale, y.data<Out>());
      return;
    }
    const Tensor partial = Tensor::empty({outer, cut.segments, inner}, DType::f64, x.device());
    launch(stream, "sum", {blocks, tile_block, 0, bytes_of(x, partial)}, sum_column_segments<In, double, width>,
           x.data<In>(), inner, cut, 1.0, partial.data<double>());
    const ColumnTiles rest = cut_columns(cut.segments, inner, 1, 1);
    launch(stream, "sum", {blocks_for(outer * rest.blocks(), 1), tile_block, 0, bytes_of(partial, y)},
           sum_column_segments<double, Out, 1>, partial.data<double>(), inner, rest, scale, y.data<Out>());
  });
}

// An element and its position; the better of two is the same whichever is asked first, so any order gives the same.
template <class P>
struct Candidate {
  P value;
  std::int64_t place;
};

template <class P>
__device__ __forceinline__ Candidate<P> better_of(bool smallest, Candidate<P> a, Candidate<P> b) {
  const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
  const bool equal = a_nan || b_nan ? a_nan == b_nan : a.value == b.value;
  const bool a_wins =
      equal ? a.place < b.place : a_nan || (!b_nan && (smallest ? a.value < b.value : a.value > b.value));
  return a_wins ? a : b;
}

template <class T>
__device__ __forceinline__ acc_t<T> read_element(const T* p) {
  if constexpr (std::is_integral_v<T>)
    return *p;
  else
    return upcast(*p);
}

template <class P>
__device__ Candidate<P> best_in_group(bool smallest, Candidate<P> best, int lanes) {
  for (int step = lanes / 2; step > 0; step /= 2) {
    const Candidate<P> other{
        __shfl_xor_sync(all_lanes, best.value, step),
        static_cast<std::int64_t>(__shfl_xor_sync(all_lanes, static_cast<long long>(best.place), step))};
    best = better_of(smallest, best, other);
  }
  return best;
}

// A group of threads a piece of a row. `among` (null: all) [rows, cols] are the positions to look at, in a row of
// `pitch` elements. `places` [rows, segments] receives the best; `y` (null: none) its element.
template <class T, class Group>
__global__ void __launch_bounds__(row_block)
    find_extremes(const T* x, const std::int64_t* among, std::int64_t rows, std::int64_t cols, std::int64_t pitch,
                  RowCut cut, bool smallest, T* y, std::int64_t* places, Group group) {
  using P = acc_t<T>;
  HEARTH_SHARED(P, values, [warp_size]);
  HEARTH_SHARED(std::int64_t, spots, [warp_size]);
  each_row(group, rows * cut.segments, [&](std::int64_t piece, bool inside) {
    const std::int64_t row = piece / cut.segments, begin = piece % cut.segments * cut.segment_cols;
    const std::int64_t end = begin + cut.segment_cols < cols ? begin + cut.segment_cols : cols;
    const T* const from = x + row * pitch;
    const auto candidate = [&](std::int64_t c) {
      const std::int64_t place = among == nullptr ? c : among[row * cols + c];
      return Candidate<P>{read_element(from + place), place};
    };
    Candidate<P> best = candidate(begin);
    for (std::int64_t c = begin + group.index(); c < end; c += group.threads())
      best = better_of(smallest, best, candidate(c));
    if constexpr (std::is_same_v<Group, LaneGroup>) {
      best = best_in_group(smallest, best, group.lanes);
    } else {
      const int lane = lane_id(), warp = group.index() / warp_size;
      best = best_in_group(smallest, best, warp_size);
      if (lane == 0) {
        values[warp] = best.value;
        spots[warp] = best.place;
      }
      __syncthreads();
      for (int w = 0; w < group.threads() / warp_size; ++w)
        best = better_of(smallest, best, Candidate<P>{values[w], spots[w]});
      __syncthreads();
    }
    if (!inside || group.index() != 0) return;
    places[piece] = best.place;
    if (y != nullptr) y[piece] = from[best.place];
  });
}

template <class T>
__global__ void place_gradients(const T* dy, const std::int64_t* column, std::int64_t size, std::int64_t cols, T* dx) {
  for (std::int64_t i = global_thread(); i < size; i += global_threads()) {
    const std::int64_t row = i / cols;
    dx[i] = i % cols == column[row] ? dy[row] : T{};
  }
}

template <class T>
void find(cuda::Stream& stream, bool smallest, const T* x, const std::int64_t* among, std::int64_t rows,
          std::int64_t cols, std::int64_t pitch, T* y, const Tensor& column) {
  const RowCut cut = cut_rows(rows, cols);
  Tensor places = column;
  if (cut.segments > 1) places = Tensor::empty({rows, cut.segments}, DType::i64, column.device());
  T* const elements = cut.segments > 1 ? nullptr : y;
  if (cols <= short_row) {
    const LaneGroup group{lanes_for(cols, 1, 4)};
    launch(stream, "extreme", {lane_group_blocks(rows, group.lanes), row_block}, find_extremes<T, LaneGroup>, x, among,
           rows, cols, pitch, cut, smallest, elements, places.data<std::int64_t>(), group);
  } else {
    launch(stream, "extreme", {blocks_for(rows * cut.segments, 1), row_block}, find_extremes<T, BlockGroup>, x, among,
           rows, cols, pitch, cut, smallest, elements, places.data<std::int64_t>(), BlockGroup{});
  }
  if (cut.segments > 1) find<T>(stream, smallest, x, places.data<std::int64_t>(), rows, cut.segments, pitch, y, column);
}

}  // namespace

void sum(cuda::Stream& stream, const Tensor& x, std::int64_t outer, std::int64_t reduced, std::int64_t inner,
         double scale, const Tensor& y) {
  const auto run = [&]<class In, class Out>() {
    if (inner == 1)
      sum_rows<In, Out>(stream, x, outer, reduced, scale, y);
    else
      sum_columns<In, Out>(stream, x, outer, reduced, inner, scale, y);
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

void extreme(cuda::Stream& stream, Extreme kind, const Tensor& x, std::int64_t rows, std::int64_t cols, const Tensor& y,
             const Tensor& column) {
  if (rows == 0) return;
  visit_dtype("extreme", x.dtype(), Types<float, double, f16, bf16, std::int32_t, std::int64_t>{}, [&]<class T>() {
    find<T>(stream, kind == Extreme::smallest, x.data<T>(), nullptr, rows, cols, cols,
            y.defined() ? y.data<T>() : nullptr, column);
  });
}

void extreme_grad(cuda::Stream& stream, const Tensor& dy, const Tensor& column, std::int64_t rows, std::int64_t cols,
                  const Tensor& dx) {
  const std::int64_t size = rows * cols;
  visit_dtype("extreme", dy.dtype(), Floats{}, [&]<class T>() {
    launch(stream, "extreme_grad", {blocks_for(size, 256, 1 << 16), 256, 0, bytes_of(dy, column, dx)},
           place_gradients<T>, dy.data<T>(), column.data<std::int64_t>(), size, cols, dx.data<T>());
  });
}

}  // namespace hearth::kernels
