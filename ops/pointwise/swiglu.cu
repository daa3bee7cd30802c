// SPDX-License-Identifier: Apache-2.0
// Threads run along the rows, 16 bytes of each half at a time where rows are aligned, else single elements. Traffic: x
// is read once and y written once; the gradient reads x and dy and writes dx.
#include <cmath>

#include "core/cuda/elementwise.h"
#include "ops/device/row_split.cuh"
#include "ops/pointwise/swiglu.h"

namespace hearth::kernels {
namespace {

using namespace cuda;

template <class P>
__device__ __forceinline__ P sigmoid(P x) {
  return P(1) / (P(1) + std::exp(-x));
}

template <class T, int width>
__global__ void __launch_bounds__(element_block)
    gate(const T* x, T* y, std::int64_t rows, std::int64_t units, std::int64_t cols) {
  using P = acc_t<T>;
  walk_rows(rows, units, [&](std::int64_t row, std::int64_t unit) {
    P a[width], b[width];
    const T* const from = x + row * 2 * cols + unit * width;
    load_unit(from, a);
    load_unit(from + cols, b);
    HEARTH_UNROLL
    for (int k = 0; k < width; ++k) a[k] = a[k] * sigmoid(a[k]) * b[k];
    store_unit(y + row * cols + unit * width, a);
  });
}

template <class T, int width>
__global__ void __launch_bounds__(element_block)
    gate_grad(const T* x, const T* dy, T* dx, std::int64_t rows, std::int64_t units, std::int64_t cols) {
  using P = acc_t<T>;
  walk_rows(rows, units, [&](std::int64_t row, std::int64_t unit) {
    P a[width], b[width], d[width];
    const std::int64_t at = row * 2 * cols + unit * width;
    load_unit(x + at, a);
    load_unit(x + at + cols, b);
    load_unit(dy + row * cols + unit * width, d);
    HEARTH_UNROLL
    for (int k = 0; k < width; ++k) {
      const P open = sigmoid(a[k]);
      const P slope = d[k] * b[k] * open * (P(1) + a[k] * (P(1) - open));
      b[k] = d[k] * a[k] * open;
      a[k] = slope;
    }
    store_unit(dx + at, a);
    store_unit(dx + at + cols, b);
  });
}

}  // namespace

void swiglu(Stream& stream, const Tensor& x, const Tensor& y) {
  const std::int64_t cols = y.dim(-1), rows = y.size() / cols;
  visit_rows("swiglu", x.dtype(), cols, {x.bytes(), y.bytes()}, [&]<class T, int width>() {
    launch(stream, "swiglu", shape_over_rows(rows, cols / width).moving(bytes_of(x, y)), gate<T, width>, x.data<T>(),
           y.data<T>(), rows, cols / width, cols);
  });
}

void swiglu_grad(Stream& stream, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  const std::int64_t cols = dy.dim(-1), rows = dy.size() / cols;
  visit_rows("swiglu", x.dtype(), cols, {x.bytes(), dy.bytes(), dx.bytes()}, [&]<class T, int width>() {
    launch(stream, "swiglu_grad", shape_over_rows(rows, cols / width).moving(bytes_of(x, dy, dx)), gate_grad<T, width>,
           x.data<T>(), dy.data<T>(), dx.data<T>(), rows, cols / width, cols);
  });
}

}  // namespace hearth::kernels
