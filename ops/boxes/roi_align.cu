// SPDX-License-Identifier: Apache-2.0
// One thread a bin and as many channels as 16 bytes hold (one where they do not divide), channels fastest. In the
// gradient a thread has a pixel and goes through the boxes in order, so that nothing is added atomically. Weights are
// computed where they are used; pixels come mostly from the cache.
#include "core/cuda/elementwise.h"
#include "core/dtype.h"
#include "ops/boxes/roi_align.h"

namespace hearth::kernels {
namespace {

/// Maps [N, H, W, C] and boxes on them.
template <class P>
struct RoiInput {
  RoiGrid grid;
  std::int64_t maps, height, width, channels, count;
  const P* boxes;
  const std::int64_t* images;
  cuda::FaultSlot* faults;

  __device__ RoiAxis<P> down(std::int64_t k) const {
    return RoiAxis<P>(boxes[k * 4 + 1], boxes[k * 4 + 3], grid, grid.rows, height);
  }
  __device__ RoiAxis<P> across(std::int64_t k) const {
    return RoiAxis<P>(boxes[k * 4], boxes[k * 4 + 2], grid, grid.columns, width);
  }
};

template <int width, class T>
__global__ void roi_bins(RoiInput<acc_t<T>> in, const T* x, T* y) {
  using P = acc_t<T>;
  const std::int64_t groups = in.channels / width, size = in.count * in.grid.rows * in.grid.columns * groups;
  for (std::int64_t at = cuda::global_thread(); at < size; at += cuda::global_threads()) {
    const std::int64_t channel = at % groups * width, bin = at / groups;
    const std::int64_t q = bin % in.grid.columns, p = bin / in.grid.columns % in.grid.rows;
    const std::int64_t k = bin / in.grid.columns / in.grid.rows;
    std::int64_t image = in.images[k];
    if (image < 0 || image >= in.maps) {
      cuda::report_fault(in.faults, cuda::FaultKind::index, image, in.maps);
      image = 0;
    }
    const RoiAxis<P> down = in.down(k), across = in.across(k);
    const RoiRange rows = down.pixels_of(p), columns = across.pixels_of(q);
    const P share = roi_share(down, across);
    P sum[width] = {};
    for (std::int64_t h = rows.first; h < rows.last; ++h) {
      const P row_weight = share * down.weight(p, h);
      for (std::int64_t w = columns.first; w < columns.last; ++w) {
        const P weight = row_weight * across.weight(q, w);
        const auto pack = cuda::load_pack<width>(x + ((image * in.height + h) * in.width + w) * in.channels + channel);
        HEARTH_UNROLL
        for (int i = 0; i < width; ++i) sum[i] += weight * cuda::upcast(pack.at[i]);
      }
    }
    cuda::Pack<T, width> result;
    HEARTH_UNROLL
    for (int i = 0; i < width; ++i) result.at[i] = cuda::cast_down<T>(sum[i]);
    cuda::store_pack(y + at * width, result);
  }
}

template <int width, class T>
__global__ void roi_pixels(RoiInput<acc_t<T>> in, const T* dy, T* dx) {
  using P = acc_t<T>;
  const std::int64_t groups = in.channels / width, size = in.maps * in.height * in.width * groups;
  for (std::int64_t at = cuda::global_thread(); at < size; at += cuda::global_threads()) {
    const std::int64_t channel = at % groups * width, pixel = at / groups;
    const std::int64_t w = pixel % in.width, h = pixel / in.width % in.height, map = pixel / in.width / in.height;
    P sum[width] = {};
    for (std::int64_t k = 0; k < in.count; ++k) {
      if (in.images[k] != map) continue;
      const RoiAxis<P> down = in.down(k), across = in.across(k);
      const RoiRange rows = down.bins_of(h), columns = across.bins_of(w);
      for (std::int64_t p = rows.first; p < rows.last; ++p) {
        const P row_weight = roi_share(down, across) * down.weight(p, h);
        for (std::int64_t q = columns.first; q < columns.last; ++q) {
          const P weight = row_weight * across.weight(q, w);
          const auto pack =
              cuda::load_pack<width>(dy + ((k * in.grid.rows + p) * in.grid.columns + q) * in.channels + channel);
          HEARTH_UNROLL
          for (int i = 0; i < width; ++i) sum[i] += weight * cuda::upcast(pack.at[i]);
        }
      }
    }
    cuda::Pack<T, width> result;
    HEARTH_UNROLL
    for (int i = 0; i < width; ++i) result.at[i] = cuda::cast_down<T>(sum[i]);
    cuda::store_pack(dx + at * width, result);
  }
}

/// From maps or bins to the other; `maps` are one of both.
void run_roi(cuda::Stream& stream, const RoiGrid& grid, bool gradient, const Tensor& maps, const Tensor& boxes,
             const Tensor& images, const Tensor& from, const Tensor& to) {
  const char* const name = gradient ? "roi_align_grad" : "roi_align";
  const std::int64_t moved = cuda::bytes_of(from, boxes, images, to);
  visit_dtype("roi_align", maps.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    const RoiInput<P> in{grid,
                         maps.dim(0),
                         maps.dim(1),
                         maps.dim(2),
                         maps.dim(3),
                         boxes.dim(0),
                         boxes.data<P>(),
                         images.data<std::int64_t>(),
                         cuda::fault_slot(stream)};
    const T* const read = from.data<T>();
    T* const written = to.data<T>();
    const auto run = [&]<int width>() {
      cuda::launch(stream, name, cuda::shape_over(to.size() / width).moving(moved),
                   gradient ? roi_pixels<width, T> : roi_bins<width, T>, in, read, written);
    };
    if (cuda::packs_fit(read, maps.dim(3)) && cuda::packs_fit(written, maps.dim(3)))
      run.template operator()<cuda::pack_size<T>>();
    else
      run.template operator()<1>();
  });
}

}  // namespace

void roi_align(cuda::Stream& stream, const RoiGrid& grid, const Tensor& x, const Tensor& boxes, const Tensor& images,
               const Tensor& y) {
  run_roi(stream, grid, false, x, boxes, images, x, y);
}

void roi_align_grad(cuda::Stream& stream, const RoiGrid& grid, const Tensor& boxes, const Tensor& images,
                    const Tensor& dy, const Tensor& dx) {
  run_roi(stream, grid, true, dx, boxes, images, dy, dx);
}

}  // namespace hearth::kernels
