// SPDX-License-Identifier: Apache-2.0
// Resampling on the device. One launch writes the weights of both axes, a second the images: one thread a pixel and as
// many channels as 16 bytes hold (one where they do not divide), channels fastest. The gradient is the same sum with
// the tables transposed, so nothing is added atomically. Sums are f32 (f64 for f64).
#include "core/cuda/elementwise.h"
#include "core/dtype.h"
#include "ops/interpolate/kernels.h"

namespace hearth::kernels {
namespace {

using cuda::cast_down;
using cuda::upcast;

template <class P>
__global__ void fill_tables(Resampling r, bool transposed, TapTable<P> down, std::int64_t rows, TapTable<P> across,
                            std::int64_t columns) {
  for (std::int64_t at = cuda::global_thread(); at < rows + columns; at += cuda::global_threads()) {
    if (at < rows)
      down.fill(r.rows, transposed, at);
    else
      across.fill(r.columns, transposed, at - rows);
  }
}

/// Sizes of the images that are read and written.
struct Sizes {
  std::int64_t images, read_height, read_width, height, width, channels;
};

/// Reads each pixel once for every result that it goes into, mostly from the cache; writes each result once.
template <int width, class T>
__global__ void resample(Sizes s, TapTable<acc_t<T>> down, TapTable<acc_t<T>> across, const T* from, T* to) {
  using P = acc_t<T>;
  const std::int64_t groups = s.channels / width, count = s.images * s.height * s.width * groups;
  for (std::int64_t at = cuda::global_thread(); at < count; at += cuda::global_threads()) {
    const std::int64_t channel = at % groups * width, pixel = at / groups;
    const std::int64_t q = pixel % s.width, row = pixel / s.width, p = row % s.height, n = row / s.height;
    const P *const row_weights = down.weights + p * down.stride, *const weights = across.weights + q * across.stride;
    const T* const corner =
        from + ((n * s.read_height + down.first[p]) * s.read_width + across.first[q]) * s.channels + channel;
    P sum[width] = {};
    for (std::int64_t i = 0; i < down.count[p]; ++i)
      for (std::int64_t j = 0; j < across.count[q]; ++j) {
        const P weight = row_weights[i] * weights[j];
        const auto pack = cuda::load_pack<width>(corner + (i * s.read_width + j) * s.channels);
        HEARTH_UNROLL
        for (int k = 0; k < width; ++k) sum[k] += weight * upcast(pack.at[k]);
      }
    cuda::Pack<T, width> result;
    HEARTH_UNROLL
    for (int k = 0; k < width; ++k) result.at[k] = cast_down<T>(sum[k]);
    cuda::store_pack(to + at * width, result);
  }
}

/// Memory for the weights of an axis, and the table in it.
template <class P>
struct TableMemory {
  Tensor ranges, weights;
  TapTable<P> table;

  TableMemory(const ResampledAxis& axis, bool transposed, Device device) {
    const std::int64_t results = results_along(axis, transposed), stride = table_stride(axis, transposed);
    ranges = Tensor::empty({2, results}, DType::i64, device);
    weights = Tensor::empty({results, stride}, dtype_of<P>(), device);
    auto* const first = ranges.data<std::int64_t>();
    table = {first, first + results, weights.template data<P>(), stride};
  }
};

void run(cuda::Stream& stream, const char* name, const Resampling& r, bool transposed, const Tensor& from,
         const Tensor& to) {
  const Sizes s{to.dim(0), from.dim(1), from.dim(2), to.dim(1), to.dim(2), to.dim(3)};
  visit_dtype("interpolate", from.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    const TableMemory<P> down(r.rows, transposed, to.device()), across(r.columns, transposed, to.device());
    cuda::launch(stream, "interpolate_weights", cuda::shape_over(s.height + s.width), fill_tables<P>, r, transposed,
                 down.table, s.height, across.table, s.width);
    const T* const in = from.data<T>();
    T* const out = to.data<T>();
    if (cuda::packs_fit(in, s.channels) && cuda::packs_fit(out, s.channels))
      cuda::launch(stream, name, cuda::shape_over(to.size() / cuda::pack_size<T>), resample<cuda::pack_size<T>, T>, s,
                   down.table, across.table, in, out);
    else
      cuda::launch(stream, name, cuda::shape_over(to.size()), resample<1, T>, s, down.table, across.table, in, out);
  });
}

}  // namespace

void interpolate(cuda::Stream& stream, const Resampling& r, const Tensor& x, const Tensor& y) {
  run(stream, "interpolate", r, false, x, y);
}
void interpolate_grad(cuda::Stream& stream, const Resampling& r, const Tensor& dy, const Tensor& dx) {
  run(stream, "interpolate_grad", r, true, dy, dx);
}

}  // namespace hearth::kernels
