// SPDX-License-Identifier: Apache-2.0
#include "train/bench/copy_bench.h"

#include "train/step/cuda/feed.h"

namespace hearth::train {

Timing time_copy(cuda::Stream& stream, const data::Batch& batch, bool pinned) {
  std::vector<Tensor> parts, targets;
  for (const data::Batch::Named& named : batch.tensors()) {
    parts.push_back(named.tensor.contiguous());
    targets.push_back(Tensor::empty(named.tensor.shape(), named.tensor.dtype(), stream.device()));
  }
  cuda::Feed feed(stream.device(), pinned);
  return time_repeated([&] { feed.send(parts, targets); }, stream.device());
}

}  // namespace hearth::train
