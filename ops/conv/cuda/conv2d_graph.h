// SPDX-License-Identifier: Apache-2.0
// Convolutions in cuDNN's graphs. For sources of the CUDA backend only; empty where the library's header is absent.
#pragma once

#include "ops/conv/problem.h"
#include "ops/cudnn/graph.h"

#if __has_include(<cudnn.h>)

namespace hearth::cuda::dnn {

/// The options of a convolution, summed in f32.
Descriptor convolution(const ConvShape& shape);
/// One pass of it, not yet finalized, whose result is added to what is there if it accumulates. x, w and y are tensors
/// of the graph.
Descriptor convolution_pass(Pass pass, const Descriptor& options, const Descriptor& x, const Descriptor& w,
                            const Descriptor& y, bool accumulate = false);

}  // namespace hearth::cuda::dnn

#endif
