// SPDX-License-Identifier: Apache-2.0
// Copies and sums around library calls that the library itself would do slowly or not at all.
#include "ops/onednn/convert.h"

#include "core/cpu/parallel.h"
#include "ops/scratch.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/onednn/convert.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::cpu::dnn::HEARTH_ISA_NAMESPACE {

template <class From, class To>
void convert(const From* from, To* to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = To(static_cast<float>(from[i]));
}

template <class T>
void add_rows(const T* rows, std::int64_t count, std::int64_t n, float* sums) {
  for (std::int64_t j = 0; j < n; ++j) sums[j] = 0.0f;
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t j = 0; j < n; ++j) sums[j] += static_cast<float>(rows[i * n + j]);
}

// One row of a sum of parts: to = (add ? to : 0) + bias + part 0 + part 1 + ...
template <class To>
void sum_parts(const float* parts, std::int64_t count, std::int64_t stride, const float* bias, bool add, To* to,
               std::int64_t n) {
  for (std::int64_t j = 0; j < n; ++j) {
    float sum = add ? static_cast<float>(to[j]) : 0.0f;
    if (bias) sum += bias[j];
    for (std::int64_t part = 0; part < count; ++part) sum += parts[part * stride + j];
    to[j] = To(sum);
  }
}

}  // namespace hearth::cpu::dnn::HEARTH_ISA_NAMESPACE
#else

namespace hearth::cpu::dnn {

void convert(const void* from, DType from_dtype, void* to, DType to_dtype, std::int64_t n) {
  visit_dtype("convert", from_dtype, Types<float, bf16>{}, [&]<class From>() {
    visit_dtype("convert", to_dtype, Types<float, bf16>{}, [&]<class To>() {
      parallel_for(n, 1 << 15, [&](std::int64_t begin, std::int64_t end) {
        HEARTH_ISA_CALL(convert, static_cast<const From*>(from) + begin, static_cast<To*>(to) + begin, end - begin);
      });
    });
  });
}

void sum_rows(const void* rows, DType dtype, std::int64_t count, std::int64_t n, float* sums) {
  constexpr std::int64_t max_shares = 16, min_rows = 64;
  const std::int64_t share = std::max(min_rows, (count + max_shares - 1) / max_shares);
  const std::int64_t shares = (count + share - 1) / share;
  Scratch scratch;
  float* parts = scratch.take<float>(shares * n);
  visit_dtype("sum_rows", dtype, Types<float, bf16>{}, [&]<class T>() {
    parallel_chunks(shares, [&](std::int64_t i) {
      HEARTH_ISA_CALL(add_rows<T>, static_cast<const T*>(rows) + i * share * n, std::min(share, count - i * share), n,
                      parts + i * n);
    });
  });
  sum_shares(parts, shares, 1, n, nullptr, false, sums, DType::f32, n);
}

void sum_shares(const float* parts, std::int64_t count, std::int64_t rows, std::int64_t columns, const float* bias,
                bool add, void* to, DType dtype, std::int64_t leading) {
  constexpr std::int64_t piece = 4096;
  const std::int64_t pieces = (columns + piece - 1) / piece;
  const std::int64_t grain = std::max<std::int64_t>(1, piece * 4 / columns);
  visit_dtype("sum_shares", dtype, Types<float, bf16>{}, [&]<class To>() {
    parallel_for(rows * pieces, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t row = i / pieces, column = i % pieces * piece;
        HEARTH_ISA_CALL(sum_parts<To>, parts + row * columns + column, count, rows * columns,
                        bias ? bias + column : nullptr, add, static_cast<To*>(to) + row * leading + column,
                        std::min(piece, columns - column));
      }
    });
  });
}

}  // namespace hearth::cpu::dnn
#endif
