// SPDX-License-Identifier: Apache-2.0
// The sums of batch_norm over the rows: statistics and those of the gradient. Each reads its tensors once, four rows at
// a time; a block of rows is summed in the low-precision type, blocks and chunks are joined in f64.
#include <algorithm>
#include <cstring>

#include "core/cpu/element.h"
#include "core/cpu/lanes.h"
#include "core/cpu/parallel.h"
#include "ops/norm/cpu/batch_norm_cpu.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/norm/cpu/batch_norm_sums_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

#include "core/cpu/lanes.inc"
#include "ops/norm/cpu/channel_pairs.inc"

// Whole groups of rows that make up `bytes_ahead`.
template <class T>
constexpr std::int64_t rows_ahead(std::int64_t lanes) {
  const std::int64_t group_bytes = 4 * lanes * static_cast<std::int64_t>(sizeof(T));
  return 4 * ((bytes_ahead + group_bytes - 1) / group_bytes);
}

// Adds the sums over `count` rows of x - centre and of its square. `ahead` elements on lies what is read later.
template <int count, class T, class P>
void add_deviations(const T* x, std::int64_t lanes, std::int64_t ahead, const P* centre, P* sum, P* squares) {
  constexpr std::int64_t run = 2 * Vectors<P>::lanes;
  std::int64_t c = 0;
  for (; c < paired<T>(lanes); c += run) {
    const Pair<P> m = read(centre + c);
    Pair<P> s = read(sum + c), q = read(squares + c);
#pragma GCC unroll 4
    for (int row = 0; row < count; ++row) {
      ask_for<P>(x + row * lanes + c + ahead);
      const Pair<P> value = read(x + row * lanes + c);
      for (int half = 0; half < 2; ++half) {
        const auto d = value.part[half] - m.part[half];
        s.part[half] += d;
        q.part[half] += d * d;
      }
    }
    write(s, sum + c);
    write(q, squares + c);
  }
#pragma omp simd
  for (std::int64_t i = c; i < lanes; ++i) {
    for (int row = 0; row < count; ++row) {
      const P d = cpu::load(x + row * lanes + i) - centre[i];
      sum[i] += d;
      squares[i] += d * d;
    }
  }
}

template <class T, class P>
void block_deviations(const T* x, std::int64_t rows, std::int64_t lanes, std::int64_t ahead, const P* centre, P* sum,
                      P* squares) {
  std::fill_n(sum, lanes, P(0));
  std::fill_n(squares, lanes, P(0));
  std::int64_t row = 0;
  for (; row + 4 <= rows; row += 4) add_deviations<4>(x + row * lanes, lanes, ahead, centre, sum, squares);
  for (; row < rows; ++row) add_deviations<1>(x + row * lanes, lanes, ahead, centre, sum, squares);
}

// Joins the mean and the sum of squared deviations of n_b values to those of n_a values (Chan, Golub, LeVeque, 1979).
inline void join_statistics(double n_a, double* mean_a, double* squares_a, double n_b, const double* mean_b,
                            const double* squares_b, std::int64_t lanes) {
  const double share = n_b / (n_a + n_b), weight = n_a * share;
#pragma omp simd
  for (std::int64_t c = 0; c < lanes; ++c) {
    const double delta = mean_b[c] - mean_a[c];
    mean_a[c] += delta * share;
    squares_a[c] += squares_b[c] + delta * delta * weight;
  }
}

// Mean and sum of squared deviations of a chunk, in one pass. A block's deviations are taken from the mean of the block
// before, the first one's from that of its first rows: where the two differ much, that is part of the variance, so that
// what the rounding of larger squares costs stays small beside it. `narrow` holds 3 * lanes, `wide` 2 * lanes values.
template <class T, class P>
void chunk_statistics(const T* x, std::int64_t rows, std::int64_t lanes, std::int64_t block_rows, P* narrow,
                      double* wide, double* mean, double* squares) {
  P *centre = narrow, *sum = narrow + lanes, *sum_of_squares = narrow + 2 * lanes;
  double *block_mean = wide, *block_squares = wide + lanes;
  const std::int64_t ahead = rows_ahead<T>(lanes) * lanes;
  const std::int64_t first_rows = std::min<std::int64_t>(8, rows);
  std::fill_n(centre, lanes, P(0));
  block_deviations(x, first_rows, lanes, ahead, centre, sum, sum_of_squares);
  for (std::int64_t c = 0; c < lanes; ++c) centre[c] = sum[c] / static_cast<P>(first_rows);
  for (std::int64_t begin = 0; begin < rows; begin += block_rows) {
    const std::int64_t count = std::min(block_rows, rows - begin);
    block_deviations(x + begin * lanes, count, lanes, ahead, centre, sum, sum_of_squares);
    const double n = static_cast<double>(count), share = 1.0 / n;
#pragma omp simd
    for (std::int64_t c = 0; c < lanes; ++c) {
      const double s = static_cast<double>(sum[c]);
      block_mean[c] = static_cast<double>(centre[c]) + s * share;
      block_squares[c] = static_cast<double>(sum_of_squares[c]) - s * s * share;
      centre[c] = static_cast<P>(block_mean[c]);
    }
    if (begin == 0) {
      std::copy_n(block_mean, lanes, mean);
      std::copy_n(block_squares, lanes, squares);
    } else {
      join_statistics(static_cast<double>(begin), mean, squares, n, block_mean, block_squares, lanes);
    }
  }
  restore<T>(mean, 1, lanes);
  restore<T>(squares, 1, lanes);
}

// The mask `bytes` on, where there is one.
template <ReluGate gate>
HEARTH_ALWAYS_INLINE const std::uint8_t* mask_from(const std::uint8_t* mask, std::int64_t bytes) {
  return gate == ReluGate::from_mask ? mask + bytes : nullptr;
}

// Per channel: mean, scale, shift; what the ReLU's gate is found from.
template <class P>
struct Table {
  const P *mean, *scale, *shift;
};

// Adds the sums over `count` rows of g and of g (x - mean).
template <ReluGate gate, int count, class T, class P>
void add_gradients(const T* x, const T* dy, const Table<P>& table, const std::uint8_t* mask, std::int64_t lanes,
                   std::int64_t ahead, P* sum, P* product) {
  using Value = typename Vectors<P>::Value;
  constexpr std::int64_t run = 2 * Vectors<P>::lanes;
  const std::int64_t mask_bytes = (lanes + 7) / 8;
  std::int64_t c = 0;
  for (; c < paired<T>(lanes); c += run) {
    const Pair<P> mean = read(table.mean + c), scale = read(table.scale + c), shift = read(table.shift + c);
    Pair<P> s = read(sum + c), p = read(product + c);
#pragma GCC unroll 4
    for (int row = 0; row < count; ++row) {
      ask_for<P>(x + row * lanes + c + ahead);
      ask_for<P>(dy + row * lanes + c + ahead);
      const Pair<P> value = read(x + row * lanes + c);
      Pair<P> g = read(dy + row * lanes + c);
      if constexpr (gate == ReluGate::from_mask) g = where_set<T>(mask + row * mask_bytes, c, g);
      for (int half = 0; half < 2; ++half) {
        const Value d = value.part[half] - mean.part[half];
        Value behind = g.part[half];
        if constexpr (gate == ReluGate::from_input)
          behind = d * scale.part[half] + shift.part[half] > 0 ? behind : Value{};
        s.part[half] += behind;
        p.part[half] += behind * d;
      }
    }
    write(s, sum + c);
    write(p, product + c);
  }
  for (std::int64_t i = c; i < lanes; ++i) {
    for (int row = 0; row < count; ++row) {
      const P d = cpu::load(x + row * lanes + i) - table.mean[i];
      bool open = true;
      if constexpr (gate == ReluGate::from_input) open = d * table.scale[i] + table.shift[i] > P(0);
      if constexpr (gate == ReluGate::from_mask) open = (mask[row * mask_bytes + i / 8] >> (i % 8) & 1) != 0;
      const P g = open ? cpu::load(dy + row * lanes + i) : P(0);
      sum[i] += g;
      product[i] += g * d;
    }
  }
}

template <ReluGate gate, class T, class P>
void block_gradients(const T* x, const T* dy, const Table<P>& table, const std::uint8_t* mask, std::int64_t rows,
                     std::int64_t lanes, std::int64_t ahead, P* sum, P* product) {
  const std::int64_t mask_bytes = (lanes + 7) / 8;
  std::fill_n(sum, lanes, P(0));
  std::fill_n(product, lanes, P(0));
  std::int64_t row = 0;
  const auto add = [&]<int count>() {
    add_gradients<gate, count>(x + row * lanes, dy + row * lanes, table, mask_from<gate>(mask, row * mask_bytes), lanes,
                               ahead, sum, product);
  };
  for (; row + 4 <= rows; row += 4) add.template operator()<4>();
  for (; row < rows; ++row) add.template operator()<1>();
}

// Adds a block's sums of g and g (x - mean) in P, then to `sums` in f64. `narrow` holds 2 * lanes values.
template <ReluGate gate, class T, class P>
void chunk_gradients(const T* x, const T* dy, const P* coefficients, const std::uint8_t* mask, std::int64_t rows,
                     std::int64_t lanes, std::int64_t block_rows, P* narrow, double* sums) {
  const Table<P> table{coefficients, coefficients + lanes, coefficients + 2 * lanes};
  const std::int64_t mask_bytes = (lanes + 7) / 8;
  const std::int64_t ahead = rows_ahead<T>(lanes) * lanes;
  std::fill_n(sums, 2 * lanes, 0.0);
  for (std::int64_t begin = 0; begin < rows; begin += block_rows) {
    const std::int64_t count = std::min(block_rows, rows - begin);
    block_gradients<gate>(x + begin * lanes, dy + begin * lanes, table, mask_from<gate>(mask, begin * mask_bytes),
                          count, lanes, ahead, narrow, narrow + lanes);
#pragma omp simd
    for (std::int64_t c = 0; c < 2 * lanes; ++c) sums[c] += static_cast<double>(narrow[c]);
  }
  restore<T>(sums, 2, lanes);
}

inline void add_chunk(const double* term, std::int64_t count, double* sum) {
#pragma omp simd
  for (std::int64_t c = 0; c < count; ++c) sum[c] += term[c];
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {
namespace {

constexpr std::int64_t lanes_a_piece = 256;  // of what joins the chunks' results

}  // namespace

void channel_statistics(const Tensor& x, double* mean, double* variance) {
  const BatchNormPieces layout(x);
  const std::int64_t lanes = layout.lanes, channels = layout.channels;
  const std::int64_t chunks = layout.chunks();
  cpu::Scratch scratch;
  double* const partial = scratch.take<double>(chunks * 2 * lanes);
  visit_dtype("batch_norm", x.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    const T* const values = x.data<T>();
    cpu::parallel_chunks_backwards(chunks, [&](std::int64_t i) {
      cpu::Scratch local;
      P* const narrow = local.take<P>(3 * lanes);
      double* const wide = local.take<double>(2 * lanes);
      const std::int64_t begin = i * layout.chunk_rows, count = std::min(layout.chunk_rows, layout.rows - begin);
      double* const out = partial + i * 2 * lanes;
      HEARTH_ISA_CALL_FOR(T, chunk_statistics, values + begin * lanes, count, lanes, layout.block_rows, narrow, wide,
                          out, out + lanes);
    });
  });
  cpu::parallel_for(lanes, lanes_a_piece, [&](std::int64_t first, std::int64_t last) {
    double n = static_cast<double>(std::min(layout.chunk_rows, layout.rows));
    for (std::int64_t i = 1; i < chunks; ++i) {
      const double count = static_cast<double>(std::min(layout.chunk_rows, layout.rows - i * layout.chunk_rows));
      const double* const other = partial + i * 2 * lanes;
      HEARTH_ISA_CALL(join_statistics, n, partial + first, partial + lanes + first, count, other + first,
                      other + lanes + first, last - first);
      n += count;
    }
  });
  const double rows = static_cast<double>(layout.rows);
  double n = rows;
  for (std::int64_t f = 1; f < layout.fold; ++f, n += rows) {
    HEARTH_ISA_CALL(join_statistics, n, partial, partial + lanes, rows, partial + f * channels,
                    partial + lanes + f * channels, channels);
  }
  std::copy_n(partial, channels, mean);
  for (std::int64_t c = 0; c < channels; ++c) variance[c] = std::max(0.0, partial[lanes + c] / n);
}

void add_parts(const double* parts, std::int64_t count, std::int64_t channels, double* sum) {
  cpu::parallel_for(2 * channels, lanes_a_piece, [&](std::int64_t first, std::int64_t last) {
    if (sum != parts) std::copy(parts + first, parts + last, sum + first);
    for (std::int64_t i = 1; i < count; ++i)
      HEARTH_ISA_CALL(add_chunk, parts + i * 2 * channels + first, last - first, sum + first);
  });
}

void channel_gradient_sums(const BatchNormSaved& saved, const Tensor& dy, double* sum, double* product) {
  const Tensor& x = saved.x;
  const BatchNormPieces layout(x);
  const std::int64_t lanes = layout.lanes, channels = layout.channels, mask_bytes = layout.mask_bytes();
  const std::int64_t chunks = layout.chunks();
  cpu::Scratch scratch;
  double* const partial = scratch.take<double>(chunks * 2 * lanes);
  visit_dtype("batch_norm", x.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    const P* const unordered = layout.folded<P>(scratch, saved.coefficients);
    P* const table = scratch.take<P>(3 * lanes);
    HEARTH_ISA_CALL_FOR(T, arrange<T>, unordered, 3, lanes, table);
    const T *values = x.data<T>(), *gradient = dy.data<T>();
    const std::uint8_t* const bits = saved.mask.defined() ? saved.mask.data<std::uint8_t>() : nullptr;
    cpu::parallel_chunks_backwards(chunks, [&](std::int64_t i) {
      cpu::Scratch local;
      P* const narrow = local.take<P>(2 * lanes);
      const std::int64_t begin = i * layout.chunk_rows, rows = std::min(layout.chunk_rows, layout.rows - begin);
      with_gate(saved.gate, [&]<ReluGate g>() {
        const std::uint8_t* const row_bits = g == ReluGate::from_mask ? bits + begin * mask_bytes : nullptr;
        HEARTH_ISA_CALL_FOR(T, chunk_gradients<g>, values + begin * lanes, gradient + begin * lanes, table, row_bits,
                            rows, lanes, layout.block_rows, narrow, partial + i * 2 * lanes);
      });
    });
  });
  std::fill_n(sum, channels, 0.0);
  std::fill_n(product, channels, 0.0);
  if (chunks == 0) return;
  add_parts(partial, chunks, lanes, partial);
  for (std::int64_t f = 0; f < layout.fold; ++f) {
    HEARTH_ISA_CALL(add_chunk, partial + f * channels, channels, sum);
    HEARTH_ISA_CALL(add_chunk, partial + lanes + f * channels, channels, product);
  }
}

template <class T>
void NormRows::gradient_sums(const T* x, const T* dy, const acc_t<T>* coefficients, double* sums) const {
  cpu::Scratch scratch;
  const std::int64_t block = BatchNormPieces::block_of(channels * static_cast<std::int64_t>(sizeof(T)));
  HEARTH_ISA_CALL_FOR(T, chunk_gradients<ReluGate::from_input>, x, dy, coefficients,
                      static_cast<const std::uint8_t*>(nullptr), rows, channels, block,
                      scratch.take<acc_t<T> >(2 * channels), sums);
}

template void NormRows::gradient_sums(const float*, const float*, const float*, double*) const;
template void NormRows::gradient_sums(const double*, const double*, const double*, double*) const;
template void NormRows::gradient_sums(const f16*, const f16*, const float*, double*) const;
template void NormRows::gradient_sums(const bf16*, const bf16*, const float*, double*) const;

}  // namespace hearth::kernels
#endif
