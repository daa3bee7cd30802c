// SPDX-License-Identifier: Apache-2.0
// Bytes between host and device, in the order of the stream.
#pragma once

#include <cstddef>

#include "core/cuda/stream.h"

namespace hearth::cuda {

/// Queues a copy to the device. Pageable host memory may be reused when the call returns; pinned memory only after the
/// stream has passed the copy.
void copy_in(Stream& stream, void* device, const void* host, std::size_t bytes);
/// Copies to the host and waits for it.
void copy_out_and_wait(Stream& stream, void* host, const void* device, std::size_t bytes);
/// Queues a copy within the device.
void copy_within(Stream& stream, void* to, const void* from, std::size_t bytes);
/// Queues a fill with one byte value.
void fill_bytes(Stream& stream, void* device, unsigned char value, std::size_t bytes);

}  // namespace hearth::cuda
