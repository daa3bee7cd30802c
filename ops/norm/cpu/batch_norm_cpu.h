// SPDX-License-Identifier: Apache-2.0
// What the CPU kernels of batch_norm share: how they cut x into pieces of work, by its shape only, and the sums over
// its rows.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/norm/batch_norm.h"
#include "ops/norm/folded_rows.h"
#include "ops/scratch.h"

namespace hearth::kernels {

/// How far on the next lines are asked for. The processor alone asks for too few, of sums because it follows too few of
/// the rows that are read at a time, of the others because it looks ahead of too few instructions.
constexpr std::int64_t bytes_ahead = 4096;

struct BatchNormPieces : FoldedRows {
  std::int64_t block_rows;  ///< whose sums are kept in the low-precision type
  std::int64_t chunk_rows;  ///< of one piece of parallel work of a sum
  std::int64_t grain;       ///< rows of one piece of parallel work of an elementwise pass
  std::int64_t row_bytes;

  explicit BatchNormPieces(const Tensor& x) : FoldedRows(x) {
    constexpr std::int64_t chunk_bytes = 128 * 1024, max_chunks = 64;
    row_bytes = std::max<std::int64_t>(1, lanes * static_cast<std::int64_t>(size_of(x.dtype())));
    block_rows = block_of(row_bytes);
    const std::int64_t chunks = std::clamp(rows * row_bytes / chunk_bytes, std::int64_t{1}, max_chunks);
    const std::int64_t blocks = count_of(rows, block_rows);
    chunk_rows = std::max<std::int64_t>(1, count_of(blocks, chunks)) * block_rows;
    grain = std::max<std::int64_t>(1, chunk_bytes / row_bytes);
  }

  static std::int64_t block_of(std::int64_t row_bytes) {
    constexpr std::int64_t block_bytes = 32 * 1024, fewest = 32;  // over which the sums in f64 are spread
    return std::max(fewest, block_bytes / row_bytes / 8 * 8);
  }
  static std::int64_t count_of(std::int64_t all, std::int64_t piece) { return (all + piece - 1) / piece; }
  std::int64_t chunks() const { return count_of(rows, chunk_rows); }

  /// A [count, channels] table with every row repeated `fold` times.
  template <class P>
  const P* folded(cpu::Scratch& scratch, const Tensor& table) const {
    const std::int64_t count = table.dim(0);
    P* const result = scratch.take<P>(count * lanes);
    const P* const source = table.data<P>();
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t f = 0; f < fold; ++f)
        std::copy_n(source + i * channels, channels, result + (i * fold + f) * channels);
    return result;
  }
};

/// f.operator()<gate>(), for a gate known at run time.
template <class F>
void with_gate(ReluGate gate, const F& f) {
  switch (gate) {
    case ReluGate::none:
      return f.template operator()<ReluGate::none>();
    case ReluGate::from_input:
      return f.template operator()<ReluGate::from_input>();
    case ReluGate::from_mask:
      return f.template operator()<ReluGate::from_mask>();
  }
}

/// Mean and biased variance of every channel, C values each.
void channel_statistics(const Tensor& x, double* mean, double* variance);

/// The sums per channel of g and of g (x - mean), C values each, where g is dy behind the ReLU.
void channel_gradient_sums(const BatchNormSaved& saved, const Tensor& dy, double* sum, double* product);
/// batch_norm_grad_sums() from these sums, over so many values a channel.
void write_gradient_sums(const double* sums, const double* products, double values, const Tensor& coefficients,
                         const Tensor& rstd, const Tensor& d_gamma, const Tensor& d_beta, const Tensor& corrections);

/// Some rows of a norm with a ReLU and without residual, [rows, channels], on the calling thread.
struct NormRows {
  std::int64_t rows, channels;

  /// A table [n, C] as the functions below take it.
  template <class T>
  static const acc_t<T>* table(const Tensor& values, cpu::Scratch& scratch);
  /// y = relu(norm(x)).
  template <class T>
  void apply(const T* x, const acc_t<T>* coefficients, T* y) const;
  /// sums [2, C]: those of g and of g (x - mean).
  template <class T>
  void gradient_sums(const T* x, const T* dy, const acc_t<T>* coefficients, double* sums) const;
  /// dx of dy, past the caches if `streamed`.
  template <class T>
  void gradient(const T* x, const T* dy, const acc_t<T>* coefficients, const acc_t<T>* corrections, bool streamed,
                T* dx) const;
};
/// sum [2, C] = that of the parts [count, 2, C].
void add_parts(const double* parts, std::int64_t count, std::int64_t channels, double* sum);
/// Whether the rows of a result of so many bytes each are to be written past the caches: it leaves them before it is
/// read again, and that spares reading the lines first.
bool is_streamed(const Tensor& result, std::int64_t row_bytes);

}  // namespace hearth::kernels
