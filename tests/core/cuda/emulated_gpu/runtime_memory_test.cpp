// SPDX-License-Identifier: Apache-2.0
// Memory, copies, devices and errors of the emulated runtime.
#include <cstdlib>
#include <set>
#include <stdexcept>
#include <thread>

#include "core/cuda/launch.h"
#include "core/error.h"
#include "tests/core/cuda/emulated_gpu/runtime_fixture.h"
#include "tests/support/error_message.h"

namespace hearth::cuda::emulate::test::runtime_memory_test {
namespace {

using hearth::test::contains;
using hearth::test::error_message;

class RuntimeMemory : public RuntimeTest {
 protected:
  static void limit_memory(std::size_t bytes) {
    Settings wanted = settings();
    wanted.memory_bytes = bytes;
    apply(wanted);
  }
};
using RuntimeErrors = RuntimeTest;
using RuntimeDevices = RuntimeTest;
// Processes that are meant to die; the name makes them run first.
using RuntimeMemoryDeathTest = RuntimeTest;

TEST_F(RuntimeMemory, NewMemoryIsNaN) {
  const Floats x(5);
  for (const float value : fetch(x)) EXPECT_NE(value, value);
  const PinnedFloats host(5);
  for (int i = 0; i < 5; ++i) EXPECT_NE(host.at[i], host.at[i]);
}

TEST_F(RuntimeMemory, AddressesAreAlignedAndNotGivenTwice) {
  std::set<void*> seen;
  for (const std::size_t bytes : {1u, 255u, 256u, 4096u, 4097u, 100000u})
    for (int i = 0; i < 5; ++i) {
      void* address = nullptr;
      EXPECT_OK(cudaMalloc(&address, bytes));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(address) % 256, 0u);
      EXPECT_TRUE(seen.insert(address).second);
      EXPECT_OK(cudaFree(address));
    }
}

// Every block is at most 255 bytes from a page that nothing may touch.
TEST_F(RuntimeMemory, BlocksKeepTheirDistance) {
  const Floats a(64), b(64);
  EXPECT_GE(std::abs(reinterpret_cast<std::intptr_t>(a.at) - reinterpret_cast<std::intptr_t>(b.at)), 4096 + 256);
}

TEST_F(RuntimeMemory, TheLimitHolds) {
  const std::size_t before = memory_in_use(0);
  limit_memory(before + (1u << 20));
  void* whole = nullptr;
  EXPECT_STATUS(cudaMalloc(&whole, (1u << 20) + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(whole, nullptr);
  EXPECT_TRUE(contains(last_fault(), "1048577 bytes do not fit")) << last_fault();
  EXPECT_OK(cudaMalloc(&whole, 1u << 20));
  std::size_t free_bytes = 1, total = 0;
  EXPECT_OK(cudaMemGetInfo(&free_bytes, &total));
  EXPECT_EQ(free_bytes, 0u);
  EXPECT_EQ(total, before + (1u << 20));
  void* one = nullptr;
  EXPECT_STATUS(cudaMalloc(&one, 1), cudaErrorMemoryAllocation);
  EXPECT_OK(cudaFree(whole));
  EXPECT_EQ(memory_in_use(0), before);
  EXPECT_STATUS(cudaMalloc(&one, std::size_t{1} << 62), cudaErrorMemoryAllocation);
}

TEST_F(RuntimeMemory, BlocksFreedInStreamOrderComeBack) {
  for (const StreamPolicy& policy : all_policies()) {
    use_streams(policy);
    limit_memory(memory_in_use(0) + (1u << 20));
    const Queue queue;
    for (int i = 0; i < 5; ++i) {
      void* block = nullptr;
      EXPECT_OK(cudaMallocAsync(&block, 1u << 20, queue.raw));
      EXPECT_OK(cudaMemsetAsync(block, 1, 1u << 20, queue.raw));
      EXPECT_OK(cudaFreeAsync(block, queue.raw));
    }
    EXPECT_OK(cudaStreamSynchronize(queue.raw));
    apply(Settings{});
  }
}

TEST_F(RuntimeMemory, WrongFreesAreRefused) {
  const Floats x(64);
  EXPECT_STATUS(cudaFree(x.at + 1), cudaErrorInvalidValue);
  EXPECT_STATUS(cudaFreeHost(x.at), cudaErrorInvalidValue);
  EXPECT_STATUS(cudaFreeAsync(x.at, nullptr), cudaErrorInvalidValue);
  void* once = nullptr;
  EXPECT_OK(cudaMalloc(&once, 8));
  EXPECT_OK(cudaFree(once));
  EXPECT_STATUS(cudaFree(once), cudaErrorInvalidValue);
  EXPECT_TRUE(contains(last_fault(), "byte 0 of a freed device block of 8 bytes")) << last_fault();
  const PinnedFloats pinned(4);
  EXPECT_STATUS(cudaFree(pinned.at), cudaErrorInvalidValue);
  EXPECT_OK(cudaFree(nullptr));
  EXPECT_OK(cudaFreeHost(nullptr));
  use_streams(stream_policy_named("lazy"));
  const Queue queue;
  EXPECT_OK(cudaMallocAsync(&once, 8, queue.raw));
  EXPECT_OK(cudaFreeAsync(once, queue.raw));
  EXPECT_STATUS(cudaFreeAsync(once, queue.raw), cudaErrorInvalidValue);
  EXPECT_STATUS(cudaFree(once), cudaErrorInvalidValue);
}

// Under the address sanitizer the write itself is reported.
#if !defined(__SANITIZE_ADDRESS__)
TEST_F(RuntimeMemory, WritesBesideABlockAreFoundWhenItIsFreed) {
  const Queue queue;
  for (const int beside : {-1, 10, 12}) {
    std::byte* block = nullptr;
    EXPECT_OK(cudaMalloc(reinterpret_cast<void**>(&block), 10));
    enqueue_work(queue.raw, "overrun", [=] { block[beside] = std::byte{0}; });
    EXPECT_OK(cudaStreamSynchronize(queue.raw));
    EXPECT_STATUS(cudaFree(block), cudaErrorIllegalAddress);
    const std::string place = beside < 0 ? "1 bytes before the start" : join_text(beside - 10, " bytes behind the end");
    EXPECT_TRUE(contains(last_fault(), place + " of a block of 10 bytes")) << last_fault();
  }
}
#else
TEST_F(RuntimeMemoryDeathTest, WritesBesideABlockAreReportedAtOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Queue queue;
  for (const int beside : {-1, 10, 12}) {
    std::byte* block = nullptr;
    EXPECT_OK(cudaMalloc(reinterpret_cast<void**>(&block), 10));
    const auto overrun = [=] { block[beside] = std::byte{0}; };
    EXPECT_DEATH(enqueue_work(queue.raw, "overrun", overrun), "use-after-poison");
    EXPECT_OK(cudaFree(block));
  }
}
#endif

/// What the dying process says; the address sanitizer has words of its own.
const char* report([[maybe_unused]] const char* ours) {
#if defined(__SANITIZE_ADDRESS__)
  return "AddressSanitizer";
#else
  return ours;
#endif
}

TEST_F(RuntimeMemoryDeathTest, FreedMemoryAndGuardsCannotBeTouched) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  float* freed = nullptr;
  EXPECT_OK(cudaMalloc(reinterpret_cast<void**>(&freed), 256));
  EXPECT_EQ(freed[0] == freed[0], false);
  EXPECT_OK(cudaFree(freed));
  EXPECT_DEATH(freed[0] = 1, report("the host touched byte 0 of a freed device block of 256 bytes"));
  const Floats x(64);
  EXPECT_DEATH(x.at[64] = 1, report("the host touched an address 0 bytes behind the end of a block of 256 bytes"));
  const Queue queue;
  const auto overrun = [p = x.at] { p[65] = 1; };
  EXPECT_DEATH(enqueue_work(queue.raw, "saxpy", overrun),
               report("saxpy .queued work. touched an address 4 bytes behind"));
}

TEST_F(RuntimeMemoryDeathTest, ProtectedMemoryIsForQueuedWorkOnly) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Settings wanted = settings();
  wanted.host_access = HostAccess::faults;
  apply(wanted);
  const Floats x(64), y(64);
  const Queue queue;
  set(queue, x, 1);
  affine(queue, y, 2, x, 0);
  EXPECT_EQ(fetch(y)[3], 8);
  EXPECT_DEATH(x.at[0] = 1, report("the host touched byte 0 of a live device block"));
  const auto touch = [](void* p) { static_cast<float*>(p)[0] = 1; };
  EXPECT_DEATH(cudaLaunchHostFunc(queue.raw, touch, x.at), report("the host touched byte 0"));
  wanted.host_access = HostAccess::allowed;
  apply(wanted);
  EXPECT_EQ(x.at[0], 1);
}

TEST_F(RuntimeMemory, CopiesAreChecked) {
  const Floats x(8), y(8);
  const PinnedFloats pinned(8);
  std::vector<float> host(16);
  const Queue queue;
  EXPECT_STATUS(cudaMemcpyAsync(x.at, host.data(), x.bytes() + 1, cudaMemcpyHostToDevice, queue.raw),
                cudaErrorInvalidValue);
  EXPECT_TRUE(contains(last_fault(), "33 bytes from byte 0 of a live device block of 32 bytes")) << last_fault();
  EXPECT_STATUS(cudaMemcpyAsync(x.at + 1, y.at, x.bytes(), cudaMemcpyDeviceToDevice, queue.raw), cudaErrorInvalidValue);
  EXPECT_STATUS(cudaMemcpyAsync(pinned.at + 4, x.at, x.bytes(), cudaMemcpyDeviceToHost, queue.raw),
                cudaErrorInvalidValue);
  EXPECT_STATUS(cudaMemcpyAsync(x.at, host.data(), 4, cudaMemcpyDeviceToDevice, queue.raw), cudaErrorInvalidValue);
  EXPECT_STATUS(cudaMemcpyAsync(host.data(), x.at, 4, cudaMemcpyHostToDevice, queue.raw), cudaErrorInvalidValue);
  EXPECT_STATUS(cudaMemcpyAsync(x.at, x.at + 1, 16, cudaMemcpyDeviceToDevice, queue.raw), cudaErrorInvalidValue);
  EXPECT_STATUS(cudaMemcpyAsync(x.at, nullptr, 16, cudaMemcpyHostToDevice, queue.raw), cudaErrorInvalidValue);
  EXPECT_STATUS(cudaMemsetAsync(x.at, 0, x.bytes() + 1, queue.raw), cudaErrorInvalidValue);
  EXPECT_STATUS(cudaMemsetAsync(host.data(), 0, 4, queue.raw), cudaErrorInvalidValue);
  void* freed = nullptr;
  EXPECT_OK(cudaMalloc(&freed, 64));
  EXPECT_OK(cudaFree(freed));
  EXPECT_STATUS(cudaMemcpyAsync(host.data(), freed, 4, cudaMemcpyDefault, queue.raw), cudaErrorInvalidValue);
  EXPECT_TRUE(contains(last_fault(), "freed device block of 64 bytes")) << last_fault();
  cudaGetLastError();
  EXPECT_OK(cudaMemcpyAsync(x.at, host.data(), 0, cudaMemcpyHostToDevice, queue.raw));
}

TEST_F(RuntimeMemory, CopiesOfRows) {
  const Floats x(12);
  const Queue queue;
  std::vector<float> host(15);
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<float>(i);
  EXPECT_OK(cudaMemset(x.at, 0, x.bytes()));
  // Three rows of 2 out of rows of 5, into rows of 4.
  EXPECT_OK(cudaMemcpy2DAsync(x.at, 16, host.data(), 20, 8, 3, cudaMemcpyHostToDevice, queue.raw));
  EXPECT_EQ(fetch(x), (std::vector<float>{0, 1, 0, 0, 5, 6, 0, 0, 10, 11, 0, 0}));
  EXPECT_STATUS(cudaMemcpy2DAsync(x.at, 16, host.data(), 4, 8, 3, cudaMemcpyHostToDevice, queue.raw),
                cudaErrorInvalidPitchValue);
  EXPECT_STATUS(cudaMemcpy2DAsync(x.at, 24, host.data(), 20, 8, 3, cudaMemcpyHostToDevice, queue.raw),
                cudaErrorInvalidValue);
  std::vector<float> back(6, 9);
  EXPECT_OK(cudaMemcpy2D(back.data(), 8, x.at, 16, 8, 3, cudaMemcpyDeviceToHost));
  EXPECT_EQ(back, (std::vector<float>{0, 1, 5, 6, 10, 11}));
}

TEST_F(RuntimeMemory, PointersTellWhatTheyAre) {
  const Floats x(8);
  const PinnedFloats pinned(8);
  std::vector<float> host(8);
  cudaPointerAttributes attributes;
  EXPECT_OK(cudaPointerGetAttributes(&attributes, x.at + 3));
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device, 0);
  EXPECT_EQ(attributes.hostPointer, nullptr);
  EXPECT_OK(cudaPointerGetAttributes(&attributes, pinned.at));
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  EXPECT_OK(cudaPointerGetAttributes(&attributes, host.data()));
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  EXPECT_OK(cudaHostRegister(host.data(), 32, cudaHostRegisterDefault));
  EXPECT_OK(cudaPointerGetAttributes(&attributes, host.data()));
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  EXPECT_STATUS(cudaHostRegister(host.data() + 7, 4, cudaHostRegisterDefault), cudaErrorHostMemoryAlreadyRegistered);
  EXPECT_OK(cudaHostUnregister(host.data()));
  EXPECT_STATUS(cudaHostUnregister(host.data()), cudaErrorHostMemoryNotRegistered);
  ASSERT_TRUE(block_at(x.at + 7).has_value());
  EXPECT_EQ(block_at(x.at + 7)->bytes, 32u);
  EXPECT_FALSE(block_at(x.at + 8).has_value());
  EXPECT_FALSE(block_at(host.data()).has_value());
}

TEST_F(RuntimeErrors, AKernelThatThrowsFailsTheNextWait) {
  for (const StreamPolicy& policy : all_policies()) {
    use_streams(policy);
    const Queue queue, other;
    int ran = 0;
    enqueue_work(queue.raw, "bad", [] { throw std::runtime_error("kernel bad, thread 3: divergent barrier"); });
    enqueue_work(queue.raw, "never", [&] { ++ran; });
    EXPECT_STATUS(cudaStreamSynchronize(queue.raw), cudaErrorLaunchFailure) << name_of(policy);
    EXPECT_EQ(last_fault(), "kernel bad, thread 3: divergent barrier");
    EXPECT_STATUS(cudaGetLastError(), cudaErrorLaunchFailure);
    // Told once; then the device goes on.
    EXPECT_OK(cudaDeviceSynchronize());
    const int before = ran;
    enqueue_work(other.raw, "good", [&] { ++ran; });
    EXPECT_OK(cudaDeviceSynchronize());
    EXPECT_EQ(ran, before + 1);
  }
}

TEST_F(RuntimeErrors, WorkBehindAFailureIsDroppedButMemoryComesBack) {
  use_streams(stream_policy_named("lazy"));
  const Queue queue;
  const Event event;
  const std::size_t before = memory_in_use(0);
  int ran = 0;
  void* block = nullptr;
  EXPECT_OK(cudaMallocAsync(&block, 1000, queue.raw));
  enqueue_work(queue.raw, "bad", [] { throw std::runtime_error("bad"); });
  enqueue_work(queue.raw, "behind", [&] { ++ran; });
  EXPECT_OK(cudaEventRecord(event.raw, queue.raw));
  EXPECT_OK(cudaFreeAsync(block, queue.raw));
  EXPECT_STATUS(cudaEventSynchronize(event.raw), cudaErrorLaunchFailure);
  EXPECT_OK(cudaDeviceSynchronize());
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(memory_in_use(0), before);
}

TEST_F(RuntimeErrors, TheLastErrorIsRememberedUntilAsked) {
  EXPECT_STATUS(cudaSetDevice(99), cudaErrorInvalidDevice);
  EXPECT_STATUS(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  EXPECT_STATUS(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_OK(cudaGetLastError());
}

TEST_F(RuntimeErrors, LaunchesOnWrongStreamsAreToldByTheLastError) {
  cudaStream_t gone = nullptr;
  EXPECT_OK(cudaStreamCreate(&gone));
  EXPECT_OK(cudaStreamDestroy(gone));
  enqueue_work(gone, "lost", [] { FAIL(); });
  EXPECT_STATUS(cudaGetLastError(), cudaErrorInvalidResourceHandle);
  EXPECT_STATUS(cudaStreamSynchronize(gone), cudaErrorInvalidResourceHandle);
  EXPECT_STATUS(cudaStreamDestroy(gone), cudaErrorInvalidResourceHandle);
  cudaGetLastError();
}

TEST_F(RuntimeErrors, HostFunctionsMayNotCallTheRuntime) {
  const Queue queue;
  cudaError_t status = cudaSuccess;
  EXPECT_OK(cudaLaunchHostFunc(
      queue.raw,
      [](void* p) {
        void* block = nullptr;
        *static_cast<cudaError_t*>(p) = cudaMalloc(&block, 8);
      },
      &status));
  EXPECT_OK(cudaStreamSynchronize(queue.raw));
  EXPECT_STATUS(status, cudaErrorNotPermitted);
  cudaGetLastError();
}

TEST_F(RuntimeDevices, SeveralDevicesAreApart) {
  Settings wanted = settings();
  wanted.devices = 2;
  apply(wanted);
  int count = 0;
  EXPECT_OK(cudaGetDeviceCount(&count));
  EXPECT_EQ(count, 2);
  const Floats on_first(8);
  const Queue first;
  set(first, on_first, 1);
  EXPECT_OK(cudaSetDevice(1));
  const Floats on_second(8);
  const Event event;
  EXPECT_EQ(memory_in_use(1), 256u);
  enqueue_work(first.raw, "elsewhere", [] { FAIL(); });
  EXPECT_STATUS(cudaGetLastError(), cudaErrorInvalidResourceHandle);
  EXPECT_TRUE(contains(last_fault(), "the stream is of device 0, the current device is 1")) << last_fault();
  EXPECT_STATUS(cudaEventRecord(event.raw, first.raw), cudaErrorInvalidResourceHandle);
  cudaGetLastError();
  EXPECT_OK(cudaMemcpyPeerAsync(on_second.at, 1, on_first.at, 0, on_first.bytes(), first.raw));
  EXPECT_OK(cudaStreamSynchronize(first.raw));
  EXPECT_EQ(fetch(on_second)[7], 8);
  int current = 0;
  EXPECT_OK(cudaGetDevice(&current));
  EXPECT_EQ(current, 1);
  std::thread([] {
    int of_thread = -1;
    EXPECT_OK(cudaGetDevice(&of_thread));
    EXPECT_EQ(of_thread, 0);
  }).join();
}

TEST_F(RuntimeDevices, ThreadsMayCallAtTheSameTime) {
  use_streams({StreamPolicy::Kind::seeded, 3});
  std::vector<float> results(4);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([t, &results] {
        const Queue queue;
        for (int round = 0; round < 50; ++round) {
          const Floats x(16), y(16);
          set(queue, x, static_cast<float>(t));
          affine(queue, y, 2, x, 1);
          EXPECT_OK(cudaMemcpyAsync(&results[static_cast<std::size_t>(t)], y.at, sizeof(float), cudaMemcpyDeviceToHost,
                                    queue.raw));
        }
      });
  }
  EXPECT_EQ(results, (std::vector<float>{1, 3, 5, 7}));
}

TEST_F(RuntimeDevices, TheDeviceIsAnH200) {
  cudaDeviceProp properties;
  EXPECT_OK(cudaGetDeviceProperties(&properties, 0));
  EXPECT_EQ(properties.major * 10 + properties.minor, 90);
  EXPECT_EQ(properties.multiProcessorCount, 132);
  EXPECT_EQ(properties.sharedMemPerBlockOptin, 227u * 1024);
  EXPECT_EQ(properties.totalGlobalMem, settings().memory_bytes);
  int value = 0;
  EXPECT_OK(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  EXPECT_EQ(value, 227 * 1024);
  setenv("HEARTH_EMULATE_SHARED_KB", "99", 1);
  EXPECT_OK(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  EXPECT_EQ(value, 99 * 1024);
  EXPECT_STATUS(cudaFuncSetAttribute(reinterpret_cast<const void*>(&same_bits),
                                     cudaFuncAttributeMaxDynamicSharedMemorySize, 99 * 1024 + 1),
                cudaErrorInvalidValue);
  unsetenv("HEARTH_EMULATE_SHARED_KB");
  EXPECT_STATUS(cudaGetDeviceProperties(&properties, settings().devices), cudaErrorInvalidDevice);
  cudaGetLastError();
}

TEST_F(RuntimeDevices, SharedMemoryAbove48KiBIsAskedFor) {
  const void* kernel = reinterpret_cast<const void*>(&same_bits);
  EXPECT_EQ(dynamic_shared_limit(kernel), 48u * 1024);
  EXPECT_STATUS(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024 + 1),
                cudaErrorInvalidValue);
  EXPECT_OK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 * 1024));
  EXPECT_EQ(dynamic_shared_limit(kernel), 100u * 1024);
  int blocks = 0;
  EXPECT_OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 256, 100 * 1024));
  EXPECT_EQ(blocks, 2);
  EXPECT_OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 256, 0));
  EXPECT_EQ(blocks, 8);
  cudaGetLastError();
}

TEST_F(RuntimeDevices, LaunchesAskForSharedMemoryOnEachDevice) {
  Settings wanted = settings();
  wanted.devices = 2;
  apply(wanted);
  static const char kernel = 0;  // no other test's
  const auto allow = [](const void* which, int bytes) {
    return cudaFuncSetAttribute(which, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  };
  for (const int device : {0, 1}) {
    EXPECT_OK(cudaSetDevice(device));
    for (const std::size_t bytes : {1000, 1001, 200 * 1024, 5}) {
      before_launch("probe", {dim3(1), dim3(1), bytes}, &kernel, allow);
      EXPECT_GE(shared_asked(&kernel), bytes) << device;
    }
  }
  EXPECT_OK(cudaSetDevice(0));
}

// In a program that links libhearth.so only the program's own runtime knows its kernels.
TEST_F(RuntimeDevices, LaunchesAskTheRuntimeOfTheirSource) {
  static const char kernel = 0;
  static int asked = 0;
  const auto elsewhere = [](const void*, int bytes) {
    return ++asked, bytes > 2000 ? cudaErrorInvalidValue : cudaSuccess;
  };
  const auto begin = [&](std::size_t bytes) { before_launch("probe", {dim3(1), dim3(1), bytes}, &kernel, elsewhere); };
  for (const std::size_t bytes : {1000, 1000, 500}) begin(bytes);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(shared_asked(&kernel), 0u);
  EXPECT_THROW(begin(3000), DeviceError);
  after_launch("probe", {dim3(1), dim3(1)}, cudaSuccess);
  EXPECT_THROW(after_launch("probe", {dim3(1), dim3(1)}, cudaErrorLaunchFailure), DeviceError);
  // An error of the library's own runtime is none of that launch.
  EXPECT_EQ(cudaSetDevice(77), cudaErrorInvalidDevice);
  after_launch("probe", {dim3(1), dim3(1)}, cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
}

TEST_F(RuntimeDevices, ADriverOfAnOlderMajorVersionIsInsufficient) {
  Settings wanted = settings();
  wanted.driver = CUDART_VERSION - 1000;
  apply(wanted);
  int count = 0, driver = 0;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  EXPECT_OK(cudaDriverGetVersion(&driver));
  EXPECT_EQ(driver, CUDART_VERSION - 1000);
  cudaGetLastError();
  wanted.driver = CUDART_VERSION / 1000 * 1000;
  apply(wanted);
  EXPECT_OK(cudaGetDeviceCount(&count));
  EXPECT_GE(count, 1);
}

TEST_F(RuntimeDevices, TheEnvironmentIsChecked) {
  EXPECT_EQ(stream_policy_named("17").seed, 17u);
  for (const char* wrong : {"", "later", "-1", "7x"})
    EXPECT_PRED2(contains, error_message<ConfigError>([&] { static_cast<void>(stream_policy_named(wrong)); }),
                 "use eager, lazy or a number");
  const char* kept = std::getenv("HEARTH_EMULATE_MEMORY_MB");
  const std::string restore = kept == nullptr ? "" : kept;
  setenv("HEARTH_EMULATE_MEMORY_MB", "much", 1);
  EXPECT_PRED2(contains, error_message<ConfigError>([] { static_cast<void>(settings_from_environment()); }),
               "HEARTH_EMULATE_MEMORY_MB=much");
  setenv("HEARTH_EMULATE_MEMORY_MB", "3", 1);
  EXPECT_EQ(settings_from_environment().memory_bytes, 3u << 20);
  setenv("HEARTH_EMULATE_MEMORY_MB", restore.c_str(), 1);
}

}  // namespace
}  // namespace hearth::cuda::emulate::test::runtime_memory_test
