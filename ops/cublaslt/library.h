// SPDX-License-Identifier: Apache-2.0
// cuBLASLt as a library that is opened when first asked for.
#pragma once

#include <string>

#include "core/cuda/library.h"

namespace hearth::cuda::blas {

/// The library's version and file, also where no device can run it.
LibraryInfo about();
/// Why nothing can be done by it here, with the remedy; empty if it is there.
std::string why_absent();

}  // namespace hearth::cuda::blas
