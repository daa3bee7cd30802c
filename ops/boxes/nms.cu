// SPDX-License-Identifier: Apache-2.0
// A block an image. It sorts the scores in shared memory, then takes the boxes 32 at a time by descending score: the
// first warp decides which of them stay, all threads compare those with the boxes behind. More boxes than fit into
// shared memory are sorted before. Each pass reads the boxes behind from the cache.
#include "core/cuda/kernel.h"
#include "core/dtype.h"
#include "ops/boxes/nms.h"
#include "ops/device/ordered.cuh"
#include "ops/device/product.cuh"
#include "ops/index/sort.h"

namespace hearth::kernels {
namespace {

constexpr int nms_threads = 512;
constexpr int tile = cuda::warp_size;
constexpr std::int64_t most_sorted_here = 4096;

template <class T>
struct Corners {
  T x0, y0, x1, y1, area;
  std::int64_t kind;

  Corners() = default;
  __device__ Corners(const T* box, std::int64_t kind_)
      : x0(box[0]), y0(box[1]), x1(box[2]), y1(box[3]), area(RoundedProduct()(x1 - x0, y1 - y0)), kind(kind_) {}

  __device__ bool overlaps(const Corners& other, T bound) const {
    if (kind != other.kind) return false;
    const T w = (x1 < other.x1 ? x1 : other.x1) - (x0 > other.x0 ? x0 : other.x0);
    const T h = (y1 < other.y1 ? y1 : other.y1) - (y0 > other.y0 ? y0 : other.y0);
    const T shared = RoundedProduct()(w > T(0) ? w : T(0), h > T(0) ? h : T(0));
    return shared / (area + other.area - shared) > bound;
  }
};

template <class T>
using ScoreKey = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

/// Sorts the first `padded` places, a power of two, by key and then by place. Bitonic; the block's threads together.
template <class Key>
__device__ void sort_in_block(Key* keys, int* places, int padded) {
  for (int size = 2; size <= padded; size *= 2)
    for (int stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < padded / 2; i += nms_threads) {
        const int low = 2 * i - (i & (stride - 1)), high = low + stride;
        const bool is_after = keys[low] != keys[high] ? keys[low] > keys[high] : places[low] > places[high];
        if (is_after != ((low & size) == 0)) continue;
        const Key key = keys[low];
        const int place = places[low];
        keys[low] = keys[high], places[low] = places[high];
        keys[high] = key, places[high] = place;
      }
    }
  __syncthreads();
}

template <class T>
struct NmsInput {
  const T *boxes, *scores;
  const std::int64_t* classes;  ///< null: all of one
  const std::int64_t* order;    ///< [N, n], where it is sorted already
  unsigned char* gone;          ///< with it, [N, n] zeros
  std::int64_t n;
  int padded;  ///< else: n as a power of two
  T bound;
};

template <class T>
__global__ void __launch_bounds__(nms_threads)
    nms_of_images(NmsInput<T> in, std::int64_t* indices, std::int64_t* counts) {
  HEARTH_SHARED(Corners<T>, now, [tile]);
  HEARTH_SHARED(unsigned, chosen, [1]);
  HEARTH_SHARED(std::int64_t, total, [1]);
  ScoreKey<T>* const keys = in.order == nullptr ? cuda::dynamic_shared<ScoreKey<T>>() : nullptr;
  int* const places = reinterpret_cast<int*>(keys + in.padded);
  const std::int64_t image = blockIdx.x, first_box = image * in.n;
  const int t = static_cast<int>(threadIdx.x);
  unsigned char* const gone =
      in.order != nullptr ? in.gone + first_box : reinterpret_cast<unsigned char*>(places + in.padded);
  if (in.order == nullptr) {
    for (int i = t; i < in.padded; i += nms_threads) {
      const bool inside = i < in.n;
      keys[i] = static_cast<ScoreKey<T>>(inside ? ~cuda::ordered(in.scores[first_box + i]) : ~std::uint64_t{0});
      places[i] = i;
      gone[i] = 0;
    }
    sort_in_block(keys, places, in.padded);
  }
  const auto place = [&](std::int64_t i) { return in.order != nullptr ? in.order[first_box + i] : places[i]; };
  const auto box = [&](std::int64_t i) {
    const std::int64_t at = first_box + place(i);
    return Corners<T>(in.boxes + at * 4, in.classes != nullptr ? in.classes[at] : 0);
  };
  std::int64_t count = 0;  // of the first warp
  for (std::int64_t first = 0; first < in.n; first += tile) {
    if (t < tile) {
      const bool candidate = first + t < in.n && gone[first + t] == 0;
      Corners<T> mine;
      if (candidate) now[t] = mine = box(first + t);
      const unsigned candidates = __ballot_sync(cuda::all_lanes, candidate);
      __syncwarp();
      unsigned overlapped = 0;  // by candidates before this one
      for (int k = 0; candidate && k < t; ++k)
        if ((candidates >> k & 1u) != 0 && now[k].overlaps(mine, in.bound)) overlapped |= 1u << k;
      unsigned stay = 0;
      for (int k = 0; k < tile; ++k)
        stay |= __ballot_sync(cuda::all_lanes, t == k && candidate && (overlapped & stay) == 0);
      if ((stay >> t & 1u) != 0) indices[first_box + count + __popc(stay & ((1u << t) - 1u))] = place(first + t);
      count += __popc(stay);
      if (t == 0) chosen[0] = stay, total[0] = count;
    }
    __syncthreads();
    for (std::int64_t i = first + tile + t; i < in.n; i += nms_threads) {
      if (gone[i] != 0) continue;
      const Corners<T> behind = box(i);
      bool is_suppressed = false;
      for (unsigned left = chosen[0]; left != 0 && !is_suppressed; left &= left - 1)
        is_suppressed = now[__ffs(static_cast<int>(left)) - 1].overlaps(behind, in.bound);
      if (is_suppressed) gone[i] = 1;
    }
    __syncthreads();
  }
  for (std::int64_t i = total[0] + t; i < in.n; i += nms_threads) indices[first_box + i] = 0;
  if (t == 0) counts[image] = total[0];
}

}  // namespace

void nms(cuda::Stream& stream, const Tensor& boxes, const Tensor& scores, const Tensor& classes, double threshold,
         const Tensor& indices, const Tensor& counts) {
  const std::int64_t images = scores.dim(0), n = scores.dim(1);
  Tensor order, gone;
  int padded = 0;
  if (n > most_sorted_here) {
    order = argsort(scores, -1, true);
    gone = Tensor::zeros(scores.shape(), DType::u8, scores.device());
  } else {
    for (padded = 2; padded < n;) padded *= 2;
  }
  visit_dtype("nms", boxes.dtype(), FullFloats{}, [&]<class T>() {
    const NmsInput<T> in{boxes.data<T>(),
                         scores.data<T>(),
                         classes.defined() ? classes.data<std::int64_t>() : nullptr,
                         order.defined() ? order.data<std::int64_t>() : nullptr,
                         gone.defined() ? gone.data<std::uint8_t>() : nullptr,
                         n,
                         padded,
                         bound_of<T>(threshold)};
    const std::size_t bytes = static_cast<std::size_t>(padded) * (sizeof(ScoreKey<T>) + sizeof(int) + 1);
    cuda::launch(stream, "nms",
                 {cuda::blocks_for(images, 1), nms_threads, bytes, cuda::bytes_of(boxes, scores, classes, indices)},
                 nms_of_images<T>, in, indices.data<std::int64_t>(), counts.data<std::int64_t>());
  });
}

}  // namespace hearth::kernels
