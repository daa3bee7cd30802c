// SPDX-License-Identifier: Apache-2.0
// The one list of pointwise functions of one tensor and up to two numbers. A row makes both kernels and the op; the
// arithmetic is the functor of the same name in parametric_functors.h, and the public function, which checks the
// numbers, is written in pointwise.h and pointwise.cpp.
#pragma once

// clang-format off
#define HEARTH_PARAMETRIC(row) \
  row(leaky_relu) /* x, or a x below 0; slope a at 0 */              \
  row(elu)        /* x, or a (e^x - 1) below 0; slope a at 0 */      \
  row(softplus)   /* log(1 + e^(a x)) / a */                         \
  row(clamp)      /* x within [a, b]; slope 1 at both ends */
// clang-format on
