// SPDX-License-Identifier: Apache-2.0
// The rows lie in memory, and so does their gradient.
#include "ops/norm/cuda/layer_norm.cuh"
#include "ops/norm/layer_norm.h"

namespace hearth::kernels {
namespace {

using namespace cuda;
using namespace layer_norm_rows;

template <class T>
struct StoredRows {
  using Element = T;
  using P = acc_t<T>;
  const T* x;
  T* dx;  // null: no gradient is made

  struct Row {
    template <int width>
    using Piece = RawUnit<T, width>;
    const T* x;
    T* dx;
    bool inside;

    template <int held, class Group>
    __device__ void begin(const Group&, int) {}
    template <int width>
    __device__ Piece<width> fetch(int c) const {
      return load_raw<width>(x + c);
    }
    template <int width>
    __device__ void take(int, const RawUnit<T, width>& piece, P (&value)[width]) const {
      unpack<T, width>(piece, value);
    }
    template <int width>
    __device__ void store(int c, const RawUnit<T, width>&, const P (&value)[width]) const {
      store_unit(dx + c, value);
    }
  };
  __device__ Row row(std::int64_t row, int cols, bool inside) const {
    return {x + row * cols, dx + row * cols, inside};
  }
  __device__ void ask_for(std::int64_t at) const { prefetch(x + at); }
  __device__ P element(std::int64_t row, std::int64_t cols, std::int64_t c) const { return upcast(x[row * cols + c]); }
  __device__ P again(std::int64_t row, std::int64_t cols, std::int64_t c) const { return element(row, cols, c); }
  __device__ void store(std::int64_t row, std::int64_t cols, std::int64_t c, P value) const {
    dx[row * cols + c] = cast_down<T>(value);
  }
};

}  // namespace

void layer_norm(cuda::Stream& stream, const Tensor& x, const Normalized& o) {
  if (x.size() == 0) return;
  const auto arrays = {address_of(x), address_of(o.gamma), address_of(o.beta), address_of(o.y)};
  visit_rows("layer_norm", x.dtype(), x.dim(-1), arrays, [&]<class T, int width>() {
    visit_norm_result<T>("layer_norm", o.y.dtype(), [&]<class D>() {
      normalize_rows<D, width>(stream, "layer_norm", StoredRows<T>{x.data<T>(), nullptr}, bytes_of(x), o);
    });
  });
}

void layer_norm_grad(cuda::Stream& stream, const Tensor& x, const NormGradient& g, const Tensor& dx) {
  if (settles_empty(g)) return;
  const auto arrays = {address_of(x), address_of(g.dy), address_of(g.gamma), address_of(dx)};
  visit_rows("layer_norm", x.dtype(), x.dim(-1), arrays, [&]<class T, int width>() {
    visit_norm_result<T>("layer_norm", g.dy.dtype(), [&]<class D>() {
      normalize_rows_grad<D, width>(stream, "layer_norm_grad", StoredRows<T>{x.data<T>(), dx.data<T>()},
                                    bytes_of(x, dx), g);
    });
  });
}

}  // namespace hearth::kernels
