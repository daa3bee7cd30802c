// SPDX-License-Identifier: Apache-2.0
// What becomes of the sums of a data gradient beyond being stored: the norm with a ReLU that the convolution's images
// came through, or the gradient that waits for it. For kernel sources only.
#pragma once

#include "ops/conv/kernels.h"
#include "ops/conv/moments.cuh"
#include "ops/conv/operands.cuh"
#include "ops/norm/gradient_sums.cuh"
#include "ops/run_sums.cuh"

namespace hearth::kernels::conv_operands {

/// c[at] = sum + added[at], the latter where `mask` (or null) has a bit; c may be `added`. A pair shares a byte.
template <class T>
struct AddingStore {
  using Element = T;
  T* c;
  const T* added;
  const std::uint8_t* mask;

  /// The bits from that of `at` on, in its byte.
  __device__ unsigned bits_at(std::int64_t at) const { return mask == nullptr ? 3u : mask[at / 8] >> (at % 8); }
  __device__ void operator()(std::int64_t at, std::int64_t, acc_t<T> sum) const {
    c[at] = cuda::cast_down<T>((bits_at(at) & 1u) != 0 ? sum + cuda::upcast(added[at]) : sum);
  }
  __device__ void pair(std::int64_t at, std::int64_t, acc_t<T> first, acc_t<T> second, bool) const {
    const unsigned bits = bits_at(at);
    const auto more = cuda::load_pack<2>(added + at);
    if ((bits & 1u) != 0) first += cuda::upcast(more.at[0]);
    if ((bits & 2u) != 0) second += cuda::upcast(more.at[1]);
    cuda::store_pack(c + at, cuda::Pack<T, 2>{cuda::cast_down<T>(first), cuda::cast_down<T>(second)});
  }
};

/// c[at] = sum + what `added` has for the pixel, which is that of every `step_h`-th line and `step_w`-th column.
template <class T>
struct AddingSubsampled {
  using Element = T;
  T* c;
  const T* added;  ///< [n, p, q, channels]
  int channels, h, w, p, q, step_h, step_w;

  /// The channels of a pixel of c, or null.
  __device__ const T* of_pixel(std::int64_t pixel) const {
    const int at = static_cast<int>(pixel), line = at / w, column = at - line * w, image = line / h,
              row = line - image * h;
    if (row % step_h != 0 || column % step_w != 0) return nullptr;
    return added + (static_cast<std::int64_t>(image * p + row / step_h) * q + column / step_w) * channels;
  }
  __device__ void operator()(std::int64_t at, std::int64_t, acc_t<T> sum) const {
    const T* const from = of_pixel(at / channels);
    c[at] = cuda::cast_down<T>(from != nullptr ? sum + cuda::upcast(from[at % channels]) : sum);
  }
  /// Of a pixel, whose channels begin at `at` - channel.
  __device__ void pair_of(std::int64_t pixel, std::int64_t at, std::int64_t channel, acc_t<T> first,
                          acc_t<T> second) const {
    if (const T* const from = of_pixel(pixel); from != nullptr) {
      const auto values = cuda::load_pack<2>(from + channel);
      first += cuda::upcast(values.at[0]);
      second += cuda::upcast(values.at[1]);
    }
    cuda::store_pack(c + at, cuda::Pack<T, 2>{cuda::cast_down<T>(first), cuda::cast_down<T>(second)});
  }
};

/// The gradient goes back through a ReLU and is stored, and a tile leaves its sums for the norm before that, which the
/// last tile adds.
template <class T>
struct BehindNorm {
  using Element = T;
  T* dx;
  const T* before;  ///< what went into the norm, as dx
  GradientSums<acc_t<T>> norm;
  cuda::RunSums sums;  ///< of g, of g (before - mean); a run being the rows of a tile
};

/// A tile has left its sums: the last one makes of all what the norm's gradient needs. All threads of the block call.
template <int side, class T>
__device__ void finish_behind_norm(const BehindNorm<T>& to, const TilePart& part) {
  HEARTH_SHARED(double, totals, [2 * side]);
  if (!cuda::join_runs<2>(to.sums, part.channel / side, part.run, part.channel, part.columns, totals)) return;
  const int column = static_cast<int>(threadIdx.x);
  if (column < part.columns) to.norm.store(part.channel + column, totals[column], totals[part.columns + column]);
}

/// Stores a tile of it, and finishes the norm's sums where it is the last. put(first) and `memory` are as in
/// leave_moments(), for the tile's gradients. `sums` holds eight values of each thread, and may be `memory`. All
/// threads of the block call; all memory is free afterwards.
template <int side, class T, class Put>
__device__ void store_behind_norm(const BehindNorm<T>& to, const TilePart& part, const Put& put, const T* memory,
                                  acc_t<T>* sums) {
  using A = acc_t<T>;
  using Layout = MomentsTile<T, side>;
  constexpr int unit = 8, across = Layout::columns / unit, down = Layout::threads / across;
  const int mine = static_cast<int>(threadIdx.x), column = mine % across * unit, group = mine / across;
  for (int first = 0; first < side; first += Layout::columns) {
    put(first);
    __syncthreads();
    A sum[unit] = {}, product[unit] = {};
    if (first + column < part.columns) {
      const std::int64_t channel = part.channel + first + column;
      A mean[unit], scale[unit], shift[unit], value[unit], slope[unit];
      const std::int64_t channels = to.norm.channels;
      cuda::load_unit(to.norm.table + channel, mean);
      cuda::load_unit(to.norm.table + channels + channel, scale);
      cuda::load_unit(to.norm.table + 2 * channels + channel, shift);
      for (int row = group; row < part.rows; row += down) {
        const std::int64_t at = (part.run * side + row) * channels + channel;
        cuda::load_unit(to.before + at, value);
        cuda::load_unit(memory + row * Layout::pitch + column, slope);
        HEARTH_UNROLL
        for (int k = 0; k < unit; ++k) {
          const A d = value[k] - mean[k];
          const A y = sizeof(T) == 2 ? value[k] * scale[k] + (shift[k] - mean[k] * scale[k]) : d * scale[k] + shift[k];
          slope[k] = y > A(0) ? slope[k] : A(0);
          sum[k] += slope[k];
          product[k] += slope[k] * d;
        }
        cuda::store_unit(to.dx + at, slope);
      }
    }
    // A thread adds a column's groups in order.
    const auto leave = [&](const A(&value)[unit], int which) {
      __syncthreads();
      HEARTH_UNROLL
      for (int k = 0; k < unit; ++k) sums[group * Layout::columns + column + k] = value[k];
      __syncthreads();
      if (mine >= Layout::columns || first + mine >= part.columns) return;
      double total = 0;
      for (int of = 0; of < down; ++of) total += static_cast<double>(sums[of * Layout::columns + mine]);
      *to.sums.at(part.run, which, part.channel + first + mine) = total;
    };
    leave(sum, 0);
    leave(product, 1);
    __syncthreads();
  }
  finish_behind_norm<side>(to, part);
}

/// tile::launch_split(), of which what stores whole tiles needs no second launch, nor do parts that are left
/// `unfinished`, unless that is null.
template <class Into, class Run>
void launch_tiles(cuda::Stream& stream, const tile::LaunchNames& names, const Tiles& t, const Tensor& result,
                  std::int64_t columns, const Into& into, Tensor* unfinished, const Run& run) {
  using A = acc_t<typename Into::Element>;
  if constexpr (std::is_same_v<Into, BehindNorm<typename Into::Element>>) {
    run(names.whole, into, std::int64_t{0});
  } else if (unfinished != nullptr && t.split.count > 1) {
    *unfinished = Tensor::empty({t.split.count, result.size()}, dtype_of<A>(), result.device());
    run(names.parts, tile::Store<A>{unfinished->data<A>(), nullptr, false, false}, result.size());
  } else {
    tile::launch_split(stream, names, t.split, result, columns, into, run);
  }
}

/// What a launch of a pass moves: its operands, the result or its parts, and what the store reads beside.
template <Pass pass, class Into>
std::int64_t bytes_of_pass(const ConvShape& shape, const Tensor& left, const Tensor& right, const Into& into,
                           const tile::Split& split, const Tensor& result, std::int64_t part_elements,
                           std::size_t part_element) {
  using T = typename Into::Element;
  std::int64_t in = cuda::bytes_of(left, right);
  if constexpr (pass != Pass::backward_data) in -= skipped_bytes(shape, left.dtype());
  if constexpr (std::is_same_v<Into, BehindNorm<T>>)
    in += cuda::bytes_of(result) + into.sums.bytes();
  else if constexpr (std::is_same_v<Into, AddingStore<T>>)
    in += cuda::bytes_of(result) + (into.mask == nullptr ? 0 : result.size() / 8);
  else if constexpr (std::is_same_v<Into, AddingSubsampled<T>>)
    in += cuda::bytes_of(result) / (static_cast<std::int64_t>(into.h) * into.w) *
          (static_cast<std::int64_t>(into.p) * into.q);
  else
    in += into.accumulate ? cuda::bytes_of(result) : 0;
  return tile::moved_by(in, split, result, part_elements, part_element);
}

/// f(store) with what becomes of the sums of backward_data, whose tiles are made whole where they leave sums.
template <class T, class F>
void with_data_store(cuda::Stream& stream, const Conv2dOperands& o, Tiles t, F&& f) {
  const Conv2dFusion* const fusion = o.fusion;
  const Tensor& dx = o.x;
  if (fusion != nullptr && fusion->gradient != nullptr) {
    const BatchNormGradient& norm = *fusion->gradient;
    t = whole_depths(t);
    Tensor memory;
    const cuda::RunSums sums = cuda::run_sums(stream, 2, dx.dim(-1), t.row_tiles, t.column_tiles, memory);
    return f(t, BehindNorm<T>{dx.data<T>(), norm.x.data<T>(), gradient_sums<acc_t<T>>(norm, t.rows), sums});
  }
  if (fusion != nullptr && fusion->added.defined() && (fusion->added_stride.h != 1 || fusion->added_stride.w != 1)) {
    const auto size = [](std::int64_t value) { return static_cast<int>(value); };
    const Tensor& added = fusion->added;
    return f(t, AddingSubsampled<T>{dx.data<T>(), added.data<T>(), size(dx.dim(3)), size(dx.dim(1)), size(dx.dim(2)),
                                    size(added.dim(1)), size(added.dim(2)), size(fusion->added_stride.h),
                                    size(fusion->added_stride.w)});
  }
  if (fusion != nullptr && fusion->added.defined())
    return f(t, AddingStore<T>{dx.data<T>(), fusion->added.data<T>(), cuda::data_or_null<std::uint8_t>(fusion->mask)});
  f(t, tile::store_of<T>(dx, Tensor(), o.accumulate));
}

template <class T>
ThroughNorm<T> through_norm(const Conv2dFusion& fusion) {
  return {fusion.coefficients.data<acc_t<T>>(), static_cast<int>(fusion.coefficients.dim(1))};
}

/// f(read) with how forward and backward_weights read x.
template <class T, class F>
void with_read(const Conv2dFusion* fusion, F&& f) {
  if (fusion == nullptr) return f(AsStored<T>{});
  f(through_norm<T>(*fusion));
}

}  // namespace hearth::kernels::conv_operands
