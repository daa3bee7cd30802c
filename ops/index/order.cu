// SPDX-License-Identifier: Apache-2.0
// A stable radix sort. Per pass of 8 bits: each block counts the digits of its chunk, one block turns the counts into
// first positions, and each block puts its chunk's elements there in order. Chunks are fixed by n alone.
#include "ops/index/order.h"

#include "core/cuda/kernel.h"
#include "core/dtype.h"
#include "ops/device/scan.cuh"

namespace hearth::kernels {
namespace {

constexpr int digit_bits = 8;
constexpr int digits = 1 << digit_bits;
constexpr int threads = 256;  ///< one a digit
constexpr int warps = threads / cuda::warp_size;
constexpr std::int64_t chunk = 2048;
static_assert(threads == digits);

__device__ __forceinline__ int digit_of(std::int64_t key, int shift) {
  return static_cast<int>((key >> shift) & (digits - 1));
}

__global__ void number_places(std::int64_t n, std::int64_t* places) {
  for (std::int64_t i = cuda::global_thread(); i < n; i += cuda::global_threads()) places[i] = i;
}

/// counts [digits, chunks]: how often each digit occurs in each chunk. A block a chunk.
__global__ void __launch_bounds__(threads)
    count_digits(const std::int64_t* keys, std::int64_t n, std::int64_t chunks, int shift, std::int64_t* counts) {
  HEARTH_SHARED(unsigned, found, [digits]);
  const int t = static_cast<int>(threadIdx.x);
  for (std::int64_t part = blockIdx.x; part < chunks; part += gridDim.x) {
    found[t] = 0;
    __syncthreads();
    const std::int64_t end = (part + 1) * chunk < n ? (part + 1) * chunk : n;
    for (std::int64_t i = part * chunk + t; i < end; i += threads) atomicAdd(&found[digit_of(keys[i], shift)], 1u);
    __syncthreads();
    counts[t * chunks + part] = found[t];
  }
}

/// One block.
__global__ void __launch_bounds__(threads) sum_digits(std::int64_t* counts, std::int64_t n) {
  (void)cuda::sum_before<threads>(counts, n);
}

/// Puts each element behind those of smaller digit and those of its digit before it. A block a chunk, in rounds of 256
/// elements; within a round the warps are ranked by their counts, within a warp the lanes by theirs.
__global__ void __launch_bounds__(threads)
    place_digits(const std::int64_t* keys, const std::int64_t* places, std::int64_t n, std::int64_t chunks, int shift,
                 const std::int64_t* first_positions, std::int64_t* keys_out, std::int64_t* places_out) {
  HEARTH_SHARED(std::int64_t, next, [digits]);
  HEARTH_SHARED(unsigned, found, [warps][digits]);
  const int t = static_cast<int>(threadIdx.x), warp = t / cuda::warp_size, lane = cuda::lane_id();
  for (std::int64_t part = blockIdx.x; part < chunks; part += gridDim.x) {
    next[t] = first_positions[t * chunks + part];
    const std::int64_t end = (part + 1) * chunk < n ? (part + 1) * chunk : n;
    for (std::int64_t first = part * chunk; first < end; first += threads) {
      for (int w = 0; w < warps; ++w) found[w][t] = 0;
      __syncthreads();
      const std::int64_t i = first + t;
      const bool inside = i < end;
      const std::int64_t key = inside ? keys[i] : 0;
      // Lanes past the end form a group of their own.
      const int digit = inside ? digit_of(key, shift) : digits;
      const unsigned same = __match_any_sync(cuda::all_lanes, digit);
      const unsigned before = same & ((1u << lane) - 1u);
      if (inside && before == 0) found[warp][digit] = static_cast<unsigned>(__popc(same));
      __syncthreads();
      // Thread t turns the warps' counts of digit t into ranks, and remembers how many there were.
      unsigned total = 0;
      for (int w = 0; w < warps; ++w) {
        const unsigned count = found[w][t];
        found[w][t] = total;
        total += count;
      }
      __syncthreads();
      if (inside) {
        const std::int64_t to = next[digit] + found[warp][digit] + __popc(before);
        keys_out[to] = key;
        places_out[to] = places[i];
      }
      __syncthreads();
      next[t] += total;
    }
    __syncthreads();
  }
}

}  // namespace

Order sort_places(cuda::Stream& stream, const Tensor& keys, std::int64_t bound) {
  const std::int64_t n = keys.size(), chunks = (n + chunk - 1) / chunk;
  const Device device = keys.device();
  Order from{keys, Tensor::empty({n}, DType::i64, device)};
  if (n == 0) return from;
  cuda::launch(stream, "number places",
               {cuda::blocks_for(n, threads, 1 << 16), threads, 0, cuda::bytes_of(from.places)}, number_places, n,
               from.places.data<std::int64_t>());
  if (bound <= 1) return from;
  Order to{Tensor::empty({n}, DType::i64, device), Tensor::empty({n}, DType::i64, device)};
  const Tensor counts = Tensor::empty({digits, chunks}, DType::i64, device);
  std::int64_t* const count = counts.data<std::int64_t>();
  const cuda::LaunchShape each_chunk{cuda::blocks_for(chunks, 1, 1 << 16), threads};
  for (int shift = 0; shift < 63 && ((bound - 1) >> shift) != 0; shift += digit_bits) {
    const std::int64_t* const key = from.keys.data<std::int64_t>();
    cuda::launch(stream, "count digits", each_chunk.moving(cuda::bytes_of(from.keys, counts)), count_digits, key, n,
                 chunks, shift, count);
    cuda::launch(stream, "sum digits", {1, threads, 0, cuda::bytes_of(counts, counts)}, sum_digits, count,
                 digits * chunks);
    cuda::launch(stream, "place digits",
                 each_chunk.moving(cuda::bytes_of(from.keys, from.places, counts, to.keys, to.places)), place_digits,
                 key, from.places.data<std::int64_t>(), n, chunks, shift, count, to.keys.data<std::int64_t>(),
                 to.places.data<std::int64_t>());
    std::swap(from, to);
  }
  return from;
}

}  // namespace hearth::kernels
