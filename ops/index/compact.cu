// SPDX-License-Identifier: Apache-2.0
// Two launches. In the first each block counts a chunk of the mask, and the last to arrive turns the counts into sums.
// In the second each block lists the true elements of its chunk in shared memory, its warps a run of elements each, and
// all threads move their rows, word by word. The mask is read twice, rows once.
#include <algorithm>

#include "core/cuda/arrivals.h"
#include "core/cuda/elementwise.h"
#include "core/dtype.h"
#include "ops/device/scan.cuh"
#include "ops/device/words.cuh"
#include "ops/index/compact.h"

namespace hearth::kernels {
namespace {

constexpr int mask_threads = 256;
constexpr int mask_warps = mask_threads / cuda::warp_size;
constexpr int mask_rounds = static_cast<int>(mask_chunk) / mask_threads;  ///< elements a thread

/// Element `round` of this thread in a chunk: neighbouring lanes have neighbours, a warp has a run.
__device__ __forceinline__ std::int64_t chunk_element(int round) {
  const int t = static_cast<int>(threadIdx.x);
  return (t / cuda::warp_size * mask_rounds + round) * cuda::warp_size + cuda::lane_id();
}

__global__ void __launch_bounds__(mask_threads)
    count_masks(const bool* mask, std::int64_t n, std::int64_t chunks, std::int64_t capacity, unsigned* arrivals,
                cuda::FaultSlot* faults, std::int64_t* starts, std::int64_t* count) {
  for (std::int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    std::int64_t hits = 0;
    for (int round = 0; round < mask_rounds; ++round) {
      const std::int64_t i = chunk * mask_chunk + chunk_element(round);
      hits += i < n && mask[i] ? 1 : 0;
    }
    hits = cuda::block_reduce<cuda::Sum>(hits, std::int64_t{0});
    if (threadIdx.x == 0) starts[chunk] = hits;
  }
  if (!cuda::last_to_arrive(arrivals, gridDim.x)) return;
  const std::int64_t total = cuda::sum_before<mask_threads>(starts, chunks);
  if (threadIdx.x != 0) return;
  starts[chunks] = total;
  *count = total < capacity ? total : capacity;
  if (total > capacity) cuda::report_fault(faults, cuda::FaultKind::capacity, total, capacity);
}

/// How positions are counted.
struct PositionShape {
  int rank;
  std::int64_t extents[Shape::max_rank];

  __device__ void write(std::int64_t element, std::int64_t* to) const {
    for (int axis = rank - 1; axis > 0; --axis) {
      to[axis] = element % extents[axis];
      element /= extents[axis];
    }
    to[0] = element;
  }
};

/// Rows of `inner` words: packed row k of `packed`, and the row of `rows` that it came from. `spread`: from `packed` to
/// `rows`, else the other way, with their positions (null: none) and zeros behind the last.
template <class Word>
__global__ void __launch_bounds__(mask_threads)
    move_masked_rows(const bool* mask, std::int64_t n, std::int64_t chunks, const std::int64_t* starts,
                     std::int64_t capacity, bool spread, Word* rows, Word* packed, std::int64_t inner,
                     PositionShape shape, std::int64_t* positions) {
  HEARTH_SHARED(int, list, [mask_chunk]);
  HEARTH_SHARED(int, warp_counts, [mask_warps]);
  const int t = static_cast<int>(threadIdx.x), warp = t / cuda::warp_size;
  for (std::int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    unsigned votes[mask_rounds];
    int hits = 0;
    for (int round = 0; round < mask_rounds; ++round) {
      const std::int64_t i = chunk * mask_chunk + chunk_element(round);
      votes[round] = __ballot_sync(cuda::all_lanes, i < n && mask[i]);
      hits += __popc(votes[round]);
    }
    if (cuda::lane_id() == 0) warp_counts[warp] = hits;
    __syncthreads();
    int slot = 0, count = 0;
    for (int w = 0; w < mask_warps; ++w) {
      if (w == warp) slot = count;
      count += warp_counts[w];
    }
    for (int round = 0; round < mask_rounds; ++round) {
      const unsigned before = votes[round] & ((1u << cuda::lane_id()) - 1u);
      if ((votes[round] >> cuda::lane_id() & 1u) != 0)
        list[slot + __popc(before)] = static_cast<int>(chunk_element(round));
      slot += __popc(votes[round]);
    }
    __syncthreads();
    const std::int64_t first = chunk * mask_chunk, begin = starts[chunk];
    const std::int64_t room = capacity - begin, used = count < room ? count : (room > 0 ? room : 0);
    for (std::int64_t at = t; at < used * inner; at += mask_threads) {
      const std::int64_t k = at / inner, row = (first + list[k]) * inner + at % inner, slot_at = begin * inner + at;
      if (spread)
        rows[row] = packed[slot_at];
      else
        packed[slot_at] = rows[row];
    }
    for (std::int64_t k = t; positions != nullptr && k < used; k += mask_threads)
      shape.write(first + list[k], positions + (begin + k) * shape.rank);
    __syncthreads();
  }
  if (spread) return;
  const std::int64_t total = starts[chunks];
  for (std::int64_t at = total * inner + cuda::global_thread(); at < capacity * inner; at += cuda::global_threads())
    packed[at] = Word{};
  for (std::int64_t at = total * shape.rank + cuda::global_thread(); at < capacity * shape.rank;
       at += cuda::global_threads())
    positions[at] = 0;
}

/// Rows of x [n, ...] or none, and as many packed ones.
void move(cuda::Stream& stream, const MaskedRows& of_mask, bool spread, const Tensor& rows, const Tensor& packed,
          const Shape& shape, const Tensor& positions) {
  const std::int64_t n = of_mask.mask.size(), chunks = of_mask.starts.size() - 1;
  PositionShape places{shape.rank(), {}};
  for (int axis = 0; axis < shape.rank(); ++axis) places.extents[axis] = shape[axis];
  const std::int64_t elements = packed.defined() && of_mask.capacity > 0 ? packed.size() / of_mask.capacity : 0;
  const std::int64_t bytes = elements * (packed.defined() ? static_cast<std::int64_t>(size_of(packed.dtype())) : 0);
  const Tensor& a = rows.defined() ? rows : of_mask.mask;
  const Tensor& b = packed.defined() ? packed : of_mask.mask;
  cuda::visit_word(bytes, a, b, [&]<class Word>() {
    cuda::launch(stream, spread ? "compact gradient" : "compact",
                 {cuda::blocks_for(std::max<std::int64_t>(chunks, 1), 1, 1 << 16), mask_threads, 0,
                  cuda::bytes_of(of_mask.mask, packed, packed, positions)},
                 move_masked_rows<Word>, of_mask.mask.data<bool>(), n, chunks, of_mask.starts.data<std::int64_t>(),
                 of_mask.capacity, spread, reinterpret_cast<Word*>(a.bytes()), reinterpret_cast<Word*>(b.bytes()),
                 bytes / static_cast<std::int64_t>(sizeof(Word)), places,
                 positions.defined() ? positions.data<std::int64_t>() : nullptr);
  });
}

}  // namespace

void find_rows(cuda::Stream& stream, const char*, const MaskedRows& rows, const Tensor& count) {
  const std::int64_t n = rows.mask.size(), chunks = rows.starts.size() - 1;
  cuda::launch(stream, "count mask",
               {cuda::blocks_for(std::max<std::int64_t>(chunks, 1), 1, 1 << 16), mask_threads, 0,
                cuda::bytes_of(rows.mask, rows.starts)},
               count_masks, rows.mask.data<bool>(), n, chunks, rows.capacity, cuda::arrival_counters(stream),
               cuda::fault_slot(stream), rows.starts.data<std::int64_t>(), count.data<std::int64_t>());
}

void pack_rows(cuda::Stream& stream, const MaskedRows& rows, const Tensor& x, const Tensor& y, const Shape& shape,
               const Tensor& indices) {
  move(stream, rows, false, x, y, shape, indices);
}

void spread_rows(cuda::Stream& stream, const MaskedRows& rows, const Tensor& dy, const Tensor& dx) {
  dx.fill_(0);
  if (dx.size() > 0) move(stream, rows, true, dx, dy, {}, {});
}

}  // namespace hearth::kernels
