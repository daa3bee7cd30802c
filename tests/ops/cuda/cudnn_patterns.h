// SPDX-License-Identifier: Apache-2.0
// Graphs of operations that cuDNN can be asked about beyond those that Hearth runs: what fusing them
// would bring is known by a test before it is written.
#pragma once

#include "hearth/core/cuda/dnn_graph.h"

#if __has_include(<cudnn.h>)

namespace hearth::cuda::dnn {

/// Attention of `heads` over sequences, without a mask or dropout. q, k and v lie in one tensor
/// [batch, tokens, 3, heads, channels], as a projection writes them.
struct Attention {
  std::int64_t batch, tokens, heads, channels;
  DType dtype;
};
/// o from q, k and v, with the logarithm of each row's sum. Engines for it are compiled when they are used, so that a
/// driver, or the toolkit's stub of it, must be loaded; what is asked is whether there is one. Its workspace is not
/// known before it is compiled.
Probe attention_forward(const Target& target, const Attention& problem);
Probe attention_backward(const Target& target, const Attention& problem);

}  // namespace hearth::cuda::dnn

#endif
