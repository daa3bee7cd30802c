// SPDX-License-Identifier: Apache-2.0
// How the CPU kernels of the norms over rows cut a gradient into pieces, by the shape only, and join the parameters'
// gradients.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "core/cpu/parallel.h"
#include "core/tensor.h"
#include "ops/scratch.h"

namespace hearth::kernels {

/// piece(first row, rows, sums) for at most 64 pieces of about 16 thousand elements or more; each fills its sums
/// [gradients, cols] in f64 with its share of the gradients of the parameters, [cols] each, which may be absent.
template <class Piece>
void norm_grad_pieces(std::int64_t rows, std::int64_t cols, std::initializer_list<Tensor> gradients,
                      const Piece& piece) {
  if (cols == 0) return;
  const std::int64_t grain = std::max({(rows + 63) / 64, (1 << 14) / cols, std::int64_t{1}});
  const std::int64_t pieces = (rows + grain - 1) / grain;
  const std::int64_t sums = static_cast<std::int64_t>(gradients.size()) * cols;
  cpu::Scratch scratch;
  double* const partial = scratch.take<double>(pieces * sums);
  cpu::parallel_chunks(pieces, [&](std::int64_t i) {
    const std::int64_t begin = i * grain;
    piece(begin, std::min(grain, rows - begin), partial + i * sums);
  });
  double* total = scratch.take<double>(sums);
  std::fill_n(total, sums, 0.0);
  for (std::int64_t i = 0; i < pieces; ++i)
    for (std::int64_t c = 0; c < sums; ++c) total[c] += partial[i * sums + c];
  for (const Tensor& gradient : gradients) {
    if (gradient.defined())
      visit_dtype("norm", gradient.dtype(), FullFloats{}, [&]<class P>() {
        for (std::int64_t c = 0; c < cols; ++c) gradient.data<P>()[c] = static_cast<P>(total[c]);
      });
    total += cols;
  }
}

}  // namespace hearth::kernels
