// SPDX-License-Identifier: Apache-2.0
// Brings batches to the device, by a stream of its own and from pinned memory, while the work before them still
// computes. Two sets of everything take turns. Without pinned memory batches go by the computing stream.
#pragma once

#include <memory>
#include <span>

#include "core/cuda/stream.h"
#include "core/memory/memory.h"
#include "core/tensor.h"
#include "train/session.h"

namespace hearth::cuda {

class Feed {
 public:
  /// For a CUDA device (DeviceError otherwise).
  explicit Feed(Device device, bool pinned = true);
  ~Feed();
  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;

  /// Queues the way of one set: `parts` (contiguous, on the CPU; free to be changed when the call returns) over the
  /// feed's stream to the device and, once the computing stream has passed what it does now, into `targets`
  /// (contiguous, on the device, of the parts' shapes and types). Waits for the device only where the set before the
  /// last one is still on its way, and where a set is larger than any before. Without pinned memory each copy waits
  /// until the driver has taken the part.
  void send(std::span<const Tensor> parts, std::span<const Tensor> targets);

 private:
  struct Set;
  void grow(Set& set, std::size_t bytes);

  void send_pageable(std::span<const Tensor> parts, std::span<const Tensor> targets);

  Device device_;
  bool pinned_;
  MemoryResource& memory_;  // the device's when this was made, so that no arena's is taken later
  CUstream_st* copying_ = nullptr;
  std::unique_ptr<Set[]> sets_;
  std::size_t next_ = 0;
};

}  // namespace hearth::cuda

namespace hearth::train {

/// The session's feed.
cuda::Feed& feed_of(Session& session);
/// A batch that arrives by it; see step.h.
data::Batch on_device(cuda::Stream& stream, Session& session, const data::Batch& batch);

}  // namespace hearth::train
