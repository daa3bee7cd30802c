// SPDX-License-Identifier: Apache-2.0
// Lanes or a block share a row, which is read from memory once and a second time from the cache. The gradient of gamma
// is summed by thread columns over runs of rows, whose shares a second kernel adds in order; the runs follow from the
// shape alone.
// Reference: rms_norm_cpu.cpp.
#include "ops/norm/rms_norm.h"

#include <algorithm>
#include <cmath>

#include "ops/device/row_split.cuh"

namespace hearth::kernels {
namespace {

using namespace cuda;

template <class T, int width, class Group>
__global__ void __launch_bounds__(group_block<Group>)
    rms_norm_rows(const T* x, const acc_t<T>* gamma, double eps, T* y, acc_t<T>* rstds, std::int64_t rows,
                  std::int64_t cols, Group group) {
  using P = acc_t<T>;
  const int index = group.index(), threads = group.threads();
  each_row(group, rows, [&](std::int64_t row, bool inside) {
    const std::int64_t held = inside ? cols : 0;
    P squares = 0;
    each_column<width>(index, threads, held, [&](std::int64_t c) {
      P value[width];
      load_unit(x + row * cols + c, value);
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) squares += value[k] * value[k];
    });
    squares = group.template reduce<Sum>(squares, P(0));
    const P rstd = P(1) / std::sqrt(squares / static_cast<P>(cols) + static_cast<P>(eps));
    if (inside && index == 0) rstds[row] = rstd;
    each_column<width>(index, threads, held, [&](std::int64_t c) {
      P value[width], scale[width];
      load_unit(x + row * cols + c, value);
      load_unit(gamma + c, scale);
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) value[k] = value[k] * rstd * scale[k];
      store_unit(y + row * cols + c, value);
    });
  });
}

/// dx, which may be dy.
template <class T, int width, class Group>
__global__ void __launch_bounds__(group_block<Group>)
    rms_norm_grad_rows(const T* x, const T* dy, const acc_t<T>* gamma, const acc_t<T>* rstds, T* dx, std::int64_t rows,
                       std::int64_t cols, Group group) {
  using P = acc_t<T>;
  const int index = group.index(), threads = group.threads();
  each_row(group, rows, [&](std::int64_t row, bool inside) {
    const std::int64_t held = inside ? cols : 0;
    const P rstd = rstds[row];
    P product = 0;
    const auto each = [&](const auto& f) {
      each_column<width>(index, threads, held, [&](std::int64_t c) {
        P value[width], slope[width], scale[width];
        load_unit(x + row * cols + c, value);
        load_unit(dy + row * cols + c, slope);
        load_unit(gamma + c, scale);
        HEARTH_UNROLL
        for (int k = 0; k < width; ++k) {
          value[k] *= rstd;
          slope[k] *= scale[k];
        }
        f(c, value, slope);
      });
    };
    each([&](std::int64_t, const P(&normal)[width], const P(&slope)[width]) {
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) product += slope[k] * normal[k];
    });
    const P b = group.template reduce<Sum>(product, P(0)) / static_cast<P>(cols);
    each([&](std::int64_t c, const P(&normal)[width], P(&slope)[width]) {
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) slope[k] = rstd * (slope[k] - normal[k] * b);
      store_unit(dx + row * cols + c, slope);
    });
  });
}

/// A thread a column, blockIdx.y a run of rows: partial [runs, cols].
template <class T>
__global__ void rms_norm_gamma_shares(const T* x, const T* dy, const acc_t<T>* rstds, acc_t<T>* partial,
                                      std::int64_t rows, std::int64_t cols, std::int64_t rows_each) {
  const std::int64_t c = global_thread(), begin = blockIdx.y * rows_each;
  if (c >= cols) return;
  acc_t<T> sum = 0;
  for (std::int64_t row = begin; row < begin + rows_each && row < rows; ++row)
    sum += upcast(dy[row * cols + c]) * (upcast(x[row * cols + c]) * rstds[row]);
  partial[blockIdx.y * cols + c] = sum;
}

template <class P>
__global__ void rms_norm_add_shares(const P* partial, std::int64_t shares, std::int64_t cols, P* d_gamma) {
  const std::int64_t c = global_thread();
  if (c >= cols) return;
  double sum = 0;
  for (std::int64_t share = 0; share < shares; ++share) sum += static_cast<double>(partial[share * cols + c]);
  d_gamma[c] = static_cast<P>(sum);
}

template <class T>
void make_gamma_gradient(Stream& stream, const Tensor& x, const Tensor& dy, const Tensor& rstd, const Tensor& d_gamma) {
  using P = acc_t<T>;
  const std::int64_t cols = x.dim(-1), rows = x.size() / cols;
  // Runs enough to fill a device with blocks of 128 columns.
  const std::int64_t wanted = std::clamp<std::int64_t>(512 * 128 / cols, 1, 512);
  const std::int64_t rows_each = std::max<std::int64_t>(16, (rows + wanted - 1) / wanted);
  const std::int64_t shares = (rows + rows_each - 1) / rows_each;
  const Tensor partial = Tensor::empty({shares, cols}, d_gamma.dtype(), x.device());
  launch(stream, "rms_norm_gamma_shares",
         {{blocks_for(cols, 128), static_cast<unsigned>(shares)}, 128, 0, bytes_of(x, dy, rstd, partial)},
         rms_norm_gamma_shares<T>, x.data<T>(), dy.data<T>(), rstd.data<P>(), partial.data<P>(), rows, cols, rows_each);
  launch(stream, "rms_norm_add_shares", {blocks_for(cols, 128), 128, 0, bytes_of(partial, d_gamma)},
         rms_norm_add_shares<P>, partial.data<P>(), shares, cols, d_gamma.data<P>());
}

}  // namespace

void rms_norm(Stream& stream, const Tensor& x, const Tensor& gamma, double eps, const Tensor& y, const Tensor& rstd) {
  if (x.size() == 0) return;
  const std::int64_t cols = x.dim(-1), rows = x.size() / cols;
  visit_rows("rms_norm", x.dtype(), cols, {x.bytes(), gamma.bytes(), y.bytes()}, [&]<class T, int width>() {
    using P = acc_t<T>;
    with_row_group(rows, cols, warp_cols<T, width>, width, lane_units<T, width>,
                   [&]<class Group>(Group group, const LaunchShape& shape) {
                     launch(stream, "rms_norm", shape.moving(bytes_of(x, gamma, y, rstd)),
                            rms_norm_rows<T, width, Group>, x.data<T>(), gamma.data<P>(), eps, y.data<T>(),
                            rstd.data<P>(), rows, cols, group);
                   });
  });
}

void rms_norm_grad(Stream& stream, const Tensor& x, const Tensor& dy, const Tensor& gamma, const Tensor& rstd,
                   const Tensor& dx, const Tensor& d_gamma) {
  if (x.size() == 0) {
    if (d_gamma.defined()) d_gamma.fill_(0);
    return;
  }
  const std::int64_t cols = x.dim(-1), rows = x.size() / cols;
  visit_rows("rms_norm", x.dtype(), cols, {x.bytes(), dy.bytes(), gamma.bytes(), dx.bytes()},
             [&]<class T, int width>() {
               using P = acc_t<T>;
               // Before dx, which may be dy, is written.
               if (d_gamma.defined()) make_gamma_gradient<T>(stream, x, dy, rstd, d_gamma);
               with_row_group(rows, cols, warp_cols<T, width>, width, lane_units<T, width>,
                              [&]<class Group>(Group group, const LaunchShape& shape) {
                                launch(stream, "rms_norm_grad", shape.moving(bytes_of(x, dy, gamma, rstd, dx)),
                                       rms_norm_grad_rows<T, width, Group>, x.data<T>(), dy.data<T>(), gamma.data<P>(),
                                       rstd.data<P>(), dx.data<T>(), rows, cols, group);
                              });
             });
}

}  // namespace hearth::kernels
