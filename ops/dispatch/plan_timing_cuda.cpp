// SPDX-License-Identifier: Apache-2.0
#include "ops/dispatch/plan_timing_cuda.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "core/cuda/counters.h"
#include "core/cuda/error.h"
#include "core/cuda/graph.h"
#include "core/cuda/memory.h"
#include "core/cuda/runtime.h"
#include "core/error.h"

namespace hearth::cuda {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();
constexpr std::size_t max_sets = 64;

/// Device memory straight from the driver, so that the pool's statistics stay those of the run. Null if there is none.
class Block {
 public:
  explicit Block(std::size_t bytes) {
    void* raw = nullptr;
    if (cudaMalloc(&raw, bytes) != cudaSuccess) {
      (void)cudaGetLastError();
      return;
    }
    ++live_counters().allocations;
    begin_ = static_cast<std::byte*>(raw);
  }
  ~Block() { cudaFree(begin_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  std::byte* begin() const { return begin_; }

 private:
  std::byte* begin_ = nullptr;
};

class Event {
 public:
  Event() { HEARTH_TRY(cudaEventCreate(&raw_)); }
  ~Event() { cudaEventDestroy(raw_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t raw() const { return raw_; }

 private:
  cudaEvent_t raw_ = nullptr;
};

std::size_t whole_lines(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

PlanKey plan_key(std::string library, Device device, std::string problem) {
  const DeviceInfo info = device_info(device);
  return {std::move(library),
          join_text(info.name, ", capability ", info.capability, ", ", info.multiprocessors, " multiprocessors"),
          std::move(problem)};
}

Fastest fastest_plan(Device device, std::size_t plans, const TimedWork& work, const PrepareRuns& prepare) {
  refuse_while_recording(device, "timing a library's plans for a problem met for the first time");
  const Stream& stream = stream_of(device);
  const auto cache = static_cast<std::size_t>(state_of(device).properties.l2CacheSize);
  const std::size_t set = whole_lines(work.operands), workspace = whole_lines(work.workspace);
  std::size_t count = std::clamp<std::size_t>((3 * cache + set - 1) / set, 2, max_sets);
  // Half of what is free is left to whoever else asks meanwhile.
  const auto room = static_cast<std::size_t>(free_memory(device)) / 2;
  if (room <= workspace || room - workspace < set) return {0, never};
  count = std::min(count, (room - workspace) / set);
  const std::size_t bytes = workspace + count * set;
  const Block memory(bytes);
  if (memory.begin() == nullptr) return {0, never};
  // Small numbers in every type: 0x3c3c is 1.06 as f16 and 0.011 as bf16.
  HEARTH_TRY(cudaMemsetAsync(memory.begin(), 0x3c, bytes, stream.raw()));
  stream.wait();
  std::vector<std::byte*> sets;
  for (std::size_t i = 0; i < count; ++i) sets.push_back(memory.begin() + workspace + i * set);
  const RunPlan run = prepare(sets, memory.begin());
  const Event start, stop;
  // Short runs are timed several at once, as the clock of events is coarse.
  const std::size_t at_once = work.flops < 1e10 ? 4 : 1;
  const Fastest fastest = fastest_of(plans, [&](std::size_t way, std::size_t round) {
    HEARTH_TRY(cudaEventRecord(start.raw(), stream.raw()));
    for (std::size_t i = 0; i < at_once; ++i) {
      if (!run(way, (round * at_once + i) % count)) return never;
      ++live_counters().library_calls;
    }
    HEARTH_TRY(cudaEventRecord(stop.raw(), stream.raw()));
    ++live_counters().waits;
    HEARTH_TRY(cudaEventSynchronize(stop.raw()));
    float milliseconds = 0;
    HEARTH_TRY(cudaEventElapsedTime(&milliseconds, start.raw(), stop.raw()));
    return 1e3 * static_cast<double>(milliseconds) / static_cast<double>(at_once);
  });
  stream.wait();
  return fastest;
}

}  // namespace hearth::cuda
