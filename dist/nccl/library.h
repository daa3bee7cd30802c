// SPDX-License-Identifier: Apache-2.0
// NCCL as a library that is opened when first asked for.
#pragma once

#include <string>

#include "core/cuda/library.h"

namespace hearth::dist::nccl {

/// The library's version and file, also where no device can run it.
cuda::LibraryInfo about();
/// Why nothing can be done by it here, with the remedy; empty if it is there.
std::string why_absent();

}  // namespace hearth::dist::nccl
