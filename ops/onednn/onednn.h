// SPDX-License-Identifier: Apache-2.0
// The deep-learning library found at build time (oneDNN): its presence and its plans. Adapters lie with their ops.
// Plans are made once per problem and thread count and kept; calls reuse one scratch stack a thread
// (ops/scratch.h).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace hearth::cpu::dnn {

/// Whether this build contains the library.
bool available();
/// In a build without the library the reason and the remedy; else empty.
std::string why_absent();
/// Name, version and instruction set of the library, as in "oneDNN 2.6.3 (avx512_core_bf16)", or "none".
std::string library();
/// Whether the processor multiplies bf16 in hardware, so that bf16 is faster than f32 here.
bool has_hardware_bf16();

/// What a plan made so far is, for `hearth doctor`, the profile and tests.
struct PlanInfo {
  std::string problem;         ///< "conv2d backward_weights n32 64x64x3 k64 3x3 ..."
  std::string implementation;  ///< the library's name of its code
  bool reference = false;      ///< slow reference code: treated as unsupported
  std::size_t scratch_bytes = 0;
};
/// All plans made so far, in the order of their problems.
std::vector<PlanInfo> plans();
/// Forgets all plans and frees the calling thread's scratch memory. Not while another thread computes.
void clear();

}  // namespace hearth::cpu::dnn
