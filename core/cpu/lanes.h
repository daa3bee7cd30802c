// SPDX-License-Identifier: Apache-2.0
// What core/cpu/lanes.inc needs, to be included before a kernel's source is compiled for each instruction set.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "core/cpu/element.h"
