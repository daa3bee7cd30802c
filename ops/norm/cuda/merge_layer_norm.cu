// SPDX-License-Identifier: Apache-2.0
// Rows of layer normalisation that are gathered from where their neighbours lie, and gradients that go back there.
// Traffic: x is read and y written once; the gradient reads x and dy and writes dx.
#include "ops/norm/merge_layer_norm.h"

#include "ops/norm/cuda/layer_norm.cuh"
#include "ops/norm/merged_rows.h"

namespace hearth::kernels {
namespace {

using namespace cuda;
using namespace layer_norm_rows;

template <class T>
struct GatheredRows {
  using Element = T;
  using P = acc_t<T>;
  const T* x;
  T* dx;  // null: no gradient is made
  MergedRows merged;

  // Units lie within a neighbour.
  struct Row {
    template <int width>
    using Piece = RawUnit<T, width>;
    GatheredRows rows;
    MergedRows::Corner corner;
    bool inside;

    template <int held, class Group>
    __device__ void begin(const Group&, int) {}
    template <int width>
    __device__ Piece<width> fetch(int c) const {
      const MergedRows::Spot spot = rows.merged.spot(corner, c);
      Piece<width> piece{};
      if (spot.exists) piece = load_raw<width>(rows.x + spot.at);
      return piece;
    }
    template <int width>
    __device__ void take(int, const RawUnit<T, width>& piece, P (&value)[width]) const {
      unpack<T, width>(piece, value);
    }
    template <int width>
    __device__ void store(int c, const RawUnit<T, width>&, const P (&value)[width]) const {
      const MergedRows::Spot spot = rows.merged.spot(corner, c);
      if (spot.exists) store_unit(rows.dx + spot.at, value);
    }
  };
  __device__ Row row(std::int64_t row, int, bool inside) const { return {*this, merged.corner(row), inside}; }
  /// Its address takes divisions.
  __device__ void ask_for(std::int64_t) const {}
  __device__ P element(std::int64_t row, std::int64_t, std::int64_t c) const {
    const MergedRows::Spot spot = merged.spot(merged.corner(row), c);
    return spot.exists ? upcast(x[spot.at]) : P(0);
  }
  __device__ P again(std::int64_t row, std::int64_t cols, std::int64_t c) const { return element(row, cols, c); }
  __device__ void store(std::int64_t row, std::int64_t, std::int64_t c, P value) const {
    const MergedRows::Spot spot = merged.spot(merged.corner(row), c);
    if (spot.exists) dx[spot.at] = cast_down<T>(value);
  }
};

}  // namespace

void merge_layer_norm(cuda::Stream& stream, const Tensor& x, const Normalized& o) {
  if (x.size() == 0) return;
  const auto arrays = {address_of(x), address_of(o.gamma), address_of(o.beta), address_of(o.y)};
  visit_rows("merge_layer_norm", x.dtype(), x.dim(3), arrays, [&]<class T, int width>() {
    visit_norm_result<T>("merge_layer_norm", o.y.dtype(), [&]<class D>() {
      normalize_rows<D, width>(stream, "merge_layer_norm", GatheredRows<T>{x.data<T>(), nullptr, MergedRows(x)},
                               bytes_of(x), o);
    });
  });
}

void merge_layer_norm_grad(cuda::Stream& stream, const Tensor& x, const NormGradient& g, const Tensor& dx) {
  if (settles_empty(g)) return;
  const auto arrays = {address_of(x), address_of(g.dy), address_of(g.gamma), address_of(dx)};
  visit_rows("merge_layer_norm", x.dtype(), x.dim(3), arrays, [&]<class T, int width>() {
    visit_norm_result<T>("merge_layer_norm", g.dy.dtype(), [&]<class D>() {
      normalize_rows_grad<D, width>(stream, "merge_layer_norm_grad",
                                    GatheredRows<T>{x.data<T>(), dx.data<T>(), MergedRows(x)}, bytes_of(x, dx), g);
    });
  });
}

}  // namespace hearth::kernels
