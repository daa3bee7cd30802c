// SPDX-License-Identifier: Apache-2.0
// Batch normalisation as graphs of cuDNN. For sources of the CUDA backend only; empty where the library's header is
// absent.
#pragma once

#include "ops/cudnn/graph.h"
#include "ops/norm/batch_norm_cudnn.h"

#if __has_include(<cudnn.h>)

namespace hearth::cuda::dnn {

/// A batch normalisation in training, and its gradient.
Graph graph_of(const BatchNorm& problem);
Graph graph_of(const BatchNormGrad& problem);

}  // namespace hearth::cuda::dnn

#endif
