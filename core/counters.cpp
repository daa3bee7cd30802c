// SPDX-License-Identifier: Apache-2.0
// All zero in a build without CUDA.
#include "core/cuda/counters.h"

namespace hearth::cuda {

namespace {

WorkListener* listener = nullptr;
WaitListener wait_listener = nullptr;

}  // namespace

Counters& live_counters() {
  static Counters counted;
  return counted;
}

Counters counters() { return live_counters(); }

void listen_to_work(WorkListener* told) { listener = told; }
WorkListener* work_listener() { return listener; }

void listen_to_waits(WaitListener told) { wait_listener = told; }

void count_wait() {
  ++live_counters().waits;
  if (wait_listener != nullptr) wait_listener();
}

void count_work(const Work& work) {
  if (work.bytes < 0)
    ++live_counters().launches_without_bytes;
  else
    live_counters().bytes_moved += work.bytes;
  if (listener != nullptr) listener->asked(work);
}

Counters Counters::operator-(const Counters& e) const {
  return {launches - e.launches,
          library_calls - e.library_calls,
          graph_launches - e.graph_launches,
          waits - e.waits,
          stalls - e.stalls,
          copies_in - e.copies_in,
          copies_out - e.copies_out,
          copies_within - e.copies_within,
          pageable_copies - e.pageable_copies,
          bytes_copied - e.bytes_copied,
          allocations - e.allocations,
          layout_changes - e.layout_changes,
          conversions - e.conversions,
          bytes_moved - e.bytes_moved,
          launches_without_bytes - e.launches_without_bytes};
}

}  // namespace hearth::cuda
