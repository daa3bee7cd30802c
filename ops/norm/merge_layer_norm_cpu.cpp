// SPDX-License-Identifier: Apache-2.0
// A few rows are gathered in the nearest cache and normalised from there; the gradient of one takes its position and is
// scattered.
#include <algorithm>
#include <cmath>

#include "core/cpu/lanes.h"
#include "ops/norm/layer_norm_cpu.h"
#include "ops/norm/merge_layer_norm.h"
#include "ops/norm/merged_rows.h"
#include "ops/norm/parameter.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/norm/merge_layer_norm_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

#include "core/cpu/lanes.inc"
#include "ops/norm/layer_norm_cpu.inc"

/// Rows from number `begin` on, one at a time in `held`, of 4 * channels values. All pointers are to element 0.
template <class T>
struct GatheredRows {
  const T* x;
  T* dx;  ///< null: no gradient is made
  MergedRows merged;
  T* held;
  std::int64_t begin;

  HEARTH_ALWAYS_INLINE const T* row(std::int64_t r) const {
    gather(r, held);
    return held;
  }
  HEARTH_ALWAYS_INLINE void gather(std::int64_t r, T* to) const {
    const MergedRows::Corner corner = merged.corner(begin + r);
    for (std::int64_t c = 0; c < 4 * merged.channels; c += merged.channels) {
      const MergedRows::Spot spot = merged.spot(corner, c);
      if (spot.exists)
        std::copy_n(x + spot.at, merged.channels, to + c);
      else
        std::fill_n(to + c, merged.channels, T(0.0f));
    }
  }
  HEARTH_ALWAYS_INLINE T* into(std::int64_t) const { return held; }
  HEARTH_ALWAYS_INLINE const T* others(std::int64_t) const { return nullptr; }
  HEARTH_ALWAYS_INLINE void finish(std::int64_t r, std::int64_t) const {
    const MergedRows::Corner corner = merged.corner(begin + r);
    for (std::int64_t c = 0; c < 4 * merged.channels; c += merged.channels) {
      const MergedRows::Spot spot = merged.spot(corner, c);
      if (spot.exists) std::copy_n(held + c, merged.channels, dx + spot.at);
    }
  }
};

template <class T, class D, class P>
void merge_layer_norm_rows(const T* x, const MergedRows& merged, const P* gamma, const P* beta, double eps, D* y,
                           P* means, P* rstds, std::int64_t begin, std::int64_t rows) {
  const std::int64_t cols = 4 * merged.channels, most = rows_at_once<T>(cols);
  cpu::Scratch scratch;
  T* const held = scratch.take<T>(most * cols);
  const GatheredRows<T> source{x, nullptr, merged, held, begin};
  for (std::int64_t r = 0; r < rows; r += most) {
    const std::int64_t count = std::min(most, rows - r), at = begin + r;
    for (std::int64_t i = 0; i < count; ++i) source.gather(r + i, held + i * cols);
    normalize_rows(held, gamma, beta, eps, y + at * cols, means + at, rstds + at, count, cols);
  }
}

template <class T, class D, class P>
void merge_layer_norm_grad_rows(const T* x, const D* dy, const MergedRows& merged, T* held, const P* gamma,
                                const P* means, const P* rstds, T* dx, P* narrow, double* sums, std::int64_t begin,
                                std::int64_t rows) {
  const std::int64_t cols = 4 * merged.channels;
  const GatheredRows<T> both{x, dx, merged, held, begin};
  layer_norm_grad_rows(both, dy + begin * cols, gamma, means + begin, rstds + begin, both, narrow, sums, rows, cols);
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {

void merge_layer_norm(cpu::Stream&, const Tensor& x, const Normalized& o) {
  if (x.size() == 0) return;
  const MergedRows merged(x);
  const std::int64_t cols = o.y.dim(-1), grain = std::max<std::int64_t>(1, (1 << 14) / cols);
  visit_dtype("merge_layer_norm", x.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    visit_norm_result<T>("merge_layer_norm", o.y.dtype(), [&]<class D>() {
      cpu::parallel_for(o.y.size() / cols, grain, [&](std::int64_t begin, std::int64_t end) {
        HEARTH_ISA_CALL(merge_layer_norm_rows, x.data<T>(), merged, o.gamma.data<P>(), o.beta.data<P>(), o.eps,
                        o.y.data<D>(), o.mean.data<P>(), o.rstd.data<P>(), begin, end - begin);
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
      norm_grad_pieces(rows, cols, {g.d_gamma, g.d_beta}, [&](std::int64_t begin, std::int64_t count, double* sums) {
        cpu::Scratch scratch;
        T* const held = scratch.take<T>(cols);
        HEARTH_ISA_CALL(merge_layer_norm_grad_rows, x.data<T>(), g.dy.data<D>(), merged, held, g.gamma.data<P>(),
                        g.mean.data<P>(), g.rstd.data<P>(), dx.data<T>(), scratch.take<P>(2 * cols), sums, begin,
                        count);
      });
    });
  });
}

}  // namespace hearth::kernels
#endif
