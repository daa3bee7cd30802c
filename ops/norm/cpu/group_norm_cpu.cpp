// SPDX-License-Identifier: Apache-2.0
// A piece of work is some groups of one image, at least about 64 channels, so that loops over channels fill vectors. It
// sums by channel, in f64, and joins the channels of each group.
// Reference: that of layer_norm_cpu.cpp, where a row is one group of one image, all pixels; gamma and
// beta are the channel's.
#include <algorithm>
#include <cmath>

#include "core/cpu/element.h"
#include "core/cpu/parallel.h"
#include "ops/norm/group_norm.h"
#include "ops/scratch.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/norm/cpu/group_norm_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

// Rows of a piece are its pixels: `width` channels, `stride` elements from one row to the next.

/// Sums and sums of squares of the deviations from `centre`.
template <class T, class P>
void group_norm_moments(const T* x, std::int64_t rows, std::int64_t stride, std::int64_t width, const P* centre,
                        double* sums, double* squares) {
  for (std::int64_t r = 0; r < rows; ++r, x += stride)
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) {
      const double d = static_cast<double>(cpu::load(x + c) - centre[c]);
      sums[c] += d;
      squares[c] += d * d;
    }
}

template <class T, class P>
void group_norm_apply(const T* x, std::int64_t rows, std::int64_t stride, std::int64_t width, const P* mean,
                      const P* rstd, const P* gamma, const P* beta, T* y) {
  for (std::int64_t r = 0; r < rows; ++r, x += stride, y += stride)
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c)
      cpu::store(y + c, (cpu::load(x + c) - mean[c]) * rstd[c] * gamma[c] + beta[c]);
}

/// Sums of dy, and of dy times normalised x.
template <class T, class P>
void group_norm_grad_sums(const T* x, const T* dy, std::int64_t rows, std::int64_t stride, std::int64_t width,
                          const P* mean, const P* rstd, double* sums, double* products) {
  for (std::int64_t r = 0; r < rows; ++r, x += stride, dy += stride)
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) {
      const P d = cpu::load(dy + c);
      sums[c] += static_cast<double>(d);
      products[c] += static_cast<double>(d * ((cpu::load(x + c) - mean[c]) * rstd[c]));
    }
}

template <class T, class P>
void group_norm_grad_apply(const T* x, const T* dy, std::int64_t rows, std::int64_t stride, std::int64_t width,
                           const P* mean, const P* rstd, const P* gamma, const P* a, const P* b, T* dx) {
  for (std::int64_t r = 0; r < rows; ++r, x += stride, dy += stride, dx += stride)
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) {
      const P normal = (cpu::load(x + c) - mean[c]) * rstd[c];
      cpu::store(dx + c, rstd[c] * (cpu::load(dy + c) * gamma[c] - a[c] - normal * b[c]));
    }
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {
namespace {

/// Some groups of one image.
struct GroupPiece {
  std::int64_t image, first_group, groups;
  std::int64_t first_channel, width;  ///< of these groups
  std::int64_t at;                    ///< of the first element in x
};

template <class F>
void each_piece(const GroupedImages& s, const F& f) {
  const std::int64_t together = std::max<std::int64_t>(1, 64 / s.channels);
  const std::int64_t pieces = (s.groups + together - 1) / together;
  cpu::parallel_chunks(s.images * pieces, [&](std::int64_t i) {
    const std::int64_t image = i / pieces, first = i % pieces * together, groups = std::min(together, s.groups - first);
    const std::int64_t channel = first * s.channels;
    f(GroupPiece{image, first, groups, channel, groups * s.channels, image * s.pixels * s.width() + channel});
  });
}

/// Every channel of a group gets the group's value.
template <class P>
void spread(const GroupPiece& piece, std::int64_t channels, const P* of_groups, P* of_channels) {
  for (std::int64_t g = 0; g < piece.groups; ++g) std::fill_n(of_channels + g * channels, channels, of_groups[g]);
}

double sum_of(const double* values, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += values[i];
  return sum;
}

/// The statistics of the groups of a piece: one pass for the mean, one around it.
template <class T, class P>
void take_statistics(const GroupedImages& s, const GroupPiece& piece, const T* x, double eps, P* means, P* rstds) {
  const double count = static_cast<double>(s.pixels) * static_cast<double>(s.channels);
  cpu::Scratch scratch;
  P* const centre = scratch.take<P>(piece.width);
  double* const sums = scratch.take<double>(2 * piece.width);
  double* const squares = sums + piece.width;
  // From the first value on, so that a large mean does not take the sum's digits.
  for (std::int64_t g = 0; g < piece.groups; ++g) means[g] = cpu::load(x + g * s.channels);
  for (const bool last : {false, true}) {
    spread(piece, s.channels, means, centre);
    std::fill_n(sums, 2 * piece.width, 0.0);
    HEARTH_ISA_CALL_FOR(T, group_norm_moments, x, s.pixels, s.width(), piece.width, centre, sums, squares);
    for (std::int64_t g = 0; g < piece.groups; ++g) {
      const double rest = sum_of(sums + g * s.channels, s.channels) / count;
      means[g] = static_cast<P>(static_cast<double>(means[g]) + rest);
      if (!last) continue;
      const double variance = std::max(0.0, sum_of(squares + g * s.channels, s.channels) / count - rest * rest);
      rstds[g] = static_cast<P>(1.0 / std::sqrt(variance + eps));
    }
  }
}

/// The mean of dy gamma and that of dy gamma times normalised x, of each group of a piece.
template <class P>
void grad_means(const GroupedImages& s, const GroupPiece& piece, const P* gamma, const double* sums,
                const double* products, P* a, P* b) {
  const double count = static_cast<double>(s.pixels) * static_cast<double>(s.channels);
  for (std::int64_t g = 0; g < piece.groups; ++g) {
    double sum = 0, product = 0;
    for (std::int64_t c = g * s.channels; c < (g + 1) * s.channels; ++c) {
      sum += static_cast<double>(gamma[c]) * sums[c];
      product += static_cast<double>(gamma[c]) * products[c];
    }
    a[g] = static_cast<P>(sum / count);
    b[g] = static_cast<P>(product / count);
  }
}

/// gradient [C] = the sums over the images, partial [images, 2, C] from `first` on.
void join_images(const GroupedImages& s, const double* first, const Tensor& gradient) {
  if (!gradient.defined()) return;
  visit_dtype("group_norm", gradient.dtype(), FullFloats{}, [&]<class P>() {
    for (std::int64_t c = 0; c < s.width(); ++c) {
      double sum = 0;
      for (std::int64_t n = 0; n < s.images; ++n) sum += first[2 * n * s.width() + c];
      gradient.data<P>()[c] = static_cast<P>(sum);
    }
  });
}

}  // namespace

void group_norm(cpu::Stream&, const GroupedImages& s, const Tensor& x, const GroupNormalized& o) {
  visit_dtype("group_norm", x.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    const T* const in = x.data<T>();
    T* const out = o.y.data<T>();
    P *const means = o.mean.data<P>(), *const rstds = o.rstd.data<P>();
    const P *const gamma = o.gamma.data<P>(), *const beta = o.beta.data<P>();
    each_piece(s, [&](const GroupPiece& piece) {
      const std::int64_t group = piece.image * s.groups + piece.first_group, c = piece.first_channel;
      take_statistics(s, piece, in + piece.at, o.eps, means + group, rstds + group);
      cpu::Scratch scratch;
      P* const mean = scratch.take<P>(2 * piece.width);
      P* const rstd = mean + piece.width;
      spread(piece, s.channels, means + group, mean);
      spread(piece, s.channels, rstds + group, rstd);
      HEARTH_ISA_CALL_FOR(T, group_norm_apply, in + piece.at, s.pixels, s.width(), piece.width, mean, rstd, gamma + c,
                          beta + c, out + piece.at);
    });
  });
}

void group_norm_grad(cpu::Stream&, const GroupedImages& s, const Tensor& x, const GroupNormGradient& g) {
  cpu::Scratch whole;
  double* const partial = whole.take<double>(2 * s.images * s.width());
  visit_dtype("group_norm", x.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    const T *const in = x.data<T>(), *const dy = g.dy.data<T>();
    const P *const means = g.mean.data<P>(), *const rstds = g.rstd.data<P>(), *const gamma = g.gamma.data<P>();
    T* const dx = g.dx.defined() ? g.dx.data<T>() : nullptr;
    each_piece(s, [&](const GroupPiece& piece) {
      const std::int64_t group = piece.image * s.groups + piece.first_group, width = piece.width;
      double* const sums = partial + 2 * piece.image * s.width() + piece.first_channel;
      double* const products = sums + s.width();
      cpu::Scratch scratch;
      P* const mean = scratch.take<P>(4 * width);
      P *const rstd = mean + width, *const a = rstd + width, *const b = a + width;
      P* const of_groups = scratch.take<P>(2 * piece.groups);
      spread(piece, s.channels, means + group, mean);
      spread(piece, s.channels, rstds + group, rstd);
      std::fill_n(sums, width, 0.0);
      std::fill_n(products, width, 0.0);
      HEARTH_ISA_CALL_FOR(T, group_norm_grad_sums, in + piece.at, dy + piece.at, s.pixels, s.width(), width, mean, rstd,
                          sums, products);
      if (dx == nullptr) return;
      const P* const scale = gamma + piece.first_channel;
      grad_means(s, piece, scale, sums, products, of_groups, of_groups + piece.groups);
      spread(piece, s.channels, of_groups, a);
      spread(piece, s.channels, of_groups + piece.groups, b);
      HEARTH_ISA_CALL_FOR(T, group_norm_grad_apply, in + piece.at, dy + piece.at, s.pixels, s.width(), width, mean,
                          rstd, scale, a, b, dx + piece.at);
    });
  });
  join_images(s, partial, g.d_beta);
  join_images(s, partial + s.width(), g.d_gamma);
}

}  // namespace hearth::kernels
#endif
