// SPDX-License-Identifier: Apache-2.0
// The rows lie in memory, and so does their gradient.
#include <algorithm>
#include <cmath>

#include "core/cpu/lanes.h"
#include "ops/norm/layer_norm.h"
#include "ops/norm/layer_norm_cpu.h"
#include "ops/norm/parameter.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/norm/layer_norm_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

#include "core/cpu/lanes.inc"
#include "ops/norm/layer_norm_cpu.inc"

template <class T, class D, class P>
void layer_norm_rows(const T* x, const P* gamma, const P* beta, double eps, D* y, P* means, P* rstds, std::int64_t rows,
                     std::int64_t cols) {
  const std::int64_t most = rows_at_once<T>(cols);
  for (std::int64_t r = 0; r < rows; r += most)
    normalize_rows(x + r * cols, gamma, beta, eps, y + r * cols, means + r, rstds + r, std::min(most, rows - r), cols);
}

template <class T>
struct StoredGradient {
  T* dx;
  std::int64_t cols;
  HEARTH_ALWAYS_INLINE T* into(std::int64_t r) const { return dx + r * cols; }
  HEARTH_ALWAYS_INLINE const T* others(std::int64_t) const { return nullptr; }
  HEARTH_ALWAYS_INLINE void finish(std::int64_t, std::int64_t) const {}
};

template <class T, class D, class P>
void layer_norm_grad_stored(const T* x, const D* dy, const P* gamma, const P* means, const P* rstds, T* dx, P* narrow,
                            double* sums, std::int64_t rows, std::int64_t cols) {
  layer_norm_grad_rows(StoredRows<T>{x, cols}, dy, gamma, means, rstds, StoredGradient<T>{dx, cols}, narrow, sums, rows,
                       cols);
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {

void layer_norm(cpu::Stream&, const Tensor& x, const Normalized& o) {
  if (x.size() == 0) return;
  const std::int64_t cols = x.dim(-1);
  visit_dtype("layer_norm", x.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    visit_norm_result<T>("layer_norm", o.y.dtype(), [&]<class D>() {
      cpu::parallel_for(x.size() / cols, std::max<std::int64_t>(1, (1 << 14) / cols),
                        [&](std::int64_t begin, std::int64_t end) {
                          HEARTH_ISA_CALL(layer_norm_rows, x.data<T>() + begin * cols, o.gamma.data<P>(),
                                          o.beta.data<P>(), o.eps, o.y.data<D>() + begin * cols,
                                          o.mean.data<P>() + begin, o.rstd.data<P>() + begin, end - begin, cols);
                        });
    });
  });
}

void layer_norm_grad(cpu::Stream&, const Tensor& x, const NormGradient& g, const Tensor& dx) {
  const std::int64_t cols = x.dim(-1), rows = cols == 0 ? 0 : x.size() / cols;
  visit_dtype("layer_norm", x.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    visit_norm_result<T>("layer_norm", g.dy.dtype(), [&]<class D>() {
      norm_grad_pieces(rows, cols, {g.d_gamma, g.d_beta}, [&](std::int64_t begin, std::int64_t count, double* sums) {
        const std::int64_t at = begin * cols;
        cpu::Scratch scratch;
        HEARTH_ISA_CALL(layer_norm_grad_stored, x.data<T>() + at, g.dy.data<D>() + at, g.gamma.data<P>(),
                        g.mean.data<P>() + begin, g.rstd.data<P>() + begin, dx.data<T>() + at,
                        scratch.take<P>(2 * cols), sums, count, cols);
      });
    });
  });
}

}  // namespace hearth::kernels
#endif
