// SPDX-License-Identifier: Apache-2.0
// Convolutions by cuDNN 9, opened when first asked for, through its backend API
// (docs/decisions/0012-cudnn-backend-api.md). Images are NHWC, filters [K,R,S,C/groups], both plain. Plans are made
// once per problem, chosen by timing (ops/dispatch/plan_choice.h) and kept. Only engines whose results are repeatable
// are taken where the problem says so, and for f32 only those that multiply f32 as f32, unless TF32 is allowed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/cuda/stream.h"
#include "ops/conv/problem.h"
#include "ops/cudnn/library.h"

namespace hearth::cuda::dnn {

/// The memory of a pass, aligned to 16: forward writes y, backward_data writes x, or adds to it, from w and y (dy),
/// backward_weights writes w from x and y. x, w, y and bias are of the activations' type; 16-bit types are summed in
/// f32 and rounded once.
struct ConvOperands {
  void *x, *w, *y;
  void* bias = nullptr;  ///< [k]
};

/// Empty if cuDNN does this pass on its device, with the bias and the ReLU that a forward pass may have, in one plan;
/// else the reason why not. The first question for a problem makes its plan, which is refused (DeviceError) while a
/// step is recorded.
std::string unsupported(const ConvProblem& problem);
/// One pass. UsageError where `unsupported` gives a reason; DeviceError if the library is absent, or with its own
/// words.
void conv2d(Stream& stream, const ConvProblem& problem, const ConvOperands& operands);
/// The same, or false, with nothing done, where `unsupported` gives a reason.
bool try_conv2d(Stream& stream, const ConvProblem& problem, const ConvOperands& operands);

/// The time of one run of the pass's plan when that was chosen by timing; 0 if it was not, or there is none.
double microseconds(const ConvProblem& problem);
/// Forgets all plans. Not while another thread computes.
void clear_plans();

/// The same question for a device that need not be here, described in the library's JSON form
/// (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION). Engines that the library compiles when they are used are left out, as
/// that needs a driver.
Probe probe(const ConvProblem& problem, const std::string& device_json);

}  // namespace hearth::cuda::dnn
