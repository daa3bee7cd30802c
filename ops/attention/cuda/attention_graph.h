// SPDX-License-Identifier: Apache-2.0
// Attention as graphs of cuDNN. For sources of the CUDA backend only; empty where the library's header is absent.
#pragma once

#include "ops/attention/cuda/attention_cudnn.h"
#include "ops/cudnn/graph.h"

#if __has_include(<cudnn.h>)

namespace hearth::cuda::dnn {

/// Attention, and its gradient.
Graph graph_of(const Attention& problem);
Graph graph_of(const AttentionGrad& problem);

}  // namespace hearth::cuda::dnn

#endif
