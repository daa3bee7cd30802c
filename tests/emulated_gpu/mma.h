// SPDX-License-Identifier: Apache-2.0
// The emulated twins of the instructions in ops/device/mma.h.
#pragma once

#include "tests/emulated_gpu/engine.h"

namespace hearth::cuda::emulate {

void mma_m16n8k16(float* d, const unsigned* a, const unsigned* b, bool is_bf16, const Place& at = Place::current());

/// InternalError if a row that is asked for is not aligned, or not shared memory.
void ldmatrix(unsigned* to, int count, const void* row, bool transposed, const Place& at = Place::current());

/// A copy lands at the wait that covers it; until then its bytes in shared memory are NaN, and to touch them is a race.
void cp_async(void* shared, const void* global, bool valid, const Place& at = Place::current());
void cp_async_commit();
void cp_async_wait(int pending);

}  // namespace hearth::cuda::emulate
