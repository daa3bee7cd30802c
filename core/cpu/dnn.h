// SPDX-License-Identifier: Apache-2.0
// Convolution and matrix product by the deep-learning library found at build time (oneDNN), on raw pointers.
// Activations are NHWC and filters [K,R,S,C/groups] in plain contiguous memory: the library's blocked layouts stay
// inside. Plans are made once per problem and thread count and kept; calls reuse one scratch stack a thread
// (core/cpu/scratch.h). Without the library every function exists, available() is false and every `declines` says so.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "hearth/core/dtype.h"

namespace hearth::cpu::dnn {

/// Whether this build contains the library. If not, all `declines` give a reason and the calls throw.
bool available();
/// Name, version and instruction set of the library, as in "oneDNN 2.6.3 (avx512_core_bf16)", or "none".
std::string library();
/// Whether the processor multiplies bf16 in hardware, so that bf16 is faster than f32 here.
bool has_hardware_bf16();

/// Sizes of a 2-d convolution. Padding may differ at the far edges: p and q say how far the output goes.
struct Conv2dShape {
  std::int64_t n = 1, h = 1, w = 1, c = 1;  ///< input x [n, h, w, c]
  std::int64_t k = 1, r = 1, s = 1;         ///< filters w [k, r, s, c / groups]
  std::int64_t p = 1, q = 1;                ///< output y [n, p, q, k]
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t pad_h = 0, pad_w = 0;            ///< zeros before the first row and column
  std::int64_t dilation_h = 1, dilation_w = 1;  ///< 1: neighbouring taps are neighbouring pixels
  std::int64_t groups = 1;                      ///< divides c and k; group g uses filters [g k/groups, (g+1) k/groups)

  auto operator<=>(const Conv2dShape&) const = default;
};

/// A convolution problem; the key of its plans.
struct Conv2d {
  Conv2dShape shape;
  DType activations = DType::f32;  ///< of x, y, dx, dy: f32 or bf16
  DType weights = DType::f32;      ///< of w and dw: f32, or bf16 where activations are bf16
  /// Bits independent of the number of threads: work is cut into pieces by shape, each done by a single-threaded
  /// plan, and partial sums are added in a fixed order. Same values otherwise, somewhat slower.
  bool deterministic = false;

  auto operator<=>(const Conv2d&) const = default;
};

enum class Pass : std::uint8_t { forward, backward_data, backward_weights };

/// Empty if the library does this pass well; else the reason why not (absent, a type or size it does not take,
/// only its slow reference code fits). Makes and keeps the plan; OutOfMemory where that finds no memory;
/// ShapeError for sizes that contradict each other. Bias makes no difference to the answer.
std::string declines(const Conv2d& problem, Pass pass);
/// The library's own name of the code chosen, as in "brgconv:avx512_core_bf16"; empty where it declines.
std::string implementation(const Conv2d& problem, Pass pass);

// The three passes. All pointers are to contiguous memory of the problem's types and aligned to the element.
// Bf16 activations with f32 weights: w is rounded to bf16 for the arithmetic, dw keeps the f32 sums. All sums are f32.
// Outputs are overwritten and must not overlap inputs. UsageError where `declines` gives a reason.

/// y = conv(x, w) + b. `b` holds k f32 values or is null.
void conv2d_forward(const Conv2d& problem, const void* x, const void* w, const float* b, void* y);
/// dx from dy and w.
void conv2d_backward_data(const Conv2d& problem, const void* dy, const void* w, void* dx);
/// dw from x and dy; also db, the sum of dy over n, p and q as k f32 values, unless null.
void conv2d_backward_weights(const Conv2d& problem, const void* x, const void* dy, void* dw, float* db);

/// A (batched) matrix product C = op(A) op(B) [+ bias] [+ C], row-major; the key of its plan.
/// op(A) is [m,k]: stored [m,k], or [k,m] when transposed; op(B) is [k,n]: stored [k,n], or [n,k] when transposed.
struct Matmul {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  std::int64_t lda = 0, ldb = 0, ldc = 0;  ///< elements between stored rows; 0 means densely stored
  /// Elements between the matrices of the batch; -1 means densely stored, 0 (a and b only) one matrix for all.
  std::int64_t batch_stride_a = -1, batch_stride_b = -1, batch_stride_c = -1;
  /// f32 with f32 gives f32. If either of a and b is bf16 the other may be f32 and is rounded to bf16 for the
  /// arithmetic; sums are f32 and c is f32 or bf16.
  DType a = DType::f32, b = DType::f32, c = DType::f32;
  bool accumulate = false;     ///< add to what C holds
  bool deterministic = false;  ///< as in Conv2d

  auto operator<=>(const Matmul&) const = default;
};

/// As for Conv2d. Sizes of 0 are taken (k == 0 gives the bias, or nothing when accumulating).
std::string declines(const Matmul& problem);
/// As for Conv2d.
std::string implementation(const Matmul& problem);
/// `bias` holds n f32 values added to every row, or is null. C must not overlap the operands.
/// UsageError where `declines` gives a reason.
void matmul(const Matmul& problem, const void* a, const void* b, const float* bias, void* c);

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
