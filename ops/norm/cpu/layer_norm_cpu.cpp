// SPDX-License-Identifier: Apache-2.0
// A few rows at a time, from memory once: the later passes find them in the nearest cache. The gradient makes dx and
// the rows' share of the parameters' gradients in the same pass. Reference, for each row, of n values:
//   mean = sum(x) / n;  rstd = 1 / sqrt(sum((x - mean)^2) / n + eps);  z = (x - mean) * rstd
//   y = z * gamma + beta
//   d_beta += dy;  d_gamma += dy * z
//   g = dy * gamma;  dx = rstd * (g - sum(g) / n - z * sum(g * z) / n)
#include <algorithm>
#include <cmath>

#include "core/cpu/lanes.h"
#include "ops/norm/cpu/layer_norm_cpu.h"
#include "ops/norm/layer_norm.h"
#include "ops/norm/parameter.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/norm/cpu/layer_norm_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

#include "core/cpu/lanes.inc"

// Rows that are normalised side by side, so that what a row waits for, its sums over lanes and its root, is made for
// all at once: as many as there are lanes, or as lie in the nearest cache.
template <class T>
std::int64_t rows_at_once(std::int64_t cols) {
  constexpr std::int64_t values = (1 << 14) / static_cast<std::int64_t>(sizeof(T));
  return std::clamp<std::int64_t>(values / cols, 1, Lanes<acc_t<T>>::count);
}

// Lane i is the sum of the lanes of rows[i].
template <class P, int count>
HEARTH_ALWAYS_INLINE typename Lanes<P>::Vector sums_of_rows(typename Lanes<P>::Vector (&rows)[count]) {
  static_assert(count == Lanes<P>::count);
  turn_vectors<1>(rows);
  for (int half = count / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) rows[i] += rows[half + i];
  return rows[0];
}

// rows_at_once() rows or fewer.
template <class T, class D, class P>
void normalize_rows(const T* x, const P* gamma, const P* beta, double eps, D* y, P* means, P* rstds, std::int64_t rows,
                    std::int64_t cols) {
  using Vector = typename Lanes<P>::Vector;
  constexpr int most = static_cast<int>(Lanes<P>::count);
  const P n = static_cast<P>(cols);
  Vector sums[most] = {}, products[most] = {};
  P centres[most] = {}, mean[most], rstd[most];
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* const row = x + r * cols;
    // From the first value on, so that a large mean does not take the sum's digits.
    const P first = centres[r] = cpu::load(row);
    Vector totals[4] = {};
    std::int64_t c = over_lanes<P>(cols, [&](std::int64_t at, int k) { totals[k] += load_lanes(row + at) - first; });
    sums[r] = (totals[0] + totals[1]) + (totals[2] + totals[3]);
    for (; c < cols; ++c) sums[r][0] += cpu::load(row + c) - first;
  }
  store_lanes(centres, load_lanes(centres) + sums_of_rows<P>(sums) / n);
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* const row = x + r * cols;
    const P centre = centres[r];
    Vector totals[4] = {}, squares[4] = {};
    std::int64_t c = over_lanes<P>(cols, [&](std::int64_t at, int k) {
      // Of the rows that come next, and of the results, which would wait for their lines.
      __builtin_prefetch(row + rows * cols + at);
      __builtin_prefetch(y + r * cols + at, 1);
      const Vector d = load_lanes(row + at) - centre;
      totals[k] += d;
      squares[k] += d * d;
    });
    sums[r] = (totals[0] + totals[1]) + (totals[2] + totals[3]);
    products[r] = (squares[0] + squares[1]) + (squares[2] + squares[3]);
    for (; c < cols; ++c) {
      const P d = cpu::load(row + c) - centre;
      sums[r][0] += d;
      products[r][0] += d * d;
    }
  }
  // What rounding left in the centre is taken out of both.
  const Vector rest = sums_of_rows<P>(sums) / n, square = sums_of_rows<P>(products) / n;
  store_lanes(mean, load_lanes(centres) + rest);
#pragma omp simd
  for (int r = 0; r < most; ++r) {
    const double variance = std::max(0.0, static_cast<double>(square[r]) - static_cast<double>(rest[r]) * rest[r]);
    rstd[r] = static_cast<P>(1.0 / std::sqrt(variance + eps));
  }
  std::copy_n(mean, rows, means);
  std::copy_n(rstd, rows, rstds);
  for (std::int64_t r = 0; r < rows; ++r, y += cols) {
    const T* const row = x + r * cols;
    const P middle = mean[r], factor = rstd[r];
    std::int64_t c = fill_lanes(y, cols, [&](std::int64_t at) {
      return (load_lanes(row + at) - middle) * factor * load_lanes(gamma + at) + load_lanes(beta + at);
    });
    for (; c < cols; ++c) cpu::store(y + c, (cpu::load(row + c) - middle) * factor * gamma[c] + beta[c]);
  }
}

// Rows whose parameter gradients are summed in P before they join the sums in f64.
constexpr std::int64_t rows_in_narrow = 64;

// How far ahead of a gradient's first pass x and dx are asked for: stores to lines that are in no cache would wait.
constexpr std::int64_t bytes_ahead = 4096;

// The gradient, and what lies at `others` unless that is null, goes to dx, which may be x, dy or `others`.
template <class T, class D, class P>
void layer_norm_grad_rows(const T* x, const D* dy, const P* gamma, const P* means, const P* rstds, const T* others,
                          T* dx, NormParameterSums<P>& parameters, std::int64_t rows, bool last) {
  using Vector = typename Lanes<P>::Vector;
  const std::int64_t cols = parameters.cols;
  P *const d_gamma = parameters.narrow, *const d_beta = d_gamma + cols;
  double* const wide = parameters.sums;
  for (std::int64_t r = 0; r < rows; ++r, x += cols, dy += cols, dx += cols) {
    const P mean = means[r], rstd = rstds[r];
    Vector sums_of[4] = {}, products_of[4] = {};
    std::int64_t c = over_lanes<P>(cols, [&](std::int64_t at, int k) {
      __builtin_prefetch(x + at + bytes_ahead / static_cast<std::int64_t>(sizeof(*x)));
      __builtin_prefetch(dx + at + bytes_ahead / static_cast<std::int64_t>(sizeof(*dx)), 1);
      const Vector normal = (load_lanes(x + at) - mean) * rstd, d = load_lanes(dy + at), g = d * load_lanes(gamma + at);
      sums_of[k] += g;
      products_of[k] += g * normal;
      store_lanes(d_gamma + at, load_lanes(d_gamma + at) + d * normal);
      store_lanes(d_beta + at, load_lanes(d_beta + at) + d);
    });
    P sum = sum_of_lanes<P>((sums_of[0] + sums_of[1]) + (sums_of[2] + sums_of[3]));
    P product = sum_of_lanes<P>((products_of[0] + products_of[1]) + (products_of[2] + products_of[3]));
    for (; c < cols; ++c) {
      const P normal = (cpu::load(x + c) - mean) * rstd, d = cpu::load(dy + c), g = d * gamma[c];
      sum += g;
      product += g * normal;
      d_gamma[c] += d * normal;
      d_beta[c] += d;
    }
    const P a = sum / static_cast<P>(cols), b = product / static_cast<P>(cols);
    c = fill_lanes(dx, cols, [&](std::int64_t at) {
      const Vector normal = (load_lanes(x + at) - mean) * rstd;
      const Vector value = rstd * (load_lanes(dy + at) * load_lanes(gamma + at) - a - normal * b);
      return others == nullptr ? value : value + load_lanes(others + at);
    });
    for (; c < cols; ++c) {
      const P normal = (cpu::load(x + c) - mean) * rstd;
      const P value = rstd * (cpu::load(dy + c) * gamma[c] - a - normal * b);
      cpu::store(dx + c, others == nullptr ? value : value + cpu::load(others + c));
    }
    if (others != nullptr) others += cols;
    if (++parameters.rows % rows_in_narrow != 0 && !(last && r + 1 == rows)) continue;
#pragma omp simd
    for (std::int64_t i = 0; i < 2 * cols; ++i) {
      wide[i] += static_cast<double>(d_gamma[i]);
      d_gamma[i] = P(0);
    }
  }
}

// Any number of rows.
template <class T, class D, class P>
void layer_norm_rows(const T* x, const P* gamma, const P* beta, double eps, D* y, P* means, P* rstds, std::int64_t rows,
                     std::int64_t cols) {
  const std::int64_t most = rows_at_once<T>(cols);
  for (std::int64_t r = 0; r < rows; r += most)
    normalize_rows(x + r * cols, gamma, beta, eps, y + r * cols, means + r, rstds + r, std::min(most, rows - r), cols);
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {

template <class T, class D>
void layer_norm_rows(const T* x, const acc_t<T>* gamma, const acc_t<T>* beta, double eps, D* y, acc_t<T>* means,
                     acc_t<T>* rstds, std::int64_t rows, std::int64_t cols) {
  HEARTH_ISA_CALL_FOR(T, layer_norm_rows, x, gamma, beta, eps, y, means, rstds, rows, cols);
}

template <class T, class D>
void layer_norm_grad_rows(const T* x, const D* dy, const acc_t<T>* gamma, const acc_t<T>* means, const acc_t<T>* rstds,
                          const T* others, T* dx, NormParameterSums<acc_t<T>>& parameters, std::int64_t rows,
                          bool last) {
  HEARTH_ISA_CALL_FOR(T, layer_norm_grad_rows, x, dy, gamma, means, rstds, others, dx, parameters, rows, last);
}

#define HEARTH_LAYER_NORM_ROWS(T, D)                                                                                  \
  template void layer_norm_rows(const T*, const acc_t<T>*, const acc_t<T>*, double, D*, acc_t<T>*, acc_t<T>*,         \
                                std::int64_t, std::int64_t);                                                          \
  template void layer_norm_grad_rows(const T*, const D*, const acc_t<T>*, const acc_t<T>*, const acc_t<T>*, const T*, \
                                     T*, NormParameterSums<acc_t<T>>&, std::int64_t, bool);
HEARTH_LAYER_NORM_ROWS(float, float)
HEARTH_LAYER_NORM_ROWS(float, f16)
HEARTH_LAYER_NORM_ROWS(float, bf16)
HEARTH_LAYER_NORM_ROWS(double, double)
HEARTH_LAYER_NORM_ROWS(f16, f16)
HEARTH_LAYER_NORM_ROWS(bf16, bf16)
#undef HEARTH_LAYER_NORM_ROWS

void layer_norm(cpu::Stream&, const Tensor& x, const Normalized& o) {
  if (x.size() == 0) return;
  const std::int64_t cols = x.dim(-1);
  visit_dtype("layer_norm", x.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    visit_norm_result<T>("layer_norm", o.y.dtype(), [&]<class D>() {
      cpu::parallel_for(x.size() / cols, norm_grain(cols), [&](std::int64_t begin, std::int64_t end) {
        layer_norm_rows(x.data<T>() + begin * cols, o.gamma.data<P>(), o.beta.data<P>(), o.eps,
                        o.y.data<D>() + begin * cols, o.mean.data<P>() + begin, o.rstd.data<P>() + begin, end - begin,
                        cols);
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
        NormParameterSums<P> parameters(scratch, sums, cols);
        layer_norm_grad_rows(x.data<T>() + at, g.dy.data<D>() + at, g.gamma.data<P>(), g.mean.data<P>() + begin,
                             g.rstd.data<P>() + begin, static_cast<const T*>(nullptr), dx.data<T>() + at, parameters,
                             count, true);
      });
    });
  });
}

}  // namespace hearth::kernels
#endif
