// SPDX-License-Identifier: Apache-2.0
// What the host asked of the devices so far, counted where it asks; the same on a real and on the emulated GPU, so that
// efficiency ("a captured step is one launch and waits for nothing") can be tested without a GPU.
#pragma once

#include <cstdint>

namespace hearth::cuda {

struct Counters {
  std::int64_t launches = 0;         ///< kernels launched one by one
  std::int64_t library_calls = 0;    ///< calls into cuDNN and cuBLASLt that run on the device
  std::int64_t graph_launches = 0;   ///< replays of captured graphs
  std::int64_t waits = 0;            ///< times the host waited for a device, but for stalls
  std::int64_t stalls = 0;           ///< times it was so far ahead that no pinned memory was free
  std::int64_t copies_in = 0;        ///< host to device
  std::int64_t copies_out = 0;       ///< device to host
  std::int64_t copies_within = 0;    ///< device to device, and fills
  std::int64_t pageable_copies = 0;  ///< of these, with host memory that is not pinned
  std::int64_t bytes_copied = 0;     ///< in all copies
  std::int64_t allocations = 0;      ///< times the driver was asked for device memory
  std::int64_t layout_changes = 0;   ///< copies that only reorder elements (strided copies, transposes)
  std::int64_t conversions = 0;      ///< copies that only change the type of elements
  /// What kernels, library calls, fills and copies within a device read and write in its memory, each operand of a call
  /// once, as declared where the call is made.
  std::int64_t bytes_moved = 0;
  std::int64_t launches_without_bytes = 0;  ///< launches and library calls that declared none

  Counters operator-(const Counters& earlier) const;
};

/// Everything counted since the process started, over all threads and devices.
Counters counters();

/// The live counters, for the code that counts. One thread at a time drives a device.
Counters& live_counters();

/// One launch, call into a library, copy within the device or fill.
struct Work {
  const char* name;
  std::int64_t bytes;            ///< that it moves; -1: not declared
  const void* kernel = nullptr;  ///< of a launch: the host's address of the kernel
};
/// Adds its bytes to bytes_moved, and tells the listener of it. Called in the order in which streams get their work.
void count_work(const Work& work);

/// Who is told of all work in the order in which streams get it, of recordings and of replays.
class WorkListener {
 public:
  virtual ~WorkListener() = default;
  virtual void asked(const Work& work) = 0;
  /// What is asked from here on is recorded and does not run.
  virtual void begin_recording() = 0;
  /// It is in the graph of this number; 0: the recording failed.
  virtual void end_recording(std::int64_t graph) = 0;
  virtual void replayed(std::int64_t graph) = 0;
};
/// The listener from here on; null: nobody.
void listen_to_work(WorkListener* listener);
/// Null where nobody listens.
WorkListener* work_listener();

/// Counts a wait for a device, and tells the listener of it.
void count_wait();
/// Who is told of waits; null: nobody.
using WaitListener = void (*)();
void listen_to_waits(WaitListener listener);

}  // namespace hearth::cuda
