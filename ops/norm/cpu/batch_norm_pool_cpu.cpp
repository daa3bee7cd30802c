// SPDX-License-Identifier: Apache-2.0
// Some rows of an image at a time are normalised and pooled, and what the norm makes stays in the L2. The gradient's
// two passes make what the windows give back in the same way, each for itself. Where the ReLU was open is found from x,
// so that `taps` has the positions of shut ones too.
// Reference: batch_norm_cpu.cpp and max_pool_cpu.cpp, the values of which these are.
#include "ops/norm/batch_norm_pool.h"

#include <algorithm>

#include "core/cpu/parallel.h"
#include "ops/norm/cpu/batch_norm_cpu.h"
#include "ops/pool/max_pool_rows.h"

namespace hearth::kernels {
namespace {

constexpr std::int64_t piece_bytes = 128 * 1024;  // of rows that are normalised at a time

/// The rows of images in pieces.
struct Pieces {
  std::int64_t rows;  ///< of an image
  std::int64_t size, of_image, count;

  /// Of rows that so many bytes of the norm's result belong to.
  Pieces(std::int64_t images, std::int64_t rows_of_image, std::int64_t row_bytes)
      : rows(rows_of_image),
        size(std::max<std::int64_t>(piece_bytes / row_bytes / 2 * 2, 2)),
        of_image((rows + size - 1) / size),
        count(images * of_image) {}

  std::int64_t image(std::int64_t i) const { return i / of_image; }
  pool::Range range(std::int64_t i) const {
    const std::int64_t first = i % of_image * size;
    return {first, std::min(first + size, rows)};
  }
};

/// The gradient of the norm's result that the windows give back, in pieces: f(i, offset, rows, dy) for each, where
/// `offset` is that of the piece's first element in x.
template <class T>
class GradientPieces {
 public:
  GradientPieces(const PoolShape& shape, const Tensor& taps, const Tensor& dy)
      : shape_(shape),
        pieces_(shape.n, shape.h, shape.w * shape.c * static_cast<std::int64_t>(sizeof(T))),
        taps_(taps.data<std::uint8_t>()),
        dy_(dy.data<T>()),
        columns_(scratch_.take<pool::Range>(shape.w)) {
    pool::fill_columns(shape, columns_);
  }

  std::int64_t count() const { return pieces_.count; }

  template <class F>
  void run(std::int64_t i, const F& f) const {
    const std::int64_t image = pieces_.image(i), row_size = shape_.w * shape_.c;
    const std::int64_t of_result = image * shape_.p * shape_.q * shape_.c;
    const pool::Range rows = pieces_.range(i);
    cpu::Scratch own;
    T* const made = own.take<T>((rows.last - rows.first) * row_size);
    pool::max_grad_rows(shape_, rows, columns_, taps_ + of_result, dy_ + of_result, made);
    f((image * shape_.h + rows.first) * row_size, NormRows{(rows.last - rows.first) * shape_.w, shape_.c}, made);
  }

 private:
  const PoolShape& shape_;
  Pieces pieces_;
  const std::uint8_t* taps_;
  const T* dy_;
  cpu::Scratch scratch_;
  pool::Range* columns_;
};

}  // namespace

void batch_norm_pool(cpu::Stream&, const PoolShape& s, const Tensor& x, const Tensor& coefficients, const Tensor& y,
                     const Tensor& taps) {
  visit_dtype("batch_norm_pool", x.dtype(), Floats{}, [&]<class T>() {
    cpu::Scratch scratch;
    const auto* const table = NormRows::table<T>(coefficients, scratch);
    const T* const from = x.data<T>();
    T* const into = y.data<T>();
    std::uint8_t* const kept = taps.defined() ? taps.data<std::uint8_t>() : nullptr;
    const std::int64_t row_size = s.w * s.c, result_size = s.q * s.c;
    const Pieces pieces(s.n, s.p, s.stride_h * row_size * static_cast<std::int64_t>(sizeof(T)));
    cpu::parallel_chunks(pieces.count, [&](std::int64_t i) {
      const std::int64_t image = pieces.image(i);
      const pool::Range results = pieces.range(i);
      // The pixels that the piece's windows hold are an image of their own.
      const std::int64_t top = results.first * s.stride_h - s.pad_h, first = std::max<std::int64_t>(top, 0);
      const std::int64_t last = std::min(s.h, (results.last - 1) * s.stride_h - s.pad_h + s.kernel_h);
      PoolShape piece = s;
      piece.h = last - first, piece.pad_h = first - top;
      cpu::Scratch own;
      T* const made = own.take<T>(piece.h * row_size);
      NormRows{piece.h * s.w, s.c}.apply(from + (image * s.h + first) * row_size, table, made);
      for (std::int64_t p = results.first; p < results.last; ++p) {
        const std::int64_t at = (image * s.p + p) * result_size;
        pool::max_positive_row(piece, p - results.first, made, into + at, kept == nullptr ? nullptr : kept + at);
      }
    });
  });
}

void batch_norm_pool_grad_sums(cpu::Stream&, const PoolShape& s, const Tensor& x, const Tensor& coefficients,
                               const Tensor& taps, const Tensor& dy, const Tensor& rstd, const Tensor& d_gamma,
                               const Tensor& d_beta, const Tensor& corrections) {
  cpu::Scratch scratch;
  double* const sums = scratch.take<double>(2 * s.c);
  visit_dtype("batch_norm_pool", x.dtype(), Floats{}, [&]<class T>() {
    const GradientPieces<T> pieces(s, taps, dy);
    cpu::Scratch own;
    const auto* const table = NormRows::table<T>(coefficients, own);
    double* const parts = own.take<double>(pieces.count() * 2 * s.c);
    const T* const values = x.data<T>();
    cpu::parallel_chunks_backwards(pieces.count(), [&](std::int64_t i) {
      pieces.run(i, [&](std::int64_t offset, const NormRows& rows, const T* given) {
        rows.gradient_sums(values + offset, given, table, parts + i * 2 * s.c);
      });
    });
    add_parts(parts, pieces.count(), s.c, sums);
  });
  write_gradient_sums(sums, sums + s.c, static_cast<double>(x.size() / s.c), coefficients, rstd, d_gamma, d_beta,
                      corrections);
}

void batch_norm_pool_grad(cpu::Stream&, const PoolShape& s, const Tensor& x, const Tensor& coefficients,
                          const Tensor& taps, const Tensor& dy, const Tensor& corrections, const Tensor& dx) {
  visit_dtype("batch_norm_pool", x.dtype(), Floats{}, [&]<class T>() {
    const GradientPieces<T> pieces(s, taps, dy);
    cpu::Scratch own;
    const auto* const table = NormRows::table<T>(coefficients, own);
    const auto* const correction = NormRows::table<T>(corrections, own);
    const T* const values = x.data<T>();
    T* const into = dx.data<T>();
    const bool streamed = dx.bytes() != x.bytes() && is_streamed(dx, s.c * static_cast<std::int64_t>(sizeof(T)));
    cpu::parallel_chunks(pieces.count(), [&](std::int64_t i) {
      pieces.run(i, [&](std::int64_t offset, const NormRows& rows, const T* given) {
        rows.gradient(values + offset, given, table, correction, streamed, into + offset);
      });
    });
  });
}

}  // namespace hearth::kernels
