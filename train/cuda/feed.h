// SPDX-License-Identifier: Apache-2.0
// Brings what a step reads to fixed places on the device, by a stream of its own and from pinned memory, while the step
// before it still computes. Two sets of everything take turns.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/cuda/stream.h"
#include "core/tensor.h"

namespace hearth::cuda {

class Feed {
 public:
  /// `targets`: contiguous tensors on one CUDA device, which what is fed ends up in.
  explicit Feed(std::vector<Tensor> targets);
  ~Feed();
  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;

  /// Queues the way of one set: `parts` (contiguous, on the CPU, of the targets' shapes and types; free to be changed
  /// when the call returns) over the feed's stream to the device and, once the computing stream has passed what it does
  /// now, into the targets. Waits only if the set before the last has not been used yet.
  void send(std::span<const Tensor> parts);

 private:
  struct Set;
  std::vector<Tensor> targets_;
  CUstream_st* copying_ = nullptr;
  std::unique_ptr<Set[]> sets_;
  std::size_t next_ = 0;
};

}  // namespace hearth::cuda
