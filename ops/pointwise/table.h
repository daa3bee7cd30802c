// SPDX-License-Identifier: Apache-2.0
// The one list of pointwise functions of one tensor. A row makes the public function, both kernels and the test; its
// arithmetic is the functor of the same name in functors.h. The second column says where tests draw the input from:
// the name of a Draw function that avoids kinks and undefined places.
#pragma once

// clang-format off
#define HEARTH_POINTWISE(row)                                               \
  row(relu,      away_from_zero) /* max(x, 0); slope 0 at 0 */              \
  row(gelu,      normal)         /* x Phi(x), Phi by erf */                 \
  row(gelu_tanh, normal)         /* x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2 */ \
  row(silu,      normal)         /* x sigmoid(x) */                         \
  row(tanh,      normal)                                                    \
  row(sigmoid,   normal)         /* 1 / (1 + exp(-x)) */                    \
  row(exp,       normal)         /* upcast to f32 under autocast */        \
  row(log,       positive)       /* natural; upcast to f32 under autocast */ \
  row(sqrt,      positive)                                                  \
  row(square,    normal)         /* upcast to f32 under autocast */        \
  row(abs,       away_from_zero) /* slope 0 at 0 */                         \
  row(neg,       normal)                                                    \
  row(rsqrt,     positive)       /* 1 / sqrt(x); upcast to f32 under autocast */ \
  row(sin,       normal)                                                    \
  row(cos,       normal)                                                    \
  row(erf,       normal)         /* 2/sqrt(pi) times the integral of exp(-t^2) from 0 to x */
// clang-format on
