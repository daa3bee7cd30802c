// SPDX-License-Identifier: Apache-2.0
// Rows that are summed on their way into layer normalisation, and a gradient that is summed and dropped on its way out.
// The threads of a row draw its random words together, a Philox block for four elements, and leave in shared memory
// which elements stay; whether a row's sample stays each finds out for itself. Traffic: x and f are read once, f only
// where its sample stays, sum and y written once; the gradient reads sum, dy and what others gave the sum, and writes
// d_sum and df.
#include "ops/norm/add_layer_norm.h"

#include "ops/norm/cuda/layer_norm.cuh"
#include "ops/pointwise/dropout.cuh"

namespace hearth::kernels {
namespace {

using namespace cuda;
using namespace layer_norm_rows;

__device__ __forceinline__ void wait_for_row(const LaneGroup&) { __syncwarp(all_lanes); }
__device__ __forceinline__ void wait_for_row(const BlockGroup&) { __syncthreads(); }

// Which elements of the group's row stay, in shared memory until the next call.
template <int held, class Group>
__device__ const std::uint8_t* draw_row(const Group& group, const DropoutDraws& draws, std::int64_t first, int cols) {
  HEARTH_SHARED(std::uint8_t, stays, [held_threads<Group> * held]);
  const int index = group.index(), threads = group.threads();
  std::uint8_t* const row = stays + static_cast<int>(threadIdx.x) / threads * threads * held;
  wait_for_row(group);
  draws.each_block(first, cols, index, threads, [&](std::uint64_t block, std::int64_t c) {
    const auto words = draws.words(block);
    HEARTH_UNROLL
    for (int j = 0; j < 4; ++j)
      if (c + 16 * j >= 0 && c + 16 * j < cols) row[c + 16 * j] = words[j] >= draws.threshold ? 1 : 0;
  });
  wait_for_row(group);
  return row;
}

// Units of what is added, or of what it gets back, of one row; `stays` is null where nothing is dropped.
template <int width, class P>
__device__ __forceinline__ void drop_unit(const std::uint8_t* stays, int c, P scale, P (&value)[width]) {
  if (stays == nullptr) {
    HEARTH_UNROLL
    for (int k = 0; k < width; ++k) value[k] *= scale;
    return;
  }
  const auto stay = load_pack<width>(stays + c);
  HEARTH_UNROLL
  for (int k = 0; k < width; ++k) value[k] = stay.at[k] != 0 ? value[k] * scale : P(0);
}

// Which samples stay, and how much they grow.
template <class P>
struct SampleDraws {
  DropoutDraws draws;
  P scale;
  std::int64_t size;  // elements of a sample

  // What the row, or the element, at `at` is multiplied with: 0 where its sample is left out.
  __device__ P factor(std::int64_t at) const { return draws.threshold == 0 || draws.keeps(at / size) ? scale : P(0); }
};

template <class T, class F>
struct SummedRows {
  using Element = T;
  using P = acc_t<T>;
  const T* x;
  const F* f;
  T* sum;
  DropoutDraws draws;
  P scale;
  SampleDraws<P> samples;

  struct Row {
    template <int width>
    struct Piece {
      RawUnit<T, width> x;
      RawUnit<F, width> f;
    };
    SummedRows rows;
    std::int64_t first;
    P factor;
    bool inside;
    const std::uint8_t* stays = nullptr;

    template <int held, class Group>
    __device__ void begin(const Group& group, int cols) {
      if (rows.draws.threshold != 0) stays = draw_row<held>(group, rows.draws, first, inside ? cols : 0);
    }
    template <int width>
    __device__ Piece<width> fetch(int c) const {
      Piece<width> piece;
      piece.x = load_raw<width>(rows.x + first + c);
      if (factor != P(0)) piece.f = load_raw<width>(rows.f + first + c);
      return piece;
    }
    template <int width>
    __device__ void take(int c, const Piece<width>& piece, P (&value)[width]) const {
      unpack<T, width>(piece.x, value);
      if (factor != P(0)) {
        P added[width];
        unpack<F, width>(piece.f, added);
        drop_unit(stays, c, rows.scale, added);
        HEARTH_UNROLL
        for (int k = 0; k < width; ++k) value[k] = upcast(cast_down<T>(std::fma(added[k], factor, value[k])));
      }
      store_unit(rows.sum + first + c, value);
    }
  };
  __device__ Row row(std::int64_t row, int cols, bool inside) const {
    return {*this, row * cols, samples.factor(row * cols), inside};
  }
  __device__ P element(std::int64_t row, std::int64_t cols, std::int64_t c) const {
    const std::int64_t at = row * cols + c;
    const P factor = samples.factor(at);
    const bool stays = factor != P(0) && draws.keeps(at);
    sum[at] = stays ? cast_down<T>(std::fma(upcast(f[at]) * scale, factor, upcast(x[at]))) : x[at];
    return upcast(sum[at]);
  }
  __device__ P again(std::int64_t row, std::int64_t cols, std::int64_t c) const { return upcast(sum[row * cols + c]); }
};

template <class T, class F>
struct SumGradientRows {
  using Element = T;
  using P = acc_t<T>;
  const T* sum;
  const T* others;  // null: none
  T* d_sum;
  F* df;  // null: not wanted
  DropoutDraws draws;
  P scale;
  SampleDraws<P> samples;

  struct Row {
    template <int width>
    struct Piece {
      RawUnit<T, width> sum, others;
    };
    SumGradientRows rows;
    std::int64_t first;
    P factor;
    bool inside;
    const std::uint8_t* stays = nullptr;

    template <int held, class Group>
    __device__ void begin(const Group& group, int cols) {
      if (rows.df != nullptr && rows.draws.threshold != 0)
        stays = draw_row<held>(group, rows.draws, first, inside ? cols : 0);
    }
    template <int width>
    __device__ Piece<width> fetch(int c) const {
      Piece<width> piece{};
      piece.sum = load_raw<width>(rows.sum + first + c);
      if (rows.others != nullptr) piece.others = load_raw<width>(rows.others + first + c);
      return piece;
    }
    template <int width>
    __device__ void take(int, const Piece<width>& piece, P (&value)[width]) const {
      unpack<T, width>(piece.sum, value);
    }
    template <int width>
    __device__ void store(int c, const Piece<width>& piece, const P (&gradient)[width]) const {
      const std::int64_t at = first + c;
      P value[width];
      unpack<T, width>(piece.others, value);
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) value[k] = upcast(cast_down<T>(value[k] + gradient[k]));
      store_unit(rows.d_sum + at, value);
      if (rows.df == nullptr) return;
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) value[k] = factor != P(0) ? value[k] * factor : P(0);
      drop_unit(stays, c, rows.scale, value);
      store_unit(rows.df + at, value);
    }
  };
  __device__ Row row(std::int64_t row, int cols, bool inside) const {
    return {*this, row * cols, df != nullptr ? samples.factor(row * cols) : P(0), inside};
  }
  __device__ void ask_for(std::int64_t at) const {
    prefetch(sum + at);
    if (others != nullptr) prefetch(others + at);
  }
  __device__ P element(std::int64_t row, std::int64_t cols, std::int64_t c) const {
    return upcast(sum[row * cols + c]);
  }
  __device__ void store(std::int64_t row, std::int64_t cols, std::int64_t c, P value) const {
    const std::int64_t at = row * cols + c;
    const T total = cast_down<T>(others == nullptr ? value : upcast(others[at]) + value);
    d_sum[at] = total;
    if (df == nullptr) return;
    const P factor = samples.factor(at);
    const bool stays = factor != P(0) && draws.keeps(at);
    df[at] = cast_down<F>(stays ? upcast(total) * factor * scale : P(0));
  }
};

// body.operator()<T, F, D, width>() for the types of x, of what is added to it, and of y, which is one of the two.
template <class Body>
void visit_types(const Tensor& x, DType f, DType y, std::initializer_list<const void*> arrays, Body&& body) {
  visit_rows("add_layer_norm", x.dtype(), x.dim(-1), arrays, [&]<class T, int width>() {
    if (f == x.dtype()) return body.template operator()<T, T, T, width>();
    if constexpr (std::is_same_v<T, float>)
      visit_dtype("add_layer_norm", f, Types<f16, bf16>{}, [&]<class F>() {
        y == x.dtype() ? body.template operator()<T, F, T, width>() : body.template operator()<T, F, F, width>();
      });
  });
}

template <class P>
P scale_of(double p) {
  return static_cast<P>(1.0 / (1.0 - p));
}

template <class P>
SampleDraws<P> sample_draws(cuda::Stream& stream, const ResidualDropout& dropout, const Tensor& x) {
  const std::int64_t samples = x.dim(0);
  return {dropout_draws(stream, dropout.path_key, dropout.path, samples), scale_of<P>(dropout.path),
          x.size() / samples};
}

}  // namespace

void add_layer_norm(cuda::Stream& stream, const Tensor& x, const Tensor& f, const ResidualDropout& dropout,
                    const Tensor& sum, const Normalized& o) {
  if (x.size() == 0) return;
  const auto arrays = {address_of(x),      address_of(f),   address_of(o.gamma),
                       address_of(o.beta), address_of(sum), address_of(o.y)};
  visit_types(x, f.dtype(), o.y.dtype(), arrays, [&]<class T, class F, class D, int width>() {
    const SummedRows<T, F> rows{x.data<T>(),
                                f.data<F>(),
                                sum.data<T>(),
                                dropout_draws(stream, dropout.key, dropout.p, x.size()),
                                scale_of<acc_t<T>>(dropout.p),
                                sample_draws<acc_t<T>>(stream, dropout, x)};
    normalize_rows<D, width>(stream, "add_layer_norm", rows, bytes_of(x, f, sum), o);
  });
}

void add_layer_norm_grad(cuda::Stream& stream, const Tensor& sum, const NormGradient& g, const ResidualDropout& dropout,
                         const Tensor& others, const Tensor& d_sum, const Tensor& df) {
  if (settles_empty(g)) return;
  const auto arrays = {address_of(sum),    address_of(g.dy),  address_of(g.gamma),
                       address_of(others), address_of(d_sum), address_of(df)};
  const DType of_f = df.defined() ? df.dtype() : g.dy.dtype();
  visit_types(sum, of_f, g.dy.dtype(), arrays, [&]<class T, class F, class D, int width>() {
    const SumGradientRows<T, F> rows{sum.data<T>(),
                                     data_or_null<T>(others),
                                     d_sum.data<T>(),
                                     data_or_null<F>(df),
                                     dropout_draws(stream, dropout.key, dropout.p, sum.size()),
                                     scale_of<acc_t<T>>(dropout.p),
                                     sample_draws<acc_t<T>>(stream, dropout, sum)};
    normalize_rows_grad<D, width>(stream, "add_layer_norm_grad", rows, bytes_of(sum, others, d_sum, df), g);
  });
}

}  // namespace hearth::kernels
