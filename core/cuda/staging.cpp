// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/staging.h"

#include <cuda_runtime_api.h>

#include <array>
#include <cstring>

#include "core/cuda/counters.h"
#include "core/cuda/error.h"
#include "core/cuda/runtime.h"
#include "core/cuda/transfer.h"

namespace hearth::cuda {

// Two halves in turn. Before a half is used again, the copies out of it must have been done; with so many slots they
// practically always have.
StagingRing::StagingRing() {
  void* memory = nullptr;
  HEARTH_TRY(cudaHostAlloc(&memory, slots * slot_bytes, cudaHostAllocDefault));
  slots_ = static_cast<std::byte*>(memory);
  for (cudaEvent_t& event : passed_) HEARTH_TRY(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
}

std::byte* StagingRing::next(Stream& stream) {
  if (next_ % half == 0) {
    const std::size_t entered = next_ / half % 2;
    // Everything taken from the other half is queued by now.
    if (next_ != 0) HEARTH_TRY(cudaEventRecord(passed_[1 - entered], stream.raw()));
    if (next_ >= slots && cudaEventQuery(passed_[entered]) != cudaSuccess) {
      (void)cudaGetLastError();
      ++live_counters().stalls;
      HEARTH_TRY(cudaEventSynchronize(passed_[entered]));
    }
  }
  return slots_ + (next_++ % slots) * slot_bytes;
}

void stage(Stream& stream, void* device, const void* value, std::size_t bytes) {
  HEARTH_CHECK(InternalError, bytes <= StagingRing::slot_bytes, "stage: ", bytes, " bytes; a slot has ",
               StagingRing::slot_bytes);
  std::byte* const slot = state_of(stream.device()).staging.next(stream);
  std::memcpy(slot, value, bytes);
  copy_in(stream, device, slot, bytes);
}

}  // namespace hearth::cuda
