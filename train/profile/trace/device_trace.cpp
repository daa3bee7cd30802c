// SPDX-License-Identifier: Apache-2.0
#include "train/profile/trace/device_trace.h"

#include "core/build.h"
#include "core/cuda/library.h"
#include "core/error.h"

#if HEARTH_HAS_CUDA && __has_include(<cupti.h>)
#include <cupti.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <new>
#include <utility>

namespace hearth::cuda {
namespace {

struct Functions {
  Library file{"CUPTI", {"libcupti.so.13", "libcupti.so.12"}};
  decltype(cuptiGetResultString)* text = file.find("cuptiGetResultString");
  decltype(cuptiActivityRegisterCallbacks)* register_callbacks = file.find("cuptiActivityRegisterCallbacks");
  decltype(cuptiActivityEnable)* enable = file.find("cuptiActivityEnable");
  decltype(cuptiActivityDisable)* disable = file.find("cuptiActivityDisable");
  decltype(cuptiActivityFlushAll)* flush = file.find("cuptiActivityFlushAll");
  decltype(cuptiActivityGetNextRecord)* next_record = file.find("cuptiActivityGetNextRecord");
  decltype(cuptiGetTimestamp)* timestamp = file.find("cuptiGetTimestamp");
};

// Leaked, like the library.
Functions& api() {
  static Functions& loaded = *new Functions;
  return loaded;
}

void check(CUptiResult status, const char* call) {
  if (status == CUPTI_SUCCESS) return;
  const char* text = nullptr;
  (void)api().text(status, &text);
  throw DeviceError(join_text("CUPTI: ", call, ": ", text == nullptr ? "unknown reason" : text,
                              "; only one tool at a time can trace a process"));
}

constexpr CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                        CUPTI_ACTIVITY_KIND_MEMSET};
constexpr std::size_t buffer_bytes = std::size_t{8} << 20, buffer_alignment = 8;

/// What CUPTI's own thread leaves.
struct Found {
  std::mutex mutex;
  std::vector<DeviceSpan> spans;
  bool is_cut = false;  ///< there was no memory for all
};
Found& found() {
  static Found& only = *new Found;
  return only;
}

template <class Record>
DeviceSpan span_of(DeviceSpan::Kind kind, const Record& record, const char* name) {
  DeviceSpan span{.kind = kind, .name = name};
  span.begin_ns = record.start;
  span.end_ns = record.end;
  span.stream = record.streamId;
  return span;
}

const char* name_of(const CUpti_ActivityMemcpy6& copy) {
  switch (copy.copyKind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return "copy from the host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return "copy to the host";
    default:
      return "copy";
  }
}

// The records' first fields are the same in all versions of CUPTI 12 and 13.
void keep(const CUpti_Activity* record, std::vector<DeviceSpan>& spans) {
  if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL || record->kind == CUPTI_ACTIVITY_KIND_KERNEL) {
    const auto& kernel = *reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    DeviceSpan span = span_of(DeviceSpan::Kind::kernel, kernel, kernel.name == nullptr ? "kernel" : kernel.name);
    span.blocks = std::int64_t{kernel.gridX} * kernel.gridY * kernel.gridZ;
    span.threads = std::int64_t{kernel.blockX} * kernel.blockY * kernel.blockZ;
    span.registers = kernel.registersPerThread;
    span.shared_bytes = std::int64_t{kernel.staticSharedMemory} + kernel.dynamicSharedMemory;
    spans.push_back(std::move(span));
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    const auto& copy = *reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
    spans.push_back(span_of(DeviceSpan::Kind::copy, copy, name_of(copy)));
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    spans.push_back(span_of(DeviceSpan::Kind::fill, *reinterpret_cast<const CUpti_ActivityMemset4*>(record), "fill"));
  }
}

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(buffer_alignment, buffer_bytes));
  *bytes = *buffer == nullptr ? 0 : buffer_bytes;
  *most_records = 0;
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t bytes) {
  Found& into = found();
  const std::lock_guard lock(into.mutex);
  CUpti_Activity* record = nullptr;
  try {
    while (bytes > 0 && api().next_record(buffer, bytes, &record) == CUPTI_SUCCESS) keep(record, into.spans);
  } catch (const std::bad_alloc&) {
    into.is_cut = true;
  }
  std::free(buffer);
}

std::int64_t host_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// What CUPTI's clock is ahead of the host's, by the reading that took the least time of several.
std::int64_t clock_ahead() {
  constexpr int readings = 8;
  std::int64_t least = std::numeric_limits<std::int64_t>::max(), ahead = 0;
  for (int i = 0; i < readings; ++i) {
    std::uint64_t theirs = 0;
    const std::int64_t before = host_now();
    check(api().timestamp(&theirs), "cuptiGetTimestamp");
    const std::int64_t took = host_now() - before;
    if (took >= least) continue;
    least = took;
    ahead = static_cast<std::int64_t>(theirs) - (before + took / 2);
  }
  return ahead;
}

}  // namespace

std::string why_no_device_trace() { return why_not_run(api().file); }

DeviceTrace::DeviceTrace() {
  if (const std::string reason = why_no_device_trace(); !reason.empty()) throw DeviceError("CUPTI: " + reason);
  check(api().register_callbacks(give_buffer, take_buffer), "cuptiActivityRegisterCallbacks");
  // What an earlier trace has left.
  {
    const std::lock_guard lock(found().mutex);
    found().spans.clear();
    found().is_cut = false;
  }
  for (const CUpti_ActivityKind kind : kinds) check(api().enable(kind), "cuptiActivityEnable");
}

DeviceTrace::~DeviceTrace() {
  for (const CUpti_ActivityKind kind : kinds) (void)api().disable(kind);
}

std::vector<DeviceSpan> DeviceTrace::take() {
  check(api().flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
  std::vector<DeviceSpan> spans;
  {
    const std::lock_guard lock(found().mutex);
    spans = std::exchange(found().spans, {});
    HEARTH_CHECK(OutOfMemory, !std::exchange(found().is_cut, false),
                 "CUPTI: no memory was left for what the device did; trace fewer steps");
  }
  const auto ahead = static_cast<std::uint64_t>(clock_ahead());
  for (DeviceSpan& span : spans) {
    span.begin_ns -= ahead;
    span.end_ns -= ahead;
  }
  std::stable_sort(spans.begin(), spans.end(),
                   [](const DeviceSpan& a, const DeviceSpan& b) { return a.begin_ns < b.begin_ns; });
  return spans;
}

}  // namespace hearth::cuda

#else

namespace hearth::cuda {

std::string why_no_device_trace() {
  return "this build was made without the header cupti.h; install CUPTI's development files and build again";
}
DeviceTrace::DeviceTrace() { throw DeviceError("CUPTI: " + why_no_device_trace()); }
DeviceTrace::~DeviceTrace() = default;
std::vector<DeviceSpan> DeviceTrace::take() { return {}; }

}  // namespace hearth::cuda

#endif
