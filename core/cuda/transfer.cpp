// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/transfer.h"

#include <cuda_runtime_api.h>

#include "core/cuda/counters.h"
#include "core/cuda/error.h"
#include "core/cuda/graph.h"

namespace hearth::cuda {
namespace {

void count_host_memory(const Stream& stream, const void* host) {
  cudaPointerAttributes attributes{};
  HEARTH_TRY(cudaPointerGetAttributes(&attributes, host));
  if (attributes.type != cudaMemoryTypeUnregistered) return;
  // A replay would read the address again, when something else may lie there.
  refuse_while_recording(stream.device(), "a copy between the device and pageable memory");
  ++live_counters().pageable_copies;
}

}  // namespace

void copy_in(Stream& stream, void* device, const void* host, std::size_t bytes) {
  if (bytes == 0) return;
  Counters& counted = live_counters();
  ++counted.copies_in;
  counted.bytes_copied += static_cast<std::int64_t>(bytes);
  count_host_memory(stream, host);
  HEARTH_TRY(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream.raw()));
}

void copy_out_and_wait(Stream& stream, void* host, const void* device, std::size_t bytes) {
  if (bytes == 0) return;
  Counters& counted = live_counters();
  ++counted.copies_out;
  counted.bytes_copied += static_cast<std::int64_t>(bytes);
  count_host_memory(stream, host);
  HEARTH_TRY(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream.raw()));
  stream.wait();
}

void copy_within(Stream& stream, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  Counters& counted = live_counters();
  ++counted.copies_within;
  counted.bytes_copied += static_cast<std::int64_t>(bytes);
  count_work({"copy", 2 * static_cast<std::int64_t>(bytes)});
  HEARTH_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream.raw()));
}

void fill_bytes(Stream& stream, void* device, unsigned char value, std::size_t bytes) {
  if (bytes == 0) return;
  ++live_counters().copies_within;
  count_work({"fill", static_cast<std::int64_t>(bytes)});
  HEARTH_TRY(cudaMemsetAsync(device, value, bytes, stream.raw()));
}

}  // namespace hearth::cuda
