// SPDX-License-Identifier: Apache-2.0
// Convolution and matrix product by the deep-learning library found at build time (oneDNN), on raw pointers.
// Activations are NHWC and filters [K,R,S,C/groups] in plain contiguous memory: the library's blocked layouts stay
// inside. Plans are made once per problem and thread count and kept; calls reuse one scratch stack a thread
// (core/cpu/scratch.h). Without the library every function exists, available() is false and every `declines` says so.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ops/conv/problem.h"

namespace hearth::cpu::dnn {

/// Whether this build contains the library. If not, all `declines` give a reason and the calls throw.
bool available();
/// In a build without the library the reason and the remedy; else empty.
std::string why_absent();
/// Name, version and instruction set of the library, as in "oneDNN 2.6.3 (avx512_core_bf16)", or "none".
std::string library();
/// Whether the processor multiplies bf16 in hardware, so that bf16 is faster than f32 here.
bool has_hardware_bf16();

/// Empty if the library does this pass well; else the reason why not (absent, a type or size it does not take,
/// only its slow reference code fits). Makes and keeps the plan; OutOfMemory where that finds no memory;
/// ShapeError for sizes that contradict each other. Bias makes no difference to the answer.
std::string declines(const ConvProblem& problem, Pass pass);
/// The library's own name of the code chosen, as in "brgconv:avx512_core_bf16"; empty where it declines.
std::string implementation(const ConvProblem& problem, Pass pass);

// The three passes. All pointers are to contiguous memory of the problem's types and aligned to the element.
// Bf16 activations with f32 weights: w is rounded to bf16 for the arithmetic, dw keeps the f32 sums. All sums are f32.
// Outputs are overwritten and must not overlap inputs. UsageError where `declines` gives a reason.

/// y = conv(x, w) + b. `b` holds k f32 values or is null.
void conv2d_forward(const ConvProblem& problem, const void* x, const void* w, const float* b, void* y);
/// dx from dy and w.
void conv2d_backward_data(const ConvProblem& problem, const void* dy, const void* w, void* dx);
/// dw from x and dy; also db, the sum of dy over n, p and q as k f32 values, unless null.
void conv2d_backward_weights(const ConvProblem& problem, const void* x, const void* dy, void* dw, float* db);

/// What a plan made so far is, for `hearth doctor`, the profile and tests.
struct PlanInfo {
  std::string problem;         ///< "conv2d backward_weights n32 64x64x3 k64 3x3 ..."
  std::string implementation;  ///< the library's name of its code
  bool reference = false;      ///< slow reference code, so that the problem is declined
  std::size_t scratch_bytes = 0;
};
/// All plans made so far, in the order of their problems.
std::vector<PlanInfo> plans();
/// Forgets all plans and frees the calling thread's scratch memory. Not while another thread computes.
void clear();

}  // namespace hearth::cpu::dnn
