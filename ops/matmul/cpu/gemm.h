// SPDX-License-Identifier: Apache-2.0
// The native matrix product: blocked, packed, vectorised for the instruction set found at run time.
// It is the portable candidate wherever a library is absent or does not support a problem, and the only one for f64.
#pragma once

#include <cstdint>

namespace hearth::cpu {

/// C[m,n] = op(A)[m,k] op(B)[k,n], or C += that product with `accumulate`. Row-major.
/// op(X) is X as stored, or its transpose when the flag is set: A is stored [m,k] (transposed: [k,m]) with rows
/// `lda` elements apart, B is stored [k,n] (transposed: [n,k]) with rows `ldb` apart, C is [m,n] with rows `ldc` apart.
/// T is float or double; sums are kept in T, in an order that depends on m, n, k and the instruction set only,
/// so that the bits do not depend on the number of threads. Runs on the thread pool; called from inside a
/// parallel region it runs on the calling thread alone, with the same bits.
/// m, n or k may be 0 (k == 0 clears C unless accumulating). C must not overlap A or B.
/// Throws ShapeError for negative sizes or a leading dimension shorter than its row.
template <class T>
void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, const T* a,
          std::int64_t lda, const T* b, std::int64_t ldb, bool accumulate, T* c, std::int64_t ldc);

extern template void gemm<float>(bool, bool, std::int64_t, std::int64_t, std::int64_t, const float*, std::int64_t,
                                 const float*, std::int64_t, bool, float*, std::int64_t);
extern template void gemm<double>(bool, bool, std::int64_t, std::int64_t, std::int64_t, const double*, std::int64_t,
                                  const double*, std::int64_t, bool, double*, std::int64_t);

}  // namespace hearth::cpu
