// SPDX-License-Identifier: Apache-2.0
// What this build contains, as CMake found it. Sources that are read without being configured see a build of nothing
// optional.
#pragma once

// A build that CMake configured must find it.
#if defined(HEARTH_CONFIGURED) || __has_include("hearth_build.h")
#include "hearth_build.h"
#else
#define HEARTH_HAS_DNNL 0
#define HEARTH_HAS_JPEG 0
#define HEARTH_HAS_PNG 0
#define HEARTH_HAS_ZLIB 0
#define HEARTH_HAS_CUDA 0

namespace hearth::build {
inline constexpr const char* version = "";
inline constexpr const char* compiler = "";
inline constexpr const char* type = "";
}  // namespace hearth::build
#endif
