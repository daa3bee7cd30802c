// SPDX-License-Identifier: Apache-2.0
// cuDNN 9, opened when first asked for (docs/decisions/0012-cudnn-backend-api.md): its presence, and what it would do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/cuda/library.h"

namespace hearth::cuda::dnn {

/// The library's version and file, also where no device can run it.
LibraryInfo about();
/// Why nothing can be done by it here, with the remedy; empty if it is there.
std::string why_absent();

/// What the library would do on a device.
struct Probe {
  std::string unsupported;    ///< empty if there is a plan
  std::int64_t engine = -1;   ///< the library's number of the engine
  std::size_t workspace = 0;  ///< bytes
  double microseconds = 0;    ///< of one run, where the plan was chosen by timing; else 0
};

}  // namespace hearth::cuda::dnn
