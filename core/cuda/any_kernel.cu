// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/kernel.h"

namespace hearth::cuda {
namespace {

__global__ void nothing() {}

}  // namespace

const void* any_kernel() { return reinterpret_cast<const void*>(nothing); }

}  // namespace hearth::cuda
