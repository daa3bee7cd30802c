// SPDX-License-Identifier: Apache-2.0
// The C functions for memory: blocks, copies, fills. Every range is checked when the call is made, as the runtime does
// with pointers it knows, and again when the copy runs.
#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "tests/emulated_gpu/device_state.h"

using namespace hearth::cuda::emulate;
using hearth::DeviceError;
using hearth::join_text;

namespace {

cudaError_t reserve_device(DeviceSide& side, const char* call, std::size_t bytes, MemoryBlock& block) {
  const int device = current_device();
  const auto fits = [&] {
    const std::size_t used = side.memory.in_use(device);
    return used <= side.settings.memory_bytes && bytes <= side.settings.memory_bytes - used;
  };
  // Blocks freed in stream order come back when the streams have run.
  if (!fits()) side.finish_device(device);
  if (fits()) block = side.memory.reserve(MemoryKind::device, device, bytes);
  if (block.begin != nullptr) return cudaSuccess;
  return side.refuse(cudaErrorMemoryAllocation,
                     join_text(call, ": ", bytes, " bytes do not fit; ", side.memory.in_use(device), " of ",
                               side.settings.memory_bytes, " are in use on the emulated device ", device));
}

cudaError_t close_block(DeviceSide& side, const void* begin) {
  const std::string damage = side.memory.close(begin);
  return damage.empty() ? cudaSuccess : side.refuse(cudaErrorIllegalAddress, damage);
}

/// One end of a copy: rows of `width` bytes, `pitch` bytes apart.
struct Side {
  enum class Place { device, pinned, pageable };
  std::byte* begin = nullptr;
  std::size_t pitch = 0;
  Place place = Place::pageable;
  MemoryBlock block;  ///< unless pageable
};

struct Rows {
  std::size_t width = 0;
  std::size_t height = 1;
  std::size_t span(std::size_t pitch) const { return height == 0 ? 0 : (height - 1) * pitch + width; }
};

Side side_of(const DeviceSide& state, const void* address, std::size_t pitch) {
  Side side{static_cast<std::byte*>(const_cast<void*>(address)), pitch, Side::Place::pageable, {}};
  if (const MemoryBlock* block = state.memory.find(address)) {
    side.place = block->kind == MemoryKind::device ? Side::Place::device : Side::Place::pinned;
    side.block = *block;
  }
  return side;
}

/// Empty if the rows lie within the block; else what is wrong.
std::string outside(const DeviceSide& state, const Side& side, const Rows& rows) {
  if (side.place == Side::Place::pageable)
    return side.begin == nullptr || state.memory.in_ranges(side.begin) ? state.memory.describe(side.begin) : "";
  const auto room = static_cast<std::size_t>(side.block.begin + side.block.bytes - side.begin);
  if (rows.span(side.pitch) <= room) return "";
  return join_text(rows.span(side.pitch), " bytes from ", state.memory.describe(side.begin));
}

void require_alive(const DeviceSide& state, const Side& side, const char* name) {
  HEARTH_CHECK(DeviceError,
               side.place == Side::Place::pageable || state.memory.alive(side.block.serial, side.block.begin), name,
               ": when it ran, its memory was ", state.memory.describe(side.begin));
}

void move_rows(std::byte* to, std::size_t to_pitch, const std::byte* from, std::size_t from_pitch, const Rows& rows) {
  if (to_pitch == rows.width && from_pitch == rows.width) {
    std::memcpy(to, from, rows.width * rows.height);
    return;
  }
  for (std::size_t row = 0; row < rows.height; ++row)
    std::memcpy(to + row * to_pitch, from + row * from_pitch, rows.width);
}

cudaError_t check_kind(DeviceSide& state, const char* call, const Side& to, const Side& from, cudaMemcpyKind kind) {
  const bool to_device = to.place == Side::Place::device, from_device = from.place == Side::Place::device;
  const auto wrong = [&](const Side& side, const char* which, bool is_device) {
    return state.refuse(cudaErrorInvalidValue,
                        join_text(call, ": the ", which, " was said to be ", is_device ? "host" : "device",
                                  " memory, and is ", state.memory.describe(side.begin)));
  };
  if (kind == cudaMemcpyDefault) return cudaSuccess;
  if (to_device != (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice))
    return wrong(to, "target", to_device);
  if (from_device != (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice))
    return wrong(from, "source", from_device);
  return cudaSuccess;
}

/// When the host goes on after an asynchronous copy, as "API synchronization behavior" of the CUDA documentation says.
cudaError_t copy_on(DeviceSide& state, StreamState& stream, const char* call, const Side& to, const Side& from,
                    const Rows& rows, cudaMemcpyKind kind) {
  if (rows.width == 0 || rows.height == 0) return cudaSuccess;
  for (const Side* side : {&to, &from})
    if (const std::string text = outside(state, *side, rows); !text.empty())
      return state.refuse(cudaErrorInvalidValue, join_text(call, ": ", text));
  if (rows.height > 1 && (to.pitch < rows.width || from.pitch < rows.width))
    return state.refuse(cudaErrorInvalidPitchValue, join_text(call, ": a pitch is smaller than the width"));
  if (const cudaError_t status = check_kind(state, call, to, from, kind); status != cudaSuccess) return status;
  if (rows.height == 1 && to.begin < from.begin + rows.width && from.begin < to.begin + rows.width)
    return state.refuse(cudaErrorInvalidValue, join_text(call, ": source and target overlap"));
  const bool pageable = to.place == Side::Place::pageable || from.place == Side::Place::pageable;
  if (stream.capture != nullptr && pageable)
    return state.break_capture(
        *stream.capture, cudaErrorStreamCaptureUnsupported,
        join_text(call,
                  ": host memory in a capture must be pinned; this is not, and a replay would read "
                  "what is there then"));
  // Pageable sources are read now, into a buffer that lives until the copy has run; which, when eager, is now too,
  // unless the stream waits for those of other threads.
  std::shared_ptr<std::vector<std::byte>> staged;
  const bool runs_now = state.settings.streams.kind == StreamPolicy::Kind::eager && stream.items.empty();
  if (from.place == Side::Place::pageable && !runs_now) {
    staged = std::make_shared<std::vector<std::byte>>(rows.width * rows.height);
    move_rows(staged->data(), rows.width, from.begin, from.pitch, rows);
  }
  const bool to_device = to.place == Side::Place::device, from_device = from.place == Side::Place::device;
  const char* const name = to_device == from_device ? "copy" : to_device ? "copy in" : "copy out";
  const cudaError_t status = state.enqueue(stream, {WorkKind::copy, name, [=, &state] {
                                                      require_alive(state, to, "copy");
                                                      require_alive(state, from, "copy");
                                                      if (staged != nullptr)
                                                        move_rows(to.begin, to.pitch, staged->data(), rows.width, rows);
                                                      else
                                                        move_rows(to.begin, to.pitch, from.begin, from.pitch, rows);
                                                    }});
  const bool host_to_host = to.place != Side::Place::device && from.place != Side::Place::device;
  if (status == cudaSuccess && (to.place == Side::Place::pageable || host_to_host) && stream.capture == nullptr)
    state.finish(stream);
  return status;
}

cudaError_t copy_async(const char* call, void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                       Rows rows, cudaMemcpyKind kind, cudaStream_t handle) {
  return entry(Reports::earlier_failures_too, [&](DeviceSide& state) {
    const auto stream = state.stream_of(handle);
    if (stream == nullptr)
      return state.refuse(cudaErrorInvalidResourceHandle, join_text(call, ": there is no such stream"));
    return copy_on(state, *stream, call, side_of(state, to, to_pitch), side_of(state, from, from_pitch), rows, kind);
  });
}

cudaError_t copy_and_wait(const char* call, void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                          Rows rows, cudaMemcpyKind kind) {
  return entry(Reports::earlier_failures_too, [&](DeviceSide& state) {
    cudaError_t status = state.allow_in_any_capture(call, cudaErrorStreamCaptureImplicit);
    if (status != cudaSuccess) return status;
    const auto stream = state.stream_of(nullptr);
    const Side target = side_of(state, to, to_pitch), source = side_of(state, from, from_pitch);
    status = copy_on(state, *stream, call, target, source, rows, kind);
    // Copies within the device do not make the host wait.
    const bool within = target.place == Side::Place::device && source.place == Side::Place::device;
    if (status == cudaSuccess && !within) state.finish(*stream);
    return status;
  });
}

cudaError_t fill_on(DeviceSide& state, StreamState& stream, const char* call, void* address, int value,
                    std::size_t bytes) {
  if (bytes == 0) return cudaSuccess;
  const Side to = side_of(state, address, bytes);
  if (to.place == Side::Place::pageable)
    return state.refuse(cudaErrorInvalidValue, join_text(call, ": the target is ", state.memory.describe(address)));
  if (const std::string text = outside(state, to, {bytes, 1}); !text.empty())
    return state.refuse(cudaErrorInvalidValue, join_text(call, ": ", text));
  return state.enqueue(stream, {WorkKind::copy, "fill", [=, &state] {
                                  require_alive(state, to, "fill");
                                  std::memset(to.begin, value, bytes);
                                }});
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** address, size_t bytes) {
  return entry(Reports::own_errors, [&](DeviceSide& side) {
    *address = nullptr;
    if (const cudaError_t status = side.allow_unsafe("cudaMalloc"); status != cudaSuccess || bytes == 0) return status;
    MemoryBlock block;
    if (const cudaError_t status = reserve_device(side, "cudaMalloc", bytes, block); status != cudaSuccess)
      return status;
    side.memory.open(block.begin);
    *address = block.begin;
    return cudaSuccess;
  });
}

// The documentation allows this call to wait for the device and does not promise it, so it does not wait.
cudaError_t cudaFree(void* address) {
  return entry(Reports::own_errors, [&](DeviceSide& side) {
    if (address == nullptr) return cudaSuccess;
    if (const cudaError_t status = side.allow_unsafe("cudaFree"); status != cudaSuccess) return status;
    const MemoryBlock* block = side.memory.find_start(address);
    const auto ordered = side.freed_in_order.find(address);
    if (block == nullptr || block->kind != MemoryKind::device ||
        (ordered != side.freed_in_order.end() && ordered->second))
      return side.refuse(cudaErrorInvalidValue,
                         join_text("cudaFree: not the start of a device block, but ", side.memory.describe(address)));
    if (ordered != side.freed_in_order.end()) side.freed_in_order.erase(ordered);
    return close_block(side, address);
  });
}

cudaError_t cudaMallocAsync(void** address, size_t bytes, cudaStream_t handle) {
  return entry(Reports::earlier_failures_too, [&](DeviceSide& side) {
    *address = nullptr;
    const auto stream = side.stream_of(handle);
    if (stream == nullptr)
      return side.refuse(cudaErrorInvalidResourceHandle, "cudaMallocAsync: there is no such stream");
    if (stream->capture != nullptr)
      return side.break_capture(*stream->capture, cudaErrorNotSupported,
                                "cudaMallocAsync: allocation in a graph is not emulated");
    if (bytes == 0) return cudaSuccess;
    MemoryBlock block;
    if (const cudaError_t status = reserve_device(side, "cudaMallocAsync", bytes, block); status != cudaSuccess)
      return status;
    side.freed_in_order[block.begin] = false;
    *address = block.begin;
    return side.enqueue(*stream,
                        {WorkKind::bookkeeping, "cudaMallocAsync", [&side, block] { side.memory.open(block.begin); }});
  });
}

cudaError_t cudaFreeAsync(void* address, cudaStream_t handle) {
  return entry(Reports::earlier_failures_too, [&](DeviceSide& side) {
    if (address == nullptr) return cudaSuccess;
    const auto stream = side.stream_of(handle);
    if (stream == nullptr) return side.refuse(cudaErrorInvalidResourceHandle, "cudaFreeAsync: there is no such stream");
    if (stream->capture != nullptr)
      return side.break_capture(*stream->capture, cudaErrorNotSupported,
                                "cudaFreeAsync: memory of a graph is not emulated");
    const auto block = side.freed_in_order.find(address);
    if (block == side.freed_in_order.end() || block->second)
      return side.refuse(
          cudaErrorInvalidValue,
          join_text("cudaFreeAsync: not a block of cudaMallocAsync, or freed before: ", side.memory.describe(address)));
    block->second = true;
    return side.enqueue(*stream, {WorkKind::bookkeeping, "cudaFreeAsync", [&side, address] {
                                    side.freed_in_order.erase(address);
                                    const std::string damage = side.memory.close(address);
                                    HEARTH_CHECK(DeviceError, damage.empty(), damage);
                                  }});
  });
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return entry(Reports::own_errors, [&](DeviceSide& side) {
    *total_bytes = side.settings.memory_bytes;
    *free_bytes = *total_bytes - std::min(*total_bytes, side.memory.in_use(current_device()));
    return cudaSuccess;
  });
}

cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned int) {
  return entry(Reports::own_errors, [&](DeviceSide& side) {
    *address = nullptr;
    if (const cudaError_t status = side.allow_unsafe("cudaHostAlloc"); status != cudaSuccess || bytes == 0)
      return status;
    const MemoryBlock block = side.memory.reserve(MemoryKind::pinned, current_device(), bytes);
    if (block.begin == nullptr)
      return side.refuse(cudaErrorMemoryAllocation, join_text("cudaHostAlloc: ", bytes, " bytes"));
    side.memory.open(block.begin);
    *address = block.begin;
    return cudaSuccess;
  });
}

cudaError_t cudaMallocHost(void** address, size_t bytes) { return cudaHostAlloc(address, bytes, cudaHostAllocDefault); }

cudaError_t cudaFreeHost(void* address) {
  return entry(Reports::own_errors, [&](DeviceSide& side) {
    if (address == nullptr) return cudaSuccess;
    if (const cudaError_t status = side.allow_unsafe("cudaFreeHost"); status != cudaSuccess) return status;
    const MemoryBlock* block = side.memory.find_start(address);
    if (block == nullptr || block->kind != MemoryKind::pinned)
      return side.refuse(cudaErrorInvalidValue, join_text("cudaFreeHost: not the start of a pinned block, but ",
                                                          side.memory.describe(address)));
    return close_block(side, address);
  });
}

cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned int) {
  return entry(Reports::own_errors, [&](DeviceSide& side) {
    if (const cudaError_t status = side.allow_unsafe("cudaHostRegister"); status != cudaSuccess) return status;
    if (address == nullptr || bytes == 0) return side.refuse(cudaErrorInvalidValue, "cudaHostRegister: no memory");
    const auto* begin = static_cast<std::byte*>(address);
    if (side.memory.find(begin) != nullptr || side.memory.find(begin + bytes - 1) != nullptr)
      return side.refuse(cudaErrorHostMemoryAlreadyRegistered, "cudaHostRegister: a part of it is registered");
    side.memory.register_module(address, bytes, current_device());
    return cudaSuccess;
  });
}

cudaError_t cudaHostUnregister(void* address) {
  return entry(Reports::own_errors, [&](DeviceSide& side) {
    if (const cudaError_t status = side.allow_unsafe("cudaHostUnregister"); status != cudaSuccess) return status;
    if (!side.memory.is_adopted(address))
      return side.refuse(cudaErrorHostMemoryNotRegistered, "cudaHostUnregister: it is not registered");
    return close_block(side, address);
  });
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned int) {
  return entry(Reports::own_errors, [&](DeviceSide& side) {
    const MemoryBlock* block = side.memory.find(host);
    if (block == nullptr || block->kind != MemoryKind::pinned)
      return side.refuse(cudaErrorInvalidValue, "cudaHostGetDevicePointer: not pinned memory");
    *device = host;
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  return entry(Reports::own_errors, [&](DeviceSide& side) {
    *attributes = {};
    void* raw = const_cast<void*>(address);
    const MemoryBlock* block = side.memory.find(address);
    if (block == nullptr) {
      attributes->type = cudaMemoryTypeUnregistered;
      attributes->device = cudaInvalidDeviceId;
      attributes->hostPointer = raw;
      return cudaSuccess;
    }
    const bool pinned = block->kind == MemoryKind::pinned;
    attributes->type = pinned ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    attributes->device = block->device;
    attributes->devicePointer = raw;
    attributes->hostPointer = pinned ? raw : nullptr;
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return copy_async("cudaMemcpyAsync", to, bytes, from, bytes, {bytes, 1}, kind, stream);
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  return copy_async("cudaMemcpy2DAsync", to, to_pitch, from, from_pitch, {width, height}, kind, stream);
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t stream) {
  return copy_async("cudaMemcpyPeerAsync", to, bytes, from, bytes, {bytes, 1}, cudaMemcpyDeviceToDevice, stream);
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return copy_and_wait("cudaMemcpy", to, bytes, from, bytes, {bytes, 1}, kind);
}

cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                         cudaMemcpyKind kind) {
  return copy_and_wait("cudaMemcpy2D", to, to_pitch, from, from_pitch, {width, height}, kind);
}

cudaError_t cudaMemsetAsync(void* address, int value, size_t bytes, cudaStream_t handle) {
  return entry(Reports::earlier_failures_too, [&](DeviceSide& side) {
    const auto stream = side.stream_of(handle);
    if (stream == nullptr)
      return side.refuse(cudaErrorInvalidResourceHandle, "cudaMemsetAsync: there is no such stream");
    return fill_on(side, *stream, "cudaMemsetAsync", address, value, bytes);
  });
}

cudaError_t cudaMemset(void* address, int value, size_t bytes) {
  return entry(Reports::earlier_failures_too, [&](DeviceSide& side) {
    const cudaError_t status = side.allow_in_any_capture("cudaMemset", cudaErrorStreamCaptureImplicit);
    return status != cudaSuccess ? status
                                 : fill_on(side, *side.stream_of(nullptr), "cudaMemset", address, value, bytes);
  });
}

}  // extern "C"
