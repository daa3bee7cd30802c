// SPDX-License-Identifier: Apache-2.0
// A few rows are gathered in the nearest cache and normalised from there; their gradient takes their place and is
// scattered.
#include <algorithm>

#include "ops/norm/cpu/layer_norm_cpu.h"
#include "ops/norm/merge_layer_norm.h"
#include "ops/norm/merged_rows.h"
#include "ops/norm/parameter.h"

namespace hearth::kernels {
namespace {

// Rows whose gradient is made together: more would leave the nearest cache, with dy beside them.
constexpr std::int64_t gradient_rows = 4;

// f(where the values are in rows [begin, begin + count), which lie one behind another, channels, where in x), and
// missing(...) of those that an odd side lacks.
template <class F, class Missing>
void each_neighbour(const MergedRows& merged, std::int64_t begin, std::int64_t count, const F& f,
                    const Missing& missing) {
  const std::int64_t channels = merged.channels;
  for (std::int64_t r = 0; r < count; ++r) {
    const MergedRows::Corner corner = merged.corner(begin + r);
    for (std::int64_t c = 0; c < 4 * channels; c += channels) {
      const MergedRows::Spot spot = merged.spot(corner, c);
      if (spot.exists)
        f(4 * channels * r + c, channels, spot.at);
      else
        missing(4 * channels * r + c, channels);
    }
  }
}

template <class T>
void gather(const MergedRows& merged, const T* x, std::int64_t begin, std::int64_t count, T* rows) {
  each_neighbour(
      merged, begin, count,
      [=](std::int64_t at, std::int64_t channels, std::int64_t from) { std::copy_n(x + from, channels, rows + at); },
      [=](std::int64_t at, std::int64_t channels) { std::fill_n(rows + at, channels, T(0.0f)); });
}

template <class T>
void scatter(const MergedRows& merged, const T* rows, std::int64_t begin, std::int64_t count, T* dx) {
  each_neighbour(
      merged, begin, count,
      [=](std::int64_t at, std::int64_t channels, std::int64_t to) { std::copy_n(rows + at, channels, dx + to); },
      [](std::int64_t, std::int64_t) {});
}

}  // namespace

void merge_layer_norm(cpu::Stream&, const Tensor& x, const Normalized& o) {
  if (x.size() == 0) return;
  const MergedRows merged(x);
  const std::int64_t cols = o.y.dim(-1);
  visit_dtype("merge_layer_norm", x.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    visit_norm_result<T>("merge_layer_norm", o.y.dtype(), [&]<class D>() {
      const T* const from = x.data<T>();
      const P *const gamma = o.gamma.data<P>(), *const beta = o.beta.data<P>();
      D* const y = o.y.data<D>();
      P *const means = o.mean.data<P>(), *const rstds = o.rstd.data<P>();
      const std::int64_t most = rows_in_cache<T>(cols);
      cpu::parallel_for(o.y.size() / cols, norm_grain(cols), [&](std::int64_t begin, std::int64_t end) {
        cpu::Scratch scratch;
        T* const rows = scratch.take<T>(most * cols);
        for (std::int64_t r = begin; r < end; r += most) {
          const std::int64_t count = std::min(most, end - r);
          gather(merged, from, r, count, rows);
          layer_norm_rows(rows, gamma, beta, o.eps, y + r * cols, means + r, rstds + r, count, cols);
        }
      });
    });
  });
}

void merge_layer_norm_grad(cpu::Stream&, const Tensor& x, const NormGradient& g, const Tensor& dx) {
  const MergedRows merged(x);
  const std::int64_t cols = g.dy.dim(-1), rows = cols == 0 ? 0 : g.dy.size() / cols;
  visit_dtype("merge_layer_norm", x.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    visit_norm_result<T>("merge_layer_norm", g.dy.dtype(), [&]<class D>() {
      const T* const from = x.data<T>();
      T* const to = dx.data<T>();
      const D* const dy = g.dy.data<D>();
      const P *const gamma = g.gamma.data<P>(), *const means = g.mean.data<P>(), *const rstds = g.rstd.data<P>();
      norm_grad_pieces(rows, cols, {g.d_gamma, g.d_beta}, [&](std::int64_t begin, std::int64_t piece, double* sums) {
        cpu::Scratch scratch;
        T* const gathered = scratch.take<T>(gradient_rows * cols);
        NormParameterSums<P> parameters(scratch, sums, cols);
        for (std::int64_t r = begin; r < begin + piece; r += gradient_rows) {
          const std::int64_t count = std::min(gradient_rows, begin + piece - r);
          gather(merged, from, r, count, gathered);
          layer_norm_grad_rows(gathered, dy + r * cols, gamma, means + r, rstds + r, static_cast<const T*>(nullptr),
                               gathered, parameters, count, r + count == begin + piece);
          scatter(merged, gathered, r, count, to);
        }
      });
    });
  });
}

}  // namespace hearth::kernels
