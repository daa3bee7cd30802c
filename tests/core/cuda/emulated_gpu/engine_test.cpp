// SPDX-License-Identifier: Apache-2.0
// The SIMT engine: correct kernels give the same in every order, and what CUDA forbids is an error with the line.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "core/cuda/error.h"
#include "core/cuda/kernel.h"
#include "core/error.h"

namespace {

using namespace hearth;
using namespace hearth::cuda;

/// Runs the kernel at once, past the streams.
template <class... P, class... A>
void run(const LaunchShape& shape, void (*kernel)(P...), const A&... arguments) {
  emulate::kernel_work("probe", shape.grid, shape.block, shape.shared_bytes, kernel, arguments...)();
}

template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "no error";
}

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

class EmulateOrder : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { emulate::set_order(GetParam()); }
  void TearDown() override { emulate::set_order(before_); }

 private:
  std::string before_ = emulate::order();
};
INSTANTIATE_TEST_SUITE_P(, EmulateOrder, testing::Values("forward", "reverse", "1", "2", "3"),
                         [](const auto& order) { return "order_" + std::string(order.param); });

__global__ void index_kernel(int* y, int n) {
  for (std::int64_t i = global_thread(); i < n; i += global_threads()) y[i] += static_cast<int>(i) + 1;
}

TEST_P(EmulateOrder, EveryElementOnce) {
  for (const int n : {0, 1, 31, 129, 5000}) {
    std::vector<int> y(static_cast<std::size_t>(n) + 1);
    run({7, 96}, index_kernel, y.data(), n);
    for (int i = 0; i < n; ++i) ASSERT_EQ(y[static_cast<std::size_t>(i)], i + 1);
    EXPECT_EQ(y.back(), 0);
  }
}

__global__ void coordinates_kernel(unsigned* seen) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  __syncthreads();
  seen[block * blockDim.x * blockDim.y * blockDim.z + thread] += 1 + threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z;
}

TEST_P(EmulateOrder, CoordinatesInThreeDimensions) {
  std::vector<unsigned> seen(2 * 3 * 2 * 4 * 5 * 3);
  run({{2, 3, 2}, {4, 5, 3}}, coordinates_kernel, seen.data());
  for (unsigned i = 0; i < seen.size(); ++i) {
    const unsigned thread = i % 60;
    ASSERT_EQ(seen[i], 1 + thread % 4 + 10 * (thread / 4 % 5) + 100 * (thread / 20));
  }
}

template <class T>
__global__ void sum_kernel(const T* x, T* y, int n) {
  T sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) sum += x[blockIdx.x * n + i];
  const T total = block_reduce<Sum>(sum, T(0));
  const T most = block_reduce<Largest>(sum, T(-1));
  y[(blockIdx.x * blockDim.x + threadIdx.x) * 2] = total;
  y[(blockIdx.x * blockDim.x + threadIdx.x) * 2 + 1] = most;
}

template <class T>
void check_sums() {
  for (const int n : {1, 33, 1000}) {
    for (const unsigned threads : {32u, 96u, 1024u}) {
      std::vector<T> x(static_cast<std::size_t>(3 * n));
      std::iota(x.begin(), x.end(), T(1));
      std::vector<T> y(3 * threads * 2, T(-5));
      run({3, threads}, sum_kernel<T>, x.data(), y.data(), n);
      for (int block = 0; block < 3; ++block) {
        const T expected = static_cast<T>(n * (block * n) + n * (n + 1) / 2);
        for (unsigned t = 0; t < threads; ++t) {
          ASSERT_EQ(y[(static_cast<unsigned>(block) * threads + t) * 2], expected) << n << " " << threads;
          ASSERT_GT(y[(static_cast<unsigned>(block) * threads + t) * 2 + 1], T(0));
        }
      }
    }
  }
}
TEST_P(EmulateOrder, BlockReduction) {
  check_sums<float>();
  check_sums<double>();
}

__global__ void transpose_kernel(const float* x, float* y, int rows, int cols) {
  HEARTH_SHARED(float, tile, [32][33]);
  const int col = static_cast<int>(blockIdx.x * 32 + threadIdx.x),
            row = static_cast<int>(blockIdx.y * 32 + threadIdx.y);
  for (int i = 0; i < 32; i += 8)
    if (row + i < rows && col < cols) tile[threadIdx.y + i][threadIdx.x] = x[(row + i) * cols + col];
  __syncthreads();
  const int to_col = static_cast<int>(blockIdx.y * 32 + threadIdx.x),
            to_row = static_cast<int>(blockIdx.x * 32 + threadIdx.y);
  for (int i = 0; i < 32; i += 8)
    if (to_row + i < cols && to_col < rows) y[(to_row + i) * rows + to_col] = tile[threadIdx.x][threadIdx.y + i];
}

TEST_P(EmulateOrder, TransposeThroughSharedMemory) {
  constexpr int rows = 70, cols = 45;
  std::vector<float> x(rows * cols), y(rows * cols);
  std::iota(x.begin(), x.end(), 0.0f);
  run({{2, 3}, {32, 8}}, transpose_kernel, x.data(), y.data(), rows, cols);
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < cols; ++c)
      ASSERT_EQ(y[static_cast<std::size_t>(c * rows + r)], x[static_cast<std::size_t>(r * cols + c)]);
}

struct ShuffleResults {
  double indexed, up, down, crossed, group_down;
  long long wide;
  unsigned ballot, match, sum, both;
  int least, most, any, all;
};

__global__ void shuffle_kernel(ShuffleResults* y) {
  const int lane = lane_id();
  ShuffleResults& r = y[threadIdx.x];
  r.indexed = __shfl_sync(all_lanes, 1.5 * lane, 35);
  r.up = __shfl_up_sync(all_lanes, static_cast<float>(lane), 3u);
  r.down = __shfl_down_sync(all_lanes, lane, 5u);
  r.crossed = __shfl_xor_sync(all_lanes, lane, 9);
  r.group_down = __shfl_down_sync(all_lanes, lane, 3u, 8);
  r.wide = __shfl_sync(all_lanes, (1LL << 40) + lane, lane / 2);
  r.ballot = __ballot_sync(all_lanes, lane % 3 == 0);
  r.match = __match_any_sync(all_lanes, lane % 4);
  r.sum = __reduce_add_sync(all_lanes, static_cast<unsigned>(lane));
  r.least = __reduce_min_sync(all_lanes, lane - 40);
  r.most = __reduce_max_sync(all_lanes, lane - 40);
  r.both = __reduce_and_sync(all_lanes, 0xf0u | static_cast<unsigned>(lane));
  r.any = __any_sync(all_lanes, lane == 30);
  r.all = __all_sync(all_lanes, lane < 31);
}

TEST_P(EmulateOrder, WarpOperations) {
  std::vector<ShuffleResults> y(64);
  run({1, 64}, shuffle_kernel, y.data());
  for (int t = 0; t < 64; ++t) {
    const int lane = t % 32;
    const ShuffleResults& r = y[static_cast<std::size_t>(t)];
    EXPECT_EQ(r.indexed, 4.5);
    EXPECT_EQ(r.up, lane < 3 ? lane : lane - 3);
    EXPECT_EQ(r.down, lane > 26 ? lane : lane + 5);
    EXPECT_EQ(r.crossed, lane ^ 9);
    EXPECT_EQ(r.group_down, lane % 8 > 4 ? lane : lane + 3);
    EXPECT_EQ(r.wide, (1LL << 40) + lane / 2);
    EXPECT_EQ(r.ballot, 0x49249249u);
    EXPECT_EQ(r.match, 0x11111111u << lane % 4);
    EXPECT_EQ(r.sum, 496u);
    EXPECT_EQ(r.least, -40);
    EXPECT_EQ(r.most, -9);
    EXPECT_EQ(r.both, 0xf0u);
    EXPECT_EQ(r.any, 1);
    EXPECT_EQ(r.all, 0);
  }
}

// The two halves of a warp work on their own, in different numbers of steps.
__global__ void halves_kernel(int* y) {
  const bool low = lane_id() < 16;
  const unsigned mask = low ? 0xffffu : 0xffff0000u;
  int value = lane_id();
  for (int step = low ? 8 : 4; step > 0; step /= 2) value += __shfl_xor_sync(mask, value, step);
  y[threadIdx.x] = value;
}

TEST_P(EmulateOrder, HalvesOfAWarp) {
  std::vector<int> y(32);
  run({1, 32}, halves_kernel, y.data());
  for (int lane = 0; lane < 32; ++lane)
    EXPECT_EQ(y[static_cast<std::size_t>(lane)], lane < 16 ? 120 : (lane < 24 ? 156 : 220));
}

__global__ void votes_kernel(int* y) {
  const int thread = static_cast<int>(threadIdx.x);
  const int count = __syncthreads_count(thread % 3 == 0);
  const int any = __syncthreads_or(thread == 77), all = __syncthreads_and(thread < 99);
  const int none = __syncthreads_or(thread == 100), every = __syncthreads_and(thread < 100);
  y[thread] = count + 1000 * any + 2000 * all + 4000 * none + 8000 * every;
}
TEST_P(EmulateOrder, BarriersThatVote) {
  std::vector<int> y(100);
  run({1, 100}, votes_kernel, y.data());
  EXPECT_EQ(y, std::vector<int>(100, 34 + 1000 + 8000));
}

// Threads that return take no part any more.
__global__ void early_return_kernel(int* y) {
  if (threadIdx.x >= 40) return;
  y[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncthreads();
  const int got = y[39 - threadIdx.x];
  y[40 + threadIdx.x] = got + (threadIdx.x < 32 ? __shfl_sync(all_lanes, got, 0) : 0);
}
TEST_P(EmulateOrder, ThreadsThatReturnEarly) {
  std::vector<int> y(80);
  run({1, 64}, early_return_kernel, y.data());
  for (int i = 0; i < 40; ++i) EXPECT_EQ(y[static_cast<std::size_t>(40 + i)], 39 - i + (i < 32 ? 39 : 0));
}

__global__ void atomics_kernel(int* i, unsigned* u, unsigned long long* l, float* f, double* d) {
  atomicAdd(i, 1);
  atomicMax(i + 1, static_cast<int>(global_thread()));
  atomicMin(i + 2, -static_cast<int>(global_thread()));
  atomicOr(u, 1u << (threadIdx.x % 8));
  atomicAnd(u + 1, ~(1u << (threadIdx.x % 8)));
  atomicXor(u + 2, threadIdx.x);
  atomicAdd(l, 1ull << 33);
  atomicAdd(f, 0.5f);
  atomicAdd(d, 0.25);
  atomicCAS(u + 3, 7u, 8u);
  if (global_thread() == 5) i[3] = atomicExch(i + 4, 12);
}
// All results in one piece of device memory.
struct AtomicResults {
  unsigned long long l = 0;
  double d = 0;
  int i[5] = {0, -100, 100, 0, 11};
  unsigned u[4] = {0, 0xffff, 0, 7};
  float f = 0;
};
TEST_P(EmulateOrder, Atomics) {
  AtomicResults results;
  void* memory = nullptr;
  HEARTH_TRY(cudaMalloc(&memory, sizeof(results)));
  auto* const p = static_cast<AtomicResults*>(memory);
  HEARTH_TRY(cudaMemcpy(p, &results, sizeof(results), cudaMemcpyHostToDevice));
  run({4, 64}, atomics_kernel, &p->i[0], &p->u[0], &p->l, &p->f, &p->d);
  HEARTH_TRY(cudaMemcpy(&results, p, sizeof(results), cudaMemcpyDeviceToHost));
  HEARTH_TRY(cudaFree(p));
  EXPECT_EQ(std::to_array(results.i), (std::array{256, 255, -255, 11, 12}));
  EXPECT_EQ(std::to_array(results.u), (std::array{0xffu, 0xff00u, 0u, 8u}));
  EXPECT_EQ(results.l, 256ull << 33);
  EXPECT_EQ(results.f, 128.0f);
  EXPECT_EQ(results.d, 64.0);
}

struct Chunks {
  const float* from[100];
  int count;
};
__global__ void chunks_kernel(HEARTH_GRID_CONSTANT(Chunks) chunks, float* y) {
  float* copy = dynamic_shared<float>();
  if (static_cast<int>(threadIdx.x) < chunks.count) copy[threadIdx.x] = *chunks.from[threadIdx.x];
  __syncthreads();
  if (threadIdx.x == 0)
    for (int i = chunks.count; i > 0; --i) y[blockIdx.x] += copy[i - 1];
}
TEST_P(EmulateOrder, StructsAndDynamicSharedMemory) {
  const std::vector<float> x{1, 2, 4};
  Chunks chunks{};
  for (const float& value : x) chunks.from[chunks.count++] = &value;
  std::vector<float> y(5);
  run({5, 64, 3 * sizeof(float)}, chunks_kernel, chunks, y.data());
  EXPECT_EQ(y, std::vector<float>(5, 7));
}

// --- what is wrong
// ----------------------------------------------------------------------------------------------------

__global__ void two_barriers_kernel() {
  if (threadIdx.x < 16)
    __syncthreads();
  else
    __syncthreads();
}
__global__ void some_skip_barrier_kernel() {
  if (threadIdx.x >= 16) __syncthreads();
  __syncthreads();
}
TEST_P(EmulateOrder, DivergentBarriersAreNamed) {
  const std::string text = error_of([] { run({2, 32}, two_barriers_kernel); });
  EXPECT_SAYS(text, "kernel probe, block (");
  EXPECT_SAYS(text, "thread (");
  EXPECT_SAYS(text, "engine_test.cpp:");
  EXPECT_SAYS(text, "all threads of a block must come to the same barrier");
  EXPECT_SAYS(error_of([] { run({1, 64}, some_skip_barrier_kernel); }), "the same barrier");
  // The engine is usable afterwards.
  std::vector<int> y(100);
  run({1, 100}, votes_kernel, y.data());
  EXPECT_EQ(y[0], 9034);
}

__global__ void half_shuffle_kernel(int* y) {
  if (threadIdx.x < 20) y[threadIdx.x] = __shfl_sync(all_lanes, 1, 0);
  __syncthreads();
}
TEST_P(EmulateOrder, DeadlockTellsWhoWaitsWhere) {
  std::vector<int> y(32);
  const std::string text = error_of([&] { run({1, 64}, half_shuffle_kernel, y.data()); });
  EXPECT_SAYS(text, "deadlock");
  EXPECT_SAYS(text, "thread (0, 0, 0) to thread (19, 0, 0) wait in __shfl_sync");
  EXPECT_SAYS(text, "with mask 0xffffffff");
  EXPECT_SAYS(text, "thread (20, 0, 0) to thread (63, 0, 0) wait in block barrier");
}

__global__ void mixed_operations_kernel(int* y) {
  if (threadIdx.x == 3)
    y[0] = __any_sync(all_lanes, 1);
  else
    y[1] = __shfl_sync(all_lanes, 1, 0);
}
__global__ void foreign_mask_kernel(int* y) { y[threadIdx.x] = __shfl_sync(0xffu, 1, 0); }
__global__ void odd_width_kernel(int* y) { y[threadIdx.x] = __shfl_sync(all_lanes, 1, 0, 12); }
__global__ void trap_kernel() {
  if (threadIdx.x == 9) __trap();
}
TEST_P(EmulateOrder, MisusedWarpOperationsAreNamed) {
  std::vector<int> y(32);
  const std::string mixed = error_of([&] { run({1, 32}, mixed_operations_kernel, y.data()); });
  EXPECT_SAYS(mixed, "__any_sync");
  EXPECT_SAYS(mixed, "__shfl_sync");
  EXPECT_SAYS(error_of([&] {
                run({1, 32}, foreign_mask_kernel, y.data());
              }),
              "with mask 0x000000ff, in which the lane itself");
  EXPECT_SAYS(error_of([&] { run({1, 32}, odd_width_kernel, y.data()); }), "width 12");
  EXPECT_SAYS(error_of([&] { run({1, 32}, trap_kernel); }), "thread (9, 0, 0)");
}

__global__ void absent_lane_kernel(float* y) {
  if (threadIdx.x < 16) y[threadIdx.x] = __shfl_sync(0xffffu, 1.0f, 20);
}
__global__ void unwritten_shared_kernel(float* y) {
  HEARTH_SHARED(float, cache, [64]);
  y[threadIdx.x] = cache[threadIdx.x];
  cache[threadIdx.x] = 1;
}
TEST(Emulate, UndefinedValuesAreNotNumbers) {
  std::vector<float> y(64);
  run({1, 32}, absent_lane_kernel, y.data());
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(std::isnan(y[static_cast<std::size_t>(i)]));
  run({3, 64}, unwritten_shared_kernel, y.data());
  for (const float value : y) EXPECT_TRUE(std::isnan(value));
}

__global__ void overrun_kernel(int by) {
  HEARTH_SHARED(float, first, [30]);
  HEARTH_SHARED(float, second, [5]);
  second[0] = 0;
  float* const p = first;  // past the array's bounds, which another sanitizer knows
  p[29 + by] = 1;
}
TEST(Emulate, SharedOverrunIsSeen) {
#if defined(__SANITIZE_ADDRESS__)
  EXPECT_DEATH(run({1, 1}, overrun_kernel, 1), "use-after-poison");
#else
  EXPECT_EQ(error_of([] { run({1, 1}, overrun_kernel, 0); }), "no error");
  EXPECT_SAYS(error_of([] { run({1, 1}, overrun_kernel, 1); }), "behind shared variable first (120 bytes) was written");
#endif
}

__global__ void large_static_kernel() {
  HEARTH_SHARED(float, a, [8192]);
  HEARTH_SHARED(float, b, [4097]);
  a[0] = b[0] = 0;
}
__global__ void large_together_kernel() {
  HEARTH_SHARED(float, a, [8192]);
  a[0] = dynamic_shared<float>()[0] = 0;
}
__global__ void no_dynamic_kernel() { dynamic_shared<float>()[0] = 0; }
__global__ void empty_kernel() {}
TEST(Emulate, LimitsOfALaunch) {
  EXPECT_SAYS(error_of([] { run({1, 1}, large_static_kernel); }), "shared variable b of 16388 bytes does not fit");
  EXPECT_SAYS(error_of([] { run({1, 1, 48 * 1024 + 1}, empty_kernel); }), "it was allowed 49152");
  EXPECT_EQ(error_of([] { run({1, 1, 16 * 1024}, large_together_kernel); }), "no error");
  EXPECT_SAYS(error_of([] { run({1, 1, 16 * 1024 + 1}, large_together_kernel); }), "did not ask");
  ASSERT_EQ(cudaFuncSetAttribute(reinterpret_cast<const void*>(&large_together_kernel),
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, 196 * 1024),
            cudaSuccess);
  EXPECT_EQ(error_of([] { run({1, 1, 195 * 1024}, large_together_kernel); }), "no error");
  EXPECT_SAYS(error_of([] { run({1, 1, 196 * 1024}, large_together_kernel); }), "does not fit");
  EXPECT_SAYS(error_of([] { run({1, 1}, no_dynamic_kernel); }), "the launch gave none");
  EXPECT_SAYS(error_of([] { run({1, 1025}, empty_kernel); }), "1024 threads in all");
  EXPECT_SAYS(error_of([] { run({1, {1, 1, 65}}, empty_kernel); }), "(1, 1, 65)");
  EXPECT_SAYS(error_of([] { run({1, {32, 33}}, empty_kernel); }), "1024 threads in all");
  EXPECT_SAYS(error_of([] { run({{1, 65536}, 32}, empty_kernel); }), "(1, 65536, 1)");
  EXPECT_SAYS(error_of([] { run({1, 0}, empty_kernel); }), "empty");
  EXPECT_SAYS(error_of([] { run({1, 32, 227 * 1024 + 1}, empty_kernel); }), "232449 bytes of dynamic shared memory");
}

// Right by luck when threads run in ascending order: thread i reads what thread i - 1 has already replaced or not.
__global__ void lucky_kernel(int* y) {
  const int before = threadIdx.x == 0 ? 0 : y[threadIdx.x - 1];
  y[threadIdx.x] = before + 1;
}
TEST(Emulate, OrdersShowRaces) {
  const std::string before = emulate::order();
  const auto result = [](const char* order) {
    emulate::set_order(order);
    std::vector<int> y(64);
    run({1, 64}, lucky_kernel, y.data());
    return y;
  };
  EXPECT_NE(result("forward"), result("reverse"));
  EXPECT_NE(result("forward"), result("1"));
  EXPECT_EQ(result("1"), result("1"));
  emulate::set_order(before);
  EXPECT_THROW(emulate::set_order("sideways"), UsageError);
}

}  // namespace
