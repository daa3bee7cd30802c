// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/cpu/matmul_gemm.h"

#include <algorithm>

#include "core/cpu/parallel.h"
#include "core/error.h"
#include "core/shape.h"
#include "ops/matmul/cpu/gemm.h"
#include "ops/onednn/convert.h"
#include "ops/scratch.h"

namespace hearth::cpu {
namespace {

template <class T>
void multiply(const MatmulProblem& p, const T* a, const T* b, T* c) {
  const auto one = [&](std::int64_t i) {
    gemm<T>(p.transpose_a, p.transpose_b, p.m, p.n, p.k, a + i * p.batch_stride_a, p.lda, b + i * p.batch_stride_b,
            p.ldb, p.accumulate, c + i * p.batch_stride_c, p.ldc);
  };
  // Many small products are spread over the thread pool; a few large ones are each done by the whole thread pool.
  if (p.batch >= 4 && p.m * p.n <= 512 * 512)
    parallel_chunks(p.batch, one);
  else
    for (std::int64_t i = 0; i < p.batch; ++i) one(i);
}

/// f(row of C, how many elements before it) for all rows of the batch.
template <class F>
void each_row(const MatmulProblem& p, F&& f) {
  parallel_for(p.batch * p.m, std::max<std::int64_t>(1, (1 << 15) / p.n), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) f(row, row / p.m * p.batch_stride_c + row % p.m * p.ldc);
  });
}

template <class T>
void add_to_rows(const MatmulProblem& p, const T* bias, T* c) {
  if (bias == nullptr) return;
  each_row(p, [&](std::int64_t, std::int64_t at) {
    for (std::int64_t j = 0; j < p.n; ++j) c[at + j] += bias[j];
  });
}

const float* widened(const void* x, DType dtype, std::int64_t size, Scratch& scratch) {
  if (dtype == DType::f32) return static_cast<const float*>(x);
  auto* wide = scratch.take<float>(size);
  dnn::convert(x, dtype, wide, DType::f32, size);
  return wide;
}

void multiply_in_f32(const MatmulProblem& p, const void* a, const void* b, const float* bias, void* c) {
  Scratch scratch;
  const float* left = widened(a, p.a, reach_of_a(p), scratch);
  const float* right = widened(b, p.b, reach_of_b(p), scratch);
  if (p.c == DType::f32) {
    multiply(p, left, right, static_cast<float*>(c));
    return add_to_rows(p, bias, static_cast<float*>(c));
  }
  MatmulProblem wide = p;
  wide.ldc = p.n;
  wide.batch_stride_c = p.m * p.n;
  auto* sums = scratch.take<float>(p.batch * p.m * p.n);
  auto* rows = static_cast<bf16*>(c);
  if (p.accumulate)
    each_row(p, [&](std::int64_t row, std::int64_t at) {
      dnn::convert(rows + at, DType::bf16, sums + row * p.n, DType::f32, p.n);
    });
  multiply(wide, left, right, sums);
  add_to_rows(wide, bias, sums);
  each_row(p, [&](std::int64_t row, std::int64_t at) {
    dnn::convert(sums + row * p.n, DType::f32, rows + at, DType::bf16, p.n);
  });
}

std::int64_t reach(std::int64_t batch, std::int64_t stride, std::int64_t rows, std::int64_t leading,
                   std::int64_t columns) {
  return batch * rows * columns == 0 ? 0 : (batch - 1) * stride + (rows - 1) * leading + columns;
}

}  // namespace

MatmulProblem complete(MatmulProblem p) {
  HEARTH_CHECK(ShapeError, p.batch >= 0 && p.m >= 0 && p.n >= 0 && p.k >= 0, "matmul: negative size in batch ", p.batch,
               ", m ", p.m, ", n ", p.n, ", k ", p.k);
  const std::int64_t rows_a = p.transpose_a ? p.k : p.m, row_a = p.transpose_a ? p.m : p.k;
  const std::int64_t rows_b = p.transpose_b ? p.n : p.k, row_b = p.transpose_b ? p.k : p.n;
  const auto dense = [](std::int64_t& leading, std::int64_t row, const char* name) {
    if (leading == 0) leading = std::max<std::int64_t>(row, 1);
    HEARTH_CHECK(ShapeError, leading >= row, "matmul: ", name, " is ", leading, " but a row has ", row, " elements");
  };
  dense(p.lda, row_a, "lda");
  dense(p.ldb, row_b, "ldb");
  dense(p.ldc, p.n, "ldc");
  const auto batch = [&](std::int64_t& stride, std::int64_t rows, std::int64_t leading) {
    const std::int64_t size = checked_mul(rows, leading, "matmul");
    if (stride < 0 || p.batch <= 1) stride = size;
    checked_mul(stride, p.batch, "matmul");
  };
  batch(p.batch_stride_a, rows_a, p.lda);
  batch(p.batch_stride_b, rows_b, p.ldb);
  batch(p.batch_stride_c, p.m, p.ldc);
  HEARTH_CHECK(ShapeError, p.batch <= 1 || p.batch_stride_c != 0,
               "matmul: the results of a batch need their own place");
  return p;
}

std::int64_t reach_of_a(const MatmulProblem& p) {
  return reach(p.batch, p.batch_stride_a, p.transpose_a ? p.k : p.m, p.lda, p.transpose_a ? p.m : p.k);
}
std::int64_t reach_of_b(const MatmulProblem& p) {
  return reach(p.batch, p.batch_stride_b, p.transpose_b ? p.n : p.k, p.ldb, p.transpose_b ? p.k : p.n);
}

void matmul_by_gemm(const MatmulProblem& problem, const void* a, const void* b, const void* bias, void* c) {
  const MatmulProblem p = complete(problem);
  if (p.batch == 0 || p.m == 0 || p.n == 0) return;
  if (p.a != DType::f64) return multiply_in_f32(p, a, b, static_cast<const float*>(bias), c);
  multiply(p, static_cast<const double*>(a), static_cast<const double*>(b), static_cast<double*>(c));
  add_to_rows(p, static_cast<const double*>(bias), static_cast<double*>(c));
}

}  // namespace hearth::cpu
