// SPDX-License-Identifier: Apache-2.0
// Matrix products by cuBLASLt, opened when first asked for. Plans are made once per problem and alignment and kept.
#pragma once

#include <string>

#include "hearth/core/cpu/dnn.h"
#include "hearth/core/cuda/library.h"
#include "hearth/core/cuda/stream.h"

namespace hearth::cuda::blas {

/// The problem as the CPU's library takes it; leading dimensions and batch strides as there.
using Matmul = cpu::dnn::Matmul;

/// The library's version and file, also where no device can run it.
LibraryInfo about();
/// Why no product can be done by it here, with the remedy; empty if it is there.
std::string why_absent();
/// Empty if cuBLASLt does this product on this device; else the reason why not. The first question for a problem asks
/// the library's heuristics, which must not happen while a graph is captured.
std::string declines(Device device, const Matmul& problem);
/// C = op(A) op(B) [+ bias] [+ C], row-major. a and b of one type, c of theirs or f32; f32 is multiplied as f32, not
/// TF32, and 16-bit types are summed in f32. `bias` holds n values of c's type, added by the same kernel, or is null.
/// UsageError where `declines` gives a reason; DeviceError if the library is absent, or with its own words.
void matmul(Stream& stream, const Matmul& problem, const void* a, const void* b, const void* bias, void* c);

}  // namespace hearth::cuda::blas
