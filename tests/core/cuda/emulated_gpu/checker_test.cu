// SPDX-License-Identifier: Apache-2.0
// The race checker: each kernel here is right with fault = 0 and has one planted fault with 1. The right form must stay
// quiet in every build, the faulty one must be found in builds with HEARTH_EMULATE_CHECK, in every order of threads.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/cuda/error.h"
#include "core/error.h"
#include "ops/device/mma.h"

namespace {

using namespace hearth;
using namespace hearth::cuda;

/// Device memory of exactly this many bytes, zeros.
class DeviceBytes {
 public:
  explicit DeviceBytes(std::size_t bytes) {
    HEARTH_TRY(cudaMalloc(&p_, bytes));
    HEARTH_TRY(cudaMemset(p_, 0, bytes));
    HEARTH_TRY(cudaDeviceSynchronize());
  }
  ~DeviceBytes() { cudaFree(p_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  template <class T>
  T* as() const {
    return static_cast<T*>(p_);
  }

 private:
  void* p_ = nullptr;
};

constexpr const char* orders[] = {"forward", "reverse", "1", "2", "3"};

/// What the kernel's faulty and its right form say in each order.
template <class F>
void check(const char* expected, F run) {
  const std::string before = emulate::order();
  for (const char* order : orders) {
    emulate::set_order(order);
    EXPECT_NO_THROW(run(0)) << order;
#if HEARTH_EMULATE_CHECK
    try {
      run(1);
      ADD_FAILURE() << "not found in order " << order << ": " << expected;
    } catch (const InternalError& error) {
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << order << ": " << error.what();
      EXPECT_NE(std::string(error.what()).find("kernel probe, block ("), std::string::npos) << error.what();
    }
#else
    static_cast<void>(expected);
#endif
  }
  emulate::set_order(before);
}

template <class... P, class... A>
void run(const LaunchShape& shape, void (*kernel)(P...), const A&... arguments) {
  emulate::kernel_work("probe", shape.grid, shape.block, shape.shared_bytes, kernel, arguments...)();
}

__global__ void neighbours(float* y, int fault) {
  HEARTH_SHARED(float, cache, [64]);
  cache[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (fault == 0) __syncthreads();
  y[threadIdx.x] = cache[threadIdx.x ^ 33];
}
TEST(EmulateChecker, RemovedBarrier) {
  const DeviceBytes y(256);
  check("", [&](int fault) { run({1, 64}, neighbours, y.as<float>(), fault); });
}

// A second round overwrites what others may still have to read.
__global__ void two_rounds(float* y, int fault) {
  HEARTH_SHARED(float, cache, [64]);
  for (int round = 0; round < 2; ++round) {
    cache[threadIdx.x] = static_cast<float>(threadIdx.x + round);
    __syncthreads();
    y[threadIdx.x] += cache[63 - threadIdx.x];
    if (fault == 0) __syncthreads();
  }
}
TEST(EmulateChecker, RemovedBarrierBetweenRounds) {
  const DeviceBytes y(256);
  check("race: ", [&](int fault) { run({1, 64}, two_rounds, y.as<float>(), fault); });
}

__global__ void warp_exchange(float* y, int fault) {
  HEARTH_SHARED(float, slots, [2][32]);
  const int lane = lane_id(), warp = static_cast<int>(threadIdx.x) / 32;
  slots[warp][lane] = static_cast<float>(lane);
  __syncwarp();
  float sum = slots[warp][31 - lane];
  if (fault == 0) __syncwarp();
  slots[warp][lane] = sum;
  __syncwarp();
  sum += slots[warp][lane ^ 1];
  y[threadIdx.x] = sum;
}
TEST(EmulateChecker, RemovedWarpBarrier) {
  const DeviceBytes y(256);
  check("race: ", [&](int fault) { run({1, 64}, warp_exchange, y.as<float>(), fault); });
}

// A shuffle waits for the lanes but orders no memory.
__global__ void shuffle_is_no_barrier(float* y, int fault) {
  HEARTH_SHARED(float, slots, [32]);
  slots[threadIdx.x] = 1;
  const float other = __shfl_xor_sync(all_lanes, 2.0f, 1);
  if (fault == 0) __syncwarp();
  y[threadIdx.x] = other + slots[31 - threadIdx.x];
}
TEST(EmulateChecker, ShuffleIsNoBarrier) {
  const DeviceBytes y(128);
  check("race: ", [&](int fault) { run({1, 32}, shuffle_is_no_barrier, y.as<float>(), fault); });
}

__global__ void guarded(float* y, int n, int fault) {
  const int i = static_cast<int>(global_thread());
  if (i < n + fault) y[i] = 1;
}
TEST(EmulateChecker, OffByOne) {
  const DeviceBytes y(100 * sizeof(float));
  check("touches ", [&](int fault) { run({2, 64}, guarded, y.as<float>(), 100, fault); });
}

struct Pointers {
  const float* x;
  float* y;
};
__global__ void copy_one(HEARTH_GRID_CONSTANT(Pointers) p) { p.y[threadIdx.x] = p.x[0]; }
TEST(EmulateChecker, HostPointerInAStruct) {
  const DeviceBytes x(4), y(128);
  const std::vector<float> host(1);
  check("host memory", [&](int fault) {
    run({1, 32}, copy_one, Pointers{fault == 0 ? x.as<float>() : host.data(), y.as<float>()});
  });
}

__global__ void add_blocks(float* y, int fault) {
  if (threadIdx.x != 0) return;
  if (fault == 0)
    atomicAdd(y, 1.0f);
  else
    *y += 1.0f;
}
TEST(EmulateChecker, BlocksUpdateOneAddress) {
  const DeviceBytes y(4);
  check("of another block", [&](int fault) { run({3, 32}, add_blocks, y.as<float>(), fault); });
}

__global__ void unwritten(float* y, int fault) {
  HEARTH_SHARED(float, cache, [33]);
  cache[threadIdx.x] = 0;
  if (threadIdx.x == 0 && fault == 0) cache[32] = 0;
  __syncthreads();
  y[global_thread()] = cache[threadIdx.x + 1];
}
TEST(EmulateChecker, UnwrittenSharedMemory) {
  const DeviceBytes y(256);
  check("reads shared memory that this block has not written", [&](int fault) {
    run({2, 32}, unwritten, y.as<float>(), fault);
  });
}

__global__ void beyond_tile(float* y, int fault) {
  HEARTH_SHARED(float, tile, [4][32]);
  float* const flat = &tile[0][0];
  flat[threadIdx.x + 96 + static_cast<unsigned>(fault)] = 1;
  y[threadIdx.x] = 1;
}
TEST(EmulateChecker, BeyondASharedVariable) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the address sanitizer ends the program";
#endif
  const DeviceBytes y(128);
  check("outside of any variable", [&](int fault) { run({1, 32}, beyond_tile, y.as<float>(), fault); });
}

__global__ void staged(const float* x, float* y, int fault) {
  HEARTH_SHARED(float, stage, [128]);
  cp_async(&stage[threadIdx.x * 4], x + threadIdx.x * 4);
  cp_async_commit();
  if (fault != 1) cp_async_wait<0>();
  if (fault != 2) __syncthreads();
  y[threadIdx.x] = stage[127 - threadIdx.x];
}
TEST(EmulateChecker, CopyNotWaitedFor) {
  const DeviceBytes x(512), y(128);
  check("is being copied to (cp_async) by", [&](int fault) {
    run({1, 32}, staged, x.as<float>(), y.as<float>(), fault);
  });
  check("", [&](int fault) { run({1, 32}, staged, x.as<float>(), y.as<float>(), fault * 2); });
}

// The buffer is refilled while other warps may still read it; the wait comes behind the barrier.
__global__ void refilled(const float* x, float* y, int fault) {
  HEARTH_SHARED(float, stage, [256]);
  const unsigned thread = threadIdx.x;
  const auto fetch = [&](unsigned tile) {
    cp_async(&stage[thread * 4], x + tile * 256 + thread * 4);
    cp_async_commit();
  };
  fetch(0);
  cp_async_wait<0>();
  __syncthreads();
  if (fault == 1) fetch(1);
  y[thread] = stage[255 - thread * 4];
  __syncthreads();
  if (fault == 0) fetch(1);
  cp_async_wait<0>();
  __syncthreads();
  y[64 + thread] = stage[255 - thread * 4];
}
TEST(EmulateChecker, CopyBegunTooEarly) {
  const DeviceBytes x(2048), y(512);
  check("race: ", [&](int fault) { run({1, 64}, refilled, x.as<float>(), y.as<float>(), fault); });
#if !HEARTH_EMULATE_CHECK
  const std::string before = emulate::order();
  for (const char* order : orders) {
    emulate::set_order(order);
    for (const int fault : {0, 1}) {
      run({1, 64}, refilled, x.as<float>(), y.as<float>(), fault);
      std::vector<float> values(128);
      HEARTH_TRY(cudaMemcpy(values.data(), y.as<float>(), 512, cudaMemcpyDeviceToHost));
      EXPECT_EQ(std::any_of(values.begin(), values.end(), [](float v) { return std::isnan(v); }), fault == 1) << order;
    }
  }
  emulate::set_order(before);
#endif
}

__global__ void same_value(int* flag, int fault) {
  if (fault == 0)
    atomicExch(flag, 1);
  else
    *flag = 1;
}
TEST(EmulateChecker, ManyWritersOfOneValue) {
  const DeviceBytes flag(4);
  check("race: ", [&](int fault) { run({2, 64}, same_value, flag.as<int>(), fault); });
}

// With one block right, and close to what would be wrong: neighbours of one and two bytes, a broadcast, and sums one
// after the other. A second block writes what the first has written.
__global__ void small_neighbours(unsigned char* bytes, std::uint16_t* halves, float* sums, const float* one) {
  HEARTH_SHARED(unsigned char, cache, [64]);
  cache[threadIdx.x] = bytes[threadIdx.x];
  bytes[threadIdx.x] = 1;
  halves[threadIdx.x] = halves[threadIdx.x] + 1;
  __syncthreads();
  float sum = block_reduce<Sum>(static_cast<float>(cache[63 - threadIdx.x]) + *one, 0.0f);
  sum += block_reduce<Largest>(sum, 0.0f);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}
TEST(EmulateChecker, SmallNeighbours) {
  const DeviceBytes bytes(64), halves(128), sums(8), one(4);
  check("of another block", [&](int fault) {
    run({1u + static_cast<unsigned>(fault), 64}, small_neighbours, bytes.as<unsigned char>(),
        halves.as<std::uint16_t>(), sums.as<float>(), one.as<float>());
  });
}

// The last block to arrive adds what all have left. Faults: what is left behind the arrival, and blocks that arrived at
// another counter.
__global__ void added_by_the_last(float* parts, float* sums, unsigned* counters, int fault) {
  const bool late = fault == 1;
  const unsigned half = fault == 2 ? blockIdx.x % 2 : 0;
  if (!late) parts[global_thread()] = 1;
  const bool last = last_to_arrive(counters + half, fault == 2 ? gridDim.x / 2 : gridDim.x);
  if (late) parts[global_thread()] = 1;
  if (!last) return;
  float sum = 0;
  for (unsigned block = 0; block < gridDim.x; ++block) sum += parts[block * 32 + (threadIdx.x ^ 1)];
  sums[half * 32 + threadIdx.x] = sum;
}
TEST(EmulateChecker, SumsOfBlocksThatHaveNotArrived) {
  const DeviceBytes parts(4 * 128), sums(256), counters(8);
  for (const int planted : {1, 2}) {
    check("of another block", [&](int fault) {
      HEARTH_TRY(cudaMemset(counters.as<unsigned>(), 0, 8));
      run({4, 32}, added_by_the_last, parts.as<float>(), sums.as<float>(), counters.as<unsigned>(), fault * planted);
    });
  }
}

// Whoever comes behind the last of a group comes behind the whole group.
__global__ void added_in_two_levels(float* parts, float* sums, unsigned* counters, int fault) {
  const unsigned group = blockIdx.x / 2, groups = gridDim.x / 2;
  parts[global_thread()] = 1;
  if (fault == 0 && !last_to_arrive(counters + 1 + group, 2)) return;
  if (!last_to_arrive(counters, fault == 0 ? groups : groups * 2 - 1)) return;
  float sum = 0;
  for (unsigned block = 0; block < gridDim.x; ++block) sum += parts[block * 32 + (threadIdx.x ^ 1)];
  sums[threadIdx.x] = sum;
}
TEST(EmulateChecker, SumsInTwoLevels) {
  const DeviceBytes parts(6 * 128), sums(128), counters(16);
  check("of another block", [&](int fault) {
    HEARTH_TRY(cudaMemset(counters.as<unsigned>(), 0, 16));
    run({6, 32}, added_in_two_levels, parts.as<float>(), sums.as<float>(), counters.as<unsigned>(), fault);
    std::vector<unsigned> left(4);
    HEARTH_TRY(cudaMemcpy(left.data(), counters.as<unsigned>(), 16, cudaMemcpyDeviceToHost));
    EXPECT_TRUE(std::all_of(left.begin(), left.end(), [](unsigned n) { return n == 0; })) << "counters are set back";
  });
}

#if HEARTH_EMULATE_CHECK
TEST(EmulateChecker, ErrorsNameTheLines) {
  const DeviceBytes y(256);
  const std::string before = emulate::order();
  emulate::set_order("reverse");
  try {
    run({1, 64}, two_rounds, y.as<float>(), 1);
    ADD_FAILURE();
  } catch (const InternalError& error) {
    const std::string text = error.what();
#if defined(HEARTH_HAS_BACKTRACE)
    EXPECT_NE(text.find("checker_test.cu:"), text.rfind("checker_test.cu:")) << text;
#endif
    EXPECT_NE(text.find("and nothing orders the two"), std::string::npos) << text;
  }
  emulate::set_order(before);
}
#endif

}  // namespace
