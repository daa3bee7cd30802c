// SPDX-License-Identifier: Apache-2.0
// A CUPTI for the emulated GPU: activity records of what ran, with the times that the emulation took. Kernels' names
// are those of the launches, mangled as if they were functions of namespace hearth; a library's stay as they are.
#include <cupti.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/emulated_gpu/runtime.h"

namespace {

using hearth::cuda::emulate::RanWork;

/// Of the host's steady clock, as CUPTI's clock has a beginning of its own: an hour.
constexpr std::uint64_t clock_ahead = 3'600'000'000'000;

struct State {
  std::mutex mutex;
  std::set<CUpti_ActivityKind> enabled;
  std::vector<RanWork> seen;
  std::deque<std::string> names;  ///< records point to them
  CUpti_BuffersCallbackRequestFunc request = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete = nullptr;
};
State& state() {
  static State& only = *new State;
  return only;
}

CUpti_ActivityKind kind_of(const RanWork& work) {
  if (work.kernel) return CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  return work.name == "fill" ? CUPTI_ACTIVITY_KIND_MEMSET : CUPTI_ACTIVITY_KIND_MEMCPY;
}

std::string mangled(const std::string& name) {
  if (name.starts_with("reference ")) return name;
  std::string plain = name;
  for (char& c : plain)
    if (c == ' ') c = '_';
  return "_ZN6hearth" + std::to_string(plain.size()) + plain + "Ev";
}

template <class Record>
std::size_t append(std::uint8_t* to, Record record) {
  std::memcpy(to, &record, sizeof(record));
  return sizeof(record);
}

template <class Record>
Record record_of(const RanWork& work) {
  Record record{};
  record.kind = kind_of(work);
  record.start = work.begin_ns + clock_ahead;
  record.end = work.end_ns + clock_ahead;
  record.streamId = 7;
  return record;
}

std::size_t write(const RanWork& work, std::uint8_t* to) {
  if (work.kernel) {
    auto record = record_of<CUpti_ActivityKernel10>(work);
    record.name = state().names.emplace_back(mangled(work.name)).c_str();
    record.gridX = record.gridY = record.gridZ = 1;
    record.blockX = 32;
    record.blockY = record.blockZ = 1;
    record.registersPerThread = 32;
    return append(to, record);
  }
  if (work.name == "fill") return append(to, record_of<CUpti_ActivityMemset4>(work));
  auto record = record_of<CUpti_ActivityMemcpy6>(work);
  record.copyKind = work.name == "copy in"    ? CUPTI_ACTIVITY_MEMCPY_KIND_HTOD
                    : work.name == "copy out" ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOH
                                              : CUPTI_ACTIVITY_MEMCPY_KIND_DTOD;
  return append(to, record);
}

std::size_t size_of(CUpti_ActivityKind kind) {
  return kind == CUPTI_ACTIVITY_KIND_MEMCPY   ? sizeof(CUpti_ActivityMemcpy6)
         : kind == CUPTI_ACTIVITY_KIND_MEMSET ? sizeof(CUpti_ActivityMemset4)
                                              : sizeof(CUpti_ActivityKernel10);
}

}  // namespace

extern "C" {

/// By this symbol Hearth knows that the library runs on the emulated GPU.
void hearth_runs_on_the_emulated_gpu() {}

CUptiResult cuptiGetVersion(std::uint32_t* version) {
  *version = CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetTimestamp(std::uint64_t* timestamp) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  *timestamp =
      clock_ahead + static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult, const char** text) {
  *text = "as the reference says";
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete) {
  state().request = request;
  state().complete = complete;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  if (state().request == nullptr) return CUPTI_ERROR_NOT_INITIALIZED;
  {
    const std::lock_guard lock(state().mutex);
    state().enabled.insert(kind);
  }
  hearth::cuda::emulate::watch_work([](const RanWork& work) {
    const std::lock_guard lock(state().mutex);
    if (state().enabled.count(kind_of(work)) > 0) state().seen.push_back(work);
  });
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  bool last = false;
  {
    const std::lock_guard lock(state().mutex);
    state().enabled.erase(kind);
    last = state().enabled.empty();
  }
  if (last) hearth::cuda::emulate::watch_work({});
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityFlushAll(std::uint32_t) {
  std::vector<RanWork> seen;
  {
    const std::lock_guard lock(state().mutex);
    seen.swap(state().seen);
  }
  for (std::size_t at = 0; at < seen.size();) {
    std::uint8_t* buffer = nullptr;
    std::size_t bytes = 0, most = 0, used = 0;
    state().request(&buffer, &bytes, &most);
    if (buffer == nullptr) return CUPTI_ERROR_OUT_OF_MEMORY;
    for (; at < seen.size() && used + sizeof(CUpti_ActivityKernel10) <= bytes; ++at)
      used += write(seen[at], buffer + used);
    state().complete(nullptr, 0, buffer, bytes, used);
  }
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid, CUpti_Activity** record) {
  std::uint8_t* const next =
      *record == nullptr ? buffer : reinterpret_cast<std::uint8_t*>(*record) + size_of((*record)->kind);
  if (next >= buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}

}  // extern "C"
