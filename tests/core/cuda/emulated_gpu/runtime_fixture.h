// SPDX-License-Identifier: Apache-2.0
// What the tests of the emulated runtime share: streams and memory that clean up, small kernels, policies to run under.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/emulated_gpu/runtime.h"

namespace hearth::cuda::emulate::test {

#define EXPECT_OK(call) EXPECT_STREQ(cudaGetErrorName(call), "cudaSuccess") << last_fault()
#define EXPECT_STATUS(call, status) EXPECT_STREQ(cudaGetErrorName(call), #status) << last_fault()

/// Seeds under which a planted fault must show at least once.
inline constexpr std::uint64_t seeds = 20;

/// eager, lazy, and every seed.
inline std::vector<StreamPolicy> all_policies() {
  std::vector<StreamPolicy> policies = {stream_policy_named("eager"), stream_policy_named("lazy")};
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) policies.push_back({StreamPolicy::Kind::seeded, seed});
  return policies;
}

inline std::string name_of(const StreamPolicy& policy) {
  if (policy.kind == StreamPolicy::Kind::seeded) return "seed " + std::to_string(policy.seed);
  return policy.kind == StreamPolicy::Kind::eager ? "eager" : "lazy";
}

inline void use_streams(const StreamPolicy& policy) {
  Settings wanted = settings();
  wanted.streams = policy;
  apply(wanted);
}

/// Every test starts with nothing queued and an eager device, whatever the environment asks for; what follows has that.
class RuntimeTest : public testing::Test {
 protected:
  void SetUp() override { apply(Settings{}); }
  void TearDown() override {
    apply(settings_from_environment());
    cudaSetDevice(0);
  }
};

struct Queue {
  explicit Queue(unsigned flags = cudaStreamNonBlocking) { EXPECT_OK(cudaStreamCreateWithFlags(&raw, flags)); }
  ~Queue() { cudaStreamDestroy(raw); }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  cudaStream_t raw = nullptr;
};

struct Event {
  explicit Event(unsigned flags = cudaEventDisableTiming) { EXPECT_OK(cudaEventCreateWithFlags(&raw, flags)); }
  ~Event() { cudaEventDestroy(raw); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t raw = nullptr;
};

/// The later stream goes on only when the earlier one has done what it has queued now.
inline void order(const Queue& earlier, const Queue& later) {
  const Event event;
  EXPECT_OK(cudaEventRecord(event.raw, earlier.raw));
  EXPECT_OK(cudaStreamWaitEvent(later.raw, event.raw, 0));
}

/// Floats on the device.
struct Floats {
  explicit Floats(std::size_t n) : count(n) { EXPECT_OK(cudaMalloc(reinterpret_cast<void**>(&at), n * sizeof(float))); }
  ~Floats() {
    cudaDeviceSynchronize();
    cudaFree(at);
  }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  std::size_t bytes() const { return count * sizeof(float); }
  float* at = nullptr;
  std::size_t count;
};

/// Floats in pinned host memory.
struct PinnedFloats {
  explicit PinnedFloats(std::size_t n) : count(n) {
    EXPECT_OK(cudaHostAlloc(reinterpret_cast<void**>(&at), n * sizeof(float), cudaHostAllocDefault));
  }
  ~PinnedFloats() {
    cudaDeviceSynchronize();
    cudaFreeHost(at);
  }
  PinnedFloats(const PinnedFloats&) = delete;
  PinnedFloats& operator=(const PinnedFloats&) = delete;
  std::size_t bytes() const { return count * sizeof(float); }
  float* at = nullptr;
  std::size_t count;
};

/// y[i] = a x[i] + b.
inline void affine(const Queue& queue, const Floats& y, float a, const Floats& x, float b) {
  enqueue_work(queue.raw, "affine", [y = y.at, x = x.at, n = y.count, a, b] {
    for (std::size_t i = 0; i < n; ++i) y[i] = a * x[i] + b;
  });
}

inline void set(const Queue& queue, const Floats& y, float value) {
  enqueue_work(queue.raw, "set", [y = y.at, n = y.count, value] {
    for (std::size_t i = 0; i < n; ++i) y[i] = value + static_cast<float>(i);
  });
}

/// What the device holds once all of it is done.
inline std::vector<float> fetch(const Floats& x) {
  EXPECT_OK(cudaDeviceSynchronize());
  std::vector<float> host(x.count);
  EXPECT_OK(cudaMemcpy(host.data(), x.at, x.bytes(), cudaMemcpyDeviceToHost));
  return host;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace hearth::cuda::emulate::test
