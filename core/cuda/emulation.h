// SPDX-License-Identifier: Apache-2.0
// What sets the emulated GPU apart from a real one. Of one source, so that all others compile to the same for both.
#pragma once

#include "core/build.h"

namespace hearth::cuda {

/// Whether this build has kernels for the emulated GPU. False without the CUDA backend.
#if HEARTH_HAS_CUDA
bool is_emulated();
#else
constexpr bool is_emulated() { return false; }
#endif
/// The architectures that kernels were compiled for, as "sm_80, sm_90".
const char* kernel_architectures();

}  // namespace hearth::cuda
