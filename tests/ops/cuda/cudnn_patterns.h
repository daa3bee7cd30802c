// SPDX-License-Identifier: Apache-2.0
// Graphs of operations that cuDNN can be asked about beyond those that Hearth runs: what fusing them
// would bring is known by a test before it is written.
#pragma once

#include <array>

#include "ops/attention/cuda/attention_cudnn.h"
#include "ops/conv/cuda/conv2d_graph.h"

#if __has_include(<cudnn.h>)

namespace hearth::cuda::dnn {

/// A graph whose tensors are never given memory, so that their numbers do not matter.
class Asked : public Graph {
 public:
  std::int64_t next_id() { return ++last_id_; }
  const Descriptor& with(cudnnDataType_t type, const std::array<std::int64_t, 4>& extents,
                         const std::array<std::int64_t, 4>& strides) {
    return keep(tensor(next_id(), type, extents, strides));
  }

 private:
  std::int64_t last_id_ = 0;
};

/// What the library would take first for a graph, whose plan is not made: an engine that is compiled when it is used
/// needs a driver, or the toolkit's stub of it, only to be named.
Probe first_suggestion(const Target& target, const Graph& graph);
/// What becomes of its plan if it is made all the same, without a device.
cudnnStatus_t compile_first(const Target& target, const Graph& graph);

/// y = conv(x, w) and the sums of y and of y squared by channel.
Probe conv_statistics(const Target& target, const ConvProblem& problem);
/// y = conv(relu(x scale + bias), w) with scale and bias of the images' type, and the sums of y and of y squared: a
/// normalisation folded into the convolution after it.
Probe normalized_conv_statistics(const Target& target, const ConvProblem& problem);
/// The gradient of its w, which reads the same operand.
Probe normalized_conv_weights(const Target& target, const ConvProblem& problem);

/// Attention as the single operation of the library's header: y from q, k and v, with the logarithm of each row's sum.
/// Engines for it are compiled when they are used, so that a driver, or the toolkit's stub of it, must be loaded; what
/// is asked is whether there is one. Its workspace is not known before it is compiled.
Probe attention_forward(const Target& target, const Attention& problem);
/// The gradients lie like q, k and v.
Probe attention_backward(const Target& target, const Attention& problem);

}  // namespace hearth::cuda::dnn

#endif
