// SPDX-License-Identifier: Apache-2.0
// What the CPU kernels of the norms over rows share: layer_norm of rows that lie one behind another, and how a gradient
// is cut into pieces, by the shape only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "core/cpu/parallel.h"
#include "core/tensor.h"
#include "ops/scratch.h"

namespace hearth::kernels {

/// Rows that a thread takes at least.
inline std::int64_t norm_grain(std::int64_t cols) { return std::max<std::int64_t>(1, (1 << 14) / cols); }

/// Rows of T that are gathered in the nearest cache: as many as are normalised side by side, or fit.
template <class T>
std::int64_t rows_in_cache(std::int64_t cols) {
  return std::clamp<std::int64_t>((1 << 14) / static_cast<std::int64_t>(sizeof(T)) / cols, 1, 16);
}

/// y, means and rstds of layer_norm() for rows [rows, cols].
template <class T, class D>
void layer_norm_rows(const T* x, const acc_t<T>* gamma, const acc_t<T>* beta, double eps, D* y, acc_t<T>* means,
                     acc_t<T>* rstds, std::int64_t rows, std::int64_t cols);

/// Sums of the gradients of gamma and beta over the rows of a piece: of 64 rows in P, which then join those in f64.
template <class P>
struct NormParameterSums {
  P* narrow;     ///< [2, cols]
  double* sums;  ///< [2, cols]
  std::int64_t cols;
  std::int64_t rows = 0;  ///< that were added

  NormParameterSums(cpu::Scratch& scratch, double* into, std::int64_t columns)
      : narrow(scratch.take<P>(2 * columns)), sums(into), cols(columns) {
    std::fill_n(narrow, 2 * cols, P(0));
    std::fill_n(sums, 2 * cols, 0.0);
  }
};

/// The gradient of layer_norm_rows(), plus `others` [rows, cols] unless null, into dx, which may be x, dy or `others`.
/// Adds to the parameters' sums; with `last`, these are complete afterwards.
template <class T, class D>
void layer_norm_grad_rows(const T* x, const D* dy, const acc_t<T>* gamma, const acc_t<T>* means, const acc_t<T>* rstds,
                          const T* others, T* dx, NormParameterSums<acc_t<T> >& parameters, std::int64_t rows,
                          bool last);

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
