// SPDX-License-Identifier: Apache-2.0
// Convolution with 3x3 filters by Winograd's F(4x4, 3x3): tiles of 4x4 results are made of 36 products where the
// definition has 144; or by F(7x7, 3x3), 81 where it has 441. Sums are f32.
#pragma once

#include <cstdint>
#include <string>

#include "ops/conv/problem.h"

namespace hearth::kernels::winograd {

/// Results a side of a tile.
constexpr int narrow_tile = 4, wide_tile = 7;
/// Those that take less time; images of f32 take narrow ones, as wide ones round ten times as much, which is a
/// hundredth of what bf16 does.
int tile_of(const ConvShape& shape, Pass pass, DType images);

/// y [n, p, q, k] = x [n, h, w, c] by w [k, 3, 3, c], plus b [k] unless null, through a ReLU if wanted. Stride and
/// dilation 1, one group, any padding. The same bits for any thread pool. T is f32 or bf16 and W that or f32; beside
/// bf16 w is rounded to it. What is between is f32 and rounded once.
template <class T, class W>
void forward(int tile, const ConvShape& shape, const T* x, const W* w, const float* b, bool relu, T* y);
/// dx of dy and w, or added to it.
template <class T, class W>
void backward_data(int tile, const ConvShape& shape, const T* dy, const W* w, bool accumulate, T* dx);
/// dw of x and dy.
template <class T, class W>
void backward_weights(int tile, const ConvShape& shape, const T* x, const T* dy, W* dw);

/// What the direct convolutions multiply.
enum class Rival : std::uint8_t {
  f32,   ///< or what is upcast to it: the library's products, its filter gradients at three quarters of their speed
  bf16,  ///< pairs by AVX-512, nearly twice as fast; native kernels skip taps outside
};
/// Why convolving directly is faster, or empty: by the f32 multiplications and additions done in the time of each part,
/// as measured on AMD EPYC, beside f32 on Zen 1 and beside bf16 on Zen 5.
std::string why_slower(const ConvShape& shape, Pass pass, DType images, Rival rival);

}  // namespace hearth::kernels::winograd
