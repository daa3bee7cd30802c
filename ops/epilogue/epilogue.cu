// SPDX-License-Identifier: Apache-2.0
// Bias and activation on the device. A thread takes 16 bytes of a row where the rows are aligned for it, else one
// element; each element is read once and written once, and the bias gradient is summed while the activation's gradient
// passes by. Column sums are f32 (f64 for f64) within a block, which has a run of rows whose length depends on the
// shape alone; those of all runs are added in f64 and in order by the same launch.
#include <algorithm>
#include <bit>

#include "core/cuda/elementwise.h"
#include "ops/device/mma.h"
#include "ops/device/multiprocessors.h"
#include "ops/device/row_split.cuh"
#include "ops/device/run_sums.cuh"
#include "ops/epilogue/epilogue.h"
#include "ops/epilogue/functors.h"
#include "ops/epilogue/gelu_rounded.h"
#include "ops/pointwise/value_slope.h"

namespace hearth::kernels {
namespace {

using namespace cuda;

std::int64_t columns_of(const Tensor& y) { return y.rank() == 0 ? 1 : y.dim(-1); }

/// y = bias in every row, plus what y held if `adds`.
template <class T, class B>
__global__ void bias_rows(const B* bias, T* y, std::int64_t rows, std::int64_t cols, bool adds, bool packed) {
  constexpr int count = pack_size<T>;
  const std::int64_t size = packed ? count : 1;
  walk_rows(rows, cols / size, [&](std::int64_t row, std::int64_t unit) {
    T* const to = y + row * cols + unit * size;
    Upcast<T, count> wide{};
    if (adds) wide = load_upcast<count>(to, packed);
    HEARTH_UNROLL
    for (int k = 0; k < count; ++k)
      if (k < size) wide.at[k] += upcast(bias[unit * size + k]);
    store_cast_down(to, wide, packed);
  });
}

template <class T>
void launch_bias(cuda::Stream& stream, const char* name, const Tensor& bias, const Tensor& y, bool adds) {
  const std::int64_t cols = columns_of(y);
  if (y.size() == 0) return;
  T* const to = y.data<T>();
  const std::int64_t rows = y.size() / cols;
  const bool packed = packs_fit(to, cols);
  const LaunchShape shape =
      shape_over_rows(rows, packed ? cols / pack_size<T> : cols).moving(bytes_of(bias, y) + (adds ? bytes_of(y) : 0));
  const auto with = [&]<class B>(const B* from) {
    launch(stream, name, shape, bias_rows<T, B>, from, to, rows, cols, adds, packed);
  };
  if (bias.dtype() == dtype_of<T>())
    with(static_cast<const T*>(bias.data<T>()));
  else
    with(static_cast<const acc_t<T>*>(bias.data<acc_t<T>>()));
}

/// Blocks that sum columns at once.
constexpr std::int64_t sum_blocks = 4 * multiprocessors;
/// Packs that a thread asks for before it works on the first, of each array.
constexpr int sums_ahead = 4, slopes_ahead = 2, values_ahead = 2;
/// Packs of a row that a block sums at most.
constexpr int widest = 64;

/// How rows are cut for column sums: blocks of `across` packs or elements by `down` rows at a time. The numbers depend
/// on the shape only.
struct Cut {
  int across, down;
  std::int64_t tiles, runs, run_rows;
};

Cut cut_rows(std::int64_t rows, std::int64_t units) {
  Cut cut{};
  // The widest part of a row that leaves one of 16 threads idle at most; those below 16 packs read memory poorly.
  double busiest = 0;
  for (auto across = static_cast<int>(std::min<std::int64_t>(units, widest)); across > 0; --across) {
    const std::int64_t tiles = (units + across - 1) / across;
    const int down = element_block / across;
    const double busy = static_cast<double>(units * down) / static_cast<double>(tiles * element_block);
    if (busy > busiest) {
      busiest = busy;
      cut.across = across;
      cut.down = down;
      cut.tiles = tiles;
    }
    if (busiest >= 15.0 / 16 || across == 16) break;
  }
  const std::int64_t most = std::max<std::int64_t>(sum_blocks / cut.tiles, 1);
  // Eight rows a thread at least pay for the joining at the end.
  const std::int64_t share = std::max<std::int64_t>((rows + most - 1) / most, 8 * cut.down);
  cut.run_rows = (share + cut.down - 1) / cut.down * cut.down;
  cut.runs = (rows + cut.run_rows - 1) / cut.run_rows;
  return cut;
}

/// What column sums are made of, and where they go.
template <class T>
struct Columns {
  const T *reference, *dy;
  T* dpre;
  void* db;  ///< acc_t<T> if `wide`, else T
  bool wide, packed;
  std::int64_t rows, cols;
};

/// Adds to `sums` the `count` rows from element `at` on, every `down`-th, or those of dpre = dy * F's slope where
/// `stores`.
template <class F, bool stores, int size, class T>
__device__ __forceinline__ void add_rows(const Columns<T>& c, std::int64_t at, int count, int down,
                                         acc_t<T> (&sums)[pack_size<T>]) {
  constexpr int ahead = stores ? slopes_ahead : sums_ahead;
  const std::int64_t step = down * c.cols;
  for (int i = 0; i < count; i += ahead, at += ahead * step) {
    // Rows behind the last are zeros, which change no sum.
    RawUnit<T, size> d[ahead] = {}, of[ahead] = {};
    HEARTH_UNROLL
    for (int a = 0; a < ahead; ++a) {
      if (i + a >= count) continue;
      d[a] = load_raw<size>(c.dy + at + a * step);
      if constexpr (stores) of[a] = load_raw<size>(c.reference + at + a * step);
    }
    HEARTH_UNROLL
    for (int a = 0; a < ahead; ++a) {
      acc_t<T> value[size];
      unpack<T, size>(d[a], value);
      if constexpr (stores) {
        acc_t<T> x[size];
        unpack<T, size>(of[a], x);
        HEARTH_UNROLL
        for (int k = 0; k < size; ++k) value[k] *= F::slope(x[k]);
      }
      HEARTH_UNROLL
      for (int k = 0; k < size; ++k) sums[k] += value[k];
      if constexpr (stores)
        if (i + a < count) store_unit(c.dpre + at + a * step, value);
    }
  }
}

/// db = column sums of dy, or of dpre = dy * F's slope where `stores`. Threads of one pack of columns add what they
/// have in a fixed order, then blocks of one tile do.
template <class F, class T, bool stores>
__global__ void __launch_bounds__(element_block, sizeof(T) == 2 ? 4 : 1)
    sum_columns(HEARTH_GRID_CONSTANT(Columns<T>) c, Cut cut, HEARTH_GRID_CONSTANT(RunSums) runs) {
  using A = acc_t<T>;
  constexpr int count = pack_size<T>;
  HEARTH_SHARED(A, parts, [count][element_block]);
  HEARTH_SHARED(double, totals, [widest * count]);
  const int size = c.packed ? count : 1, thread = static_cast<int>(threadIdx.x);
  const int x = thread % cut.across, y = thread / cut.across;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * cut.across * size, column = first + x * size;
  const std::int64_t begin = blockIdx.y * cut.run_rows, rest = c.rows - begin;
  const int rows = static_cast<int>(rest < cut.run_rows ? rest : cut.run_rows);
  A sums[count] = {};
  if (y < cut.down && y < rows && column < c.cols) {
    const std::int64_t at = (begin + y) * c.cols + column;
    const int own_rows = (rows - y + cut.down - 1) / cut.down;
    if (c.packed)
      add_rows<F, stores, count>(c, at, own_rows, cut.down, sums);
    else
      add_rows<F, stores, 1>(c, at, own_rows, cut.down, sums);
  }
  HEARTH_UNROLL
  for (int k = 0; k < count; ++k) parts[k][thread] = sums[k];
  __syncthreads();
  for (int left = cut.down; left > 1;) {
    const int half = (left + 1) / 2;
    if (y < left - half) {
      HEARTH_UNROLL
      for (int k = 0; k < count; ++k) parts[k][thread] += parts[k][thread + half * cut.across];
    }
    __syncthreads();
    left = half;
  }
  const std::int64_t behind = c.cols - first;
  const int columns = static_cast<int>(behind < cut.across * size ? behind : cut.across * size);
  for (int i = thread; i < columns; i += element_block) *runs.at(blockIdx.y, 0, first + i) = parts[i % size][i / size];
  if (!join_runs<1>(runs, blockIdx.x, blockIdx.y, first, columns, totals)) return;
  for (int i = thread; i < columns; i += element_block) {
    if (c.wide)
      static_cast<A*>(c.db)[first + i] = static_cast<A>(totals[i]);
    else
      static_cast<T*>(c.db)[first + i] = cast_down<T>(static_cast<A>(totals[i]));
  }
}

/// Column sums of dy into db, and dpre = dy * F's slope where `stores`.
template <class F, class T, bool stores>
void grad_with_sums(cuda::Stream& stream, const char* name, const Tensor& reference, const Tensor& dy,
                    const Tensor& dpre, const Tensor& db) {
  const std::int64_t cols = columns_of(dy);
  if (cols == 0) return;
  const std::int64_t rows = dy.size() / cols;
  if (rows == 0) return db.fill_(0);
  Columns<T> c{};
  c.dy = dy.data<T>();
  if constexpr (stores) {
    c.reference = reference.data<T>();
    c.dpre = dpre.data<T>();
  }
  c.wide = db.dtype() == dtype_of<acc_t<T>>();
  c.db = c.wide ? static_cast<void*>(db.data<acc_t<T>>()) : db.data<T>();
  c.packed = rows_fit<T>(cols, {c.dy, c.reference, c.dpre});
  c.rows = rows;
  c.cols = cols;
  const Cut cut = cut_rows(rows, c.packed ? cols / pack_size<T> : cols);
  Tensor memory;
  const RunSums runs = run_sums(stream, 1, cols, cut.runs, cut.tiles, memory);
  launch(stream, name,
         {dim3(blocks_for(cut.tiles, 1), blocks_for(cut.runs, 1)), element_block, 0,
          bytes_of(dy, db) + runs.bytes() + (stores ? bytes_of(reference, dpre) : 0)},
         sum_columns<F, T, stores>, c, cut, runs);
}

/// y = F's value of pre; packs first, then the elements behind the last one.
template <class F, class T>
__global__ void __launch_bounds__(element_block)
    activate_packs(const T* pre, T* y, std::int64_t packs, std::int64_t elements) {
  constexpr int count = pack_size<T>;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * (element_block * values_ahead) + threadIdx.x;
  RawUnit<T, count> of[values_ahead] = {};
  HEARTH_UNROLL
  for (int a = 0; a < values_ahead; ++a)
    if (first + a * element_block < packs) of[a] = load_raw<count>(pre + (first + a * element_block) * count);
  HEARTH_UNROLL
  for (int a = 0; a < values_ahead; ++a) {
    acc_t<T> value[count];
    unpack<T, count>(of[a], value);
    HEARTH_UNROLL
    for (int k = 0; k < count; ++k) value[k] = F::value(value[k]);
    if (first + a * element_block < packs) store_unit(y + (first + a * element_block) * count, value);
  }
  for (std::int64_t i = packs * count + global_thread(); i < elements; i += global_threads())
    y[i] = cast_down<T>(F::value(upcast(pre[i])));
}

/// By two instructions for special functions.
struct GeluOf16Bits {
  __device__ __forceinline__ static float falling(float x) { return exp2_rounded(-0.721347520f * x * x); }
  __device__ __forceinline__ static float value(float x) {
    return gelu_rounded::value(x, falling(x), reciprocal_rounded(gelu_rounded::divisor(x)));
  }
  __device__ __forceinline__ static float slope(float x) {
    return gelu_rounded::slope(x, falling(x), reciprocal_rounded(gelu_rounded::divisor(x)));
  }
};

/// f(functor) for the activation's functor of elements of this type.
template <class T, class F>
void visit_for(Activation activation, F&& f) {
  activations::visit_activation(activation, [&]<class Exact>(Exact) {
    constexpr bool rounded = sizeof(T) == 2 && std::is_same_v<Exact, functors::gelu>;
    f(std::conditional_t<rounded, GeluOf16Bits, Exact>{});
  });
}

}  // namespace

void fill_rows(cuda::Stream& stream, const Tensor& bias, const Tensor& y) {
  visit_dtype("bias", y.dtype(), Floats{}, [&]<class T>() { launch_bias<T>(stream, "fill_rows", bias, y, false); });
}

void add_bias(cuda::Stream& stream, const Tensor& bias, const Tensor& y) {
  visit_dtype("bias", y.dtype(), Floats{}, [&]<class T>() { launch_bias<T>(stream, "add_bias", bias, y, true); });
}

void activate(cuda::Stream& stream, Activation activation, const Tensor& pre, const Tensor& y) {
  visit_dtype("activation", y.dtype(), Floats{}, [&]<class T>() {
    const T* const from = pre.data<T>();
    T* const to = y.data<T>();
    const std::int64_t packs = is_aligned(from) && is_aligned(to) ? y.size() / pack_size<T> : 0;
    const std::int64_t rest = y.size() - packs * pack_size<T>;
    const LaunchShape shape{blocks_for(std::max(packs, rest), element_block * values_ahead), element_block, 0,
                            bytes_of(pre, y)};
    visit_for<T>(activation, [&]<class F>(F) {
      launch(stream, "activate", shape, activate_packs<F, T>, from, to, packs, y.size());
    });
  });
}

void activate_grad(cuda::Stream& stream, Activation activation, const Tensor& reference, const Tensor& dy,
                   const Tensor& dpre, const Tensor& db) {
  visit_dtype("activation gradient", dy.dtype(), Floats{}, [&]<class T>() {
    visit_for<T>(activation, [&]<class F>(F) {
      if (db.defined()) return grad_with_sums<F, T, true>(stream, "activate_grad", reference, dy, dpre, db);
      cuda::map(stream, "activate_grad", Slope<F, acc_t<T>>{}, dy.size(), dpre.data<T>(),
                static_cast<const T*>(reference.data<T>()), static_cast<const T*>(dy.data<T>()));
    });
  });
}

void sum_rows(cuda::Stream& stream, const Tensor& dy, const Tensor& db) {
  visit_dtype("bias gradient", dy.dtype(), Floats{}, [&]<class T>() {
    grad_with_sums<activations::NoActivation, T, false>(stream, "sum_rows", Tensor(), dy, Tensor(), db);
  });
}

}  // namespace hearth::kernels
