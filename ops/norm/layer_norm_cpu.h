// SPDX-License-Identifier: Apache-2.0
// How the CPU kernels of layer normalisation cut a gradient into pieces, by the shape only, and join the parameters'
// gradients.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cpu/parallel.h"
#include "core/cpu/scratch.h"
#include "core/tensor.h"

namespace hearth::kernels {

/// piece(first row, rows, sums) for at most 64 pieces of about 16 thousand elements or more; each fills its sums
/// [2, cols] in f64 with its share of d_gamma and d_beta, either of which may be absent.
template <class Piece>
void layer_norm_grad_pieces(std::int64_t rows, std::int64_t cols, const Tensor& d_gamma, const Tensor& d_beta,
                            const Piece& piece) {
  if (cols == 0) return;
  const std::int64_t grain = std::max({(rows + 63) / 64, (1 << 14) / cols, std::int64_t{1}});
  const std::int64_t pieces = (rows + grain - 1) / grain;
  cpu::Scratch scratch;
  double* const partial = scratch.take<double>(pieces * 2 * cols);
  cpu::parallel_chunks(pieces, [&](std::int64_t i) {
    const std::int64_t begin = i * grain;
    piece(begin, std::min(grain, rows - begin), partial + i * 2 * cols);
  });
  double* const total = scratch.take<double>(2 * cols);
  std::fill_n(total, 2 * cols, 0.0);
  for (std::int64_t i = 0; i < pieces; ++i)
    for (std::int64_t c = 0; c < 2 * cols; ++c) total[c] += partial[i * 2 * cols + c];
  const auto put = [&](const Tensor& gradient, const double* from) {
    if (!gradient.defined()) return;
    visit_dtype("layer_norm", gradient.dtype(), WideFloats{}, [&]<class P>() {
      for (std::int64_t c = 0; c < cols; ++c) gradient.data<P>()[c] = static_cast<P>(from[c]);
    });
  };
  put(d_gamma, total);
  put(d_beta, total + cols);
}

}  // namespace hearth::kernels
