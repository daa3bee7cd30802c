// SPDX-License-Identifier: Apache-2.0
// Three launches: points find whether they are candidates, boxes take their cheapest candidates, points choose among
// the boxes that took them.
#include "core/cuda/elementwise.h"
#include "core/cuda/fault.h"
#include "core/dtype.h"
#include "ops/boxes/simota.h"
#include "ops/boxes/simota_rule.h"

namespace hearth::kernels {
namespace {

constexpr int simota_threads = 256;
/// What background_of has for points that are no candidates; a cost is at least 0.
constexpr int no_candidate = -1;

struct Least {
  template <class T>
  __device__ static T join(T a, T b) {
    return b < a ? b : a;
  }
};

struct ImageBoxes {
  std::int64_t begin, end;
  bool is_valid;
};

template <class P>
__device__ ImageBoxes boxes_of_image(const SimotaInput<P>& in, std::int64_t image) {
  std::int64_t begin = 0;
  for (std::int64_t before = 0; before < image; ++before) begin += in.counts[before];
  const std::int64_t end = begin + in.counts[image];
  return {begin, end, begin >= 0 && end >= begin && end <= in.all};
}

/// Where it is a candidate, each point's cost of no class being there, by a warp for 32 points. Clears what the next
/// launch counts.
template <class P>
__global__ void simota_candidates(SimotaInput<P> in, cuda::FaultSlot* faults, P* background_of, int* takers) {
  const int lane = cuda::lane_id();
  const std::int64_t rows = in.images * in.points;
  for (std::int64_t row = cuda::global_thread(); row - lane < rows; row += cuda::global_threads()) {
    bool is_candidate = false;
    if (row < rows) {
      const ImageBoxes of_image = boxes_of_image(in, row / in.points);
      if (!of_image.is_valid) cuda::report_fault(faults, cuda::FaultKind::index, of_image.end, in.all + 1);
      for (std::int64_t box = of_image.begin; of_image.is_valid && box < of_image.end && !is_candidate; ++box)
        is_candidate = !in.is_ignored(box) && in.is_central(row % in.points, box);
      takers[row] = 0;
      if (!is_candidate) background_of[row] = P(no_candidate);
    }
    for (unsigned left = __ballot_sync(cuda::all_lanes, is_candidate); left != 0; left &= left - 1) {
      const std::int64_t candidate = row - lane + __ffs(static_cast<int>(left)) - 1;
      P sum = 0;
      for (std::int64_t c = lane; c < in.class_count; c += cuda::warp_size)
        sum += in.bce_of(P(1) - in.probability(candidate, c));
      sum = cuda::warp_reduce<cuda::Sum>(sum);
      if (lane == 0) background_of[candidate] = sum;
    }
  }
}

/// The smallest keys that a thread has seen, ascending, the first of equals before.
class SmallestKeys {
 public:
  __device__ void add(double key, int point) {
    if (size_ == simota_points && !(key < keys_[size_ - 1])) return;
    int i = size_ < simota_points ? size_++ : size_ - 1;
    for (; i > 0 && key < keys_[i - 1]; --i) keys_[i] = keys_[i - 1], points_[i] = points_[i - 1];
    keys_[i] = key;
    points_[i] = point;
  }
  /// Takes away the smallest key of all threads of the block, of equals that of the first point, and returns that
  /// point; no_point if there is none. All threads call.
  __device__ int take(double* key) {
    const bool has_any = next_ < size_;
    const double mine = has_any ? keys_[next_] : static_cast<double>(INFINITY);
    *key = cuda::block_reduce<Least>(mine, static_cast<double>(INFINITY));
    const int point = cuda::block_reduce<Least>(has_any && mine == *key ? points_[next_] : no_point, no_point);
    if (has_any && points_[next_] == point) ++next_;
    return point;
  }

  static constexpr int no_point = 0x7fffffff;

 private:
  double keys_[simota_points];
  int points_[simota_points];
  int size_ = 0, next_ = 0;
};

/// Counts how many boxes take each point, and keeps one of these boxes. A block a box.
template <class P>
__global__ void __launch_bounds__(simota_threads)
    simota_boxes(SimotaInput<P> in, cuda::FaultSlot* faults, const P* background_of, int* takers, int* taken_by) {
  const std::int64_t box = blockIdx.x;
  std::int64_t image = 0, end = in.counts[0];
  while (end <= box && image + 1 < in.images) end += in.counts[++image];
  const bool is_spare = box >= end;
  if (is_spare || in.is_ignored(box)) return;
  if (!in.has_class(box)) {
    if (threadIdx.x == 0) cuda::report_fault(faults, cuda::FaultKind::label, in.classes[box], in.class_count);
    return;
  }
  if (!boxes_of_image(in, image).is_valid) return;
  const std::int64_t first_row = image * in.points;
  SmallestKeys overlaps, costs;
  for (std::int64_t p = threadIdx.x; p < in.points; p += simota_threads) {
    const P background = background_of[first_row + p];
    if (background == P(no_candidate)) continue;
    const SimotaMatch<P> both = in.match(first_row + p, box, background);
    overlaps.add(-static_cast<double>(both.overlap), static_cast<int>(p));
    costs.add(both.cost, static_cast<int>(p));
  }
  P sum = 0;
  double key;
  for (int i = 0; i < simota_points && overlaps.take(&key) != SmallestKeys::no_point; ++i) sum -= static_cast<P>(key);
  for (int i = simota_count(sum); i > 0; --i) {
    const int point = costs.take(&key);
    if (point == SmallestKeys::no_point) return;
    if (threadIdx.x != 0) continue;
    atomicAdd(&takers[first_row + point], 1);
    atomicExch(&taken_by[first_row + point], static_cast<int>(box));
  }
}

template <class P>
__global__ void simota_points_of_boxes(SimotaInput<P> in, const P* background_of, const int* takers,
                                       const int* taken_by, std::int64_t* boxes, P* overlaps) {
  for (std::int64_t row = cuda::global_thread(); row < in.images * in.points; row += cuda::global_threads()) {
    std::int64_t best = takers[row] > 0 ? taken_by[row] : background_point;
    if (takers[row] != 1) {
      const ImageBoxes of_image = boxes_of_image(in, row / in.points);
      double least = 0;
      bool is_first = true;
      for (std::int64_t box = of_image.begin; of_image.is_valid && box < of_image.end; ++box) {
        if (takers[row] == 0) {
          if (in.is_ignored(box) && in.is_inside(row % in.points, box)) best = ignored_point;
        } else if (!in.is_ignored(box) && in.has_class(box)) {
          const double cost = in.match(row, box, background_of[row]).cost;
          if (!is_first && !(cost < least)) continue;
          best = box;
          least = cost;
          is_first = false;
        }
      }
    }
    boxes[row] = best;
    overlaps[row] = best >= 0 ? in.match(row, best, background_of[row]).overlap : P(0);
  }
}

}  // namespace

void assign_simota(cuda::Stream& stream, const Tensor& anchors, const PointPredictions& predicted, const BoxList& list,
                   const Tensor& classes, const SimotaOptions& options, const SimotaAssignment& y) {
  const std::int64_t rows = y.boxes.size(), all = list.boxes.dim(0);
  if (rows == 0) return;
  const Tensor background = Tensor::empty(y.boxes.shape(), anchors.dtype(), anchors.device());
  const Tensor takers = Tensor::empty({2, rows}, DType::i32, anchors.device());
  visit_dtype("assign_simota", anchors.dtype(), FullFloats{}, [&]<class P>() {
    const SimotaInput<P> in(anchors, predicted.boxes, predicted.objectness, predicted.scores, list.boxes, list.counts,
                            list.ignored, classes, options.radius, options.overlap_weight);
    P* const background_of = background.data<P>();
    auto* const count = takers.data<std::int32_t>();
    cuda::FaultSlot* const faults = cuda::fault_slot(stream);
    cuda::launch(stream, "assign_simota/candidates",
                 cuda::shape_over(rows).moving(cuda::bytes_of(anchors, predicted.objectness, list.boxes, background)),
                 simota_candidates<P>, in, faults, background_of, count);
    cuda::launch(
        stream, "assign_simota/boxes",
        {cuda::blocks_for(all, 1), simota_threads, 0, cuda::bytes_of(anchors, predicted.boxes, list.boxes, background)},
        simota_boxes<P>, in, faults, background_of, count, count + rows);
    cuda::launch(stream, "assign_simota/points",
                 cuda::shape_over(rows).moving(cuda::bytes_of(anchors, takers, background, y.boxes, y.overlaps)),
                 simota_points_of_boxes<P>, in, background_of, count, count + rows, y.boxes.data<std::int64_t>(),
                 y.overlaps.data<P>());
  });
}

}  // namespace hearth::kernels
