// SPDX-License-Identifier: Apache-2.0
// Bias and activation on the CPU: each element is read and written once, and the bias gradient is summed while the
// activation's gradient passes by.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/cpu/element.h"
#include "core/cpu/parallel.h"
#include "ops/epilogue/epilogue.h"
#include "ops/epilogue/functors.h"
#include "ops/epilogue/gelu_bf16_vectors.h"
#include "ops/epilogue/gelu_rounded.h"
#include "ops/matmul/amx.h"
#include "ops/scratch.h"

#ifndef HEARTH_ISA_NAMESPACE
namespace hearth::kernels {
namespace {

/// Columns handled at a time, so that their sums stay in registers or the first-level cache.
constexpr std::int64_t column_block = 256;
/// Rows summed directly; sums of more rows are sums of such blocks, which keeps the rounding error small.
constexpr std::int64_t row_block = 64;

}  // namespace
}  // namespace hearth::kernels
#endif

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/epilogue/epilogue_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

/// y = F(x + bias); x may be y, and bias may be null.
template <class F, class T>
void finish_rows(F, const T* x, const acc_t<T>* bias, T* y, std::int64_t rows, std::int64_t cols) {
  if (bias == nullptr) {
    const std::int64_t count = rows * cols;
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) cpu::store(y + i, F::value(cpu::load(x + i)));
    return;
  }
  for (std::int64_t row = 0; row < rows; ++row, x += cols, y += cols) {
#pragma omp simd
    for (std::int64_t c = 0; c < cols; ++c) cpu::store(y + c, F::value(cpu::load(x + c) + bias[c]));
  }
}

/// dpre = dy * F's slope, and sums[cols] = its column sums.
template <class F, class T, bool store>
void grad_rows(F, std::bool_constant<store>, const T* reference, const T* dy, T* dpre, acc_t<T>* sums,
               std::int64_t rows, std::int64_t cols) {
  using A = acc_t<T>;
  for (std::int64_t c0 = 0; c0 < cols; c0 += column_block) {
    const std::int64_t width = std::min(column_block, cols - c0);
    A* total = sums + c0;
    for (std::int64_t c = 0; c < width; ++c) total[c] = A(0);
    for (std::int64_t r0 = 0; r0 < rows; r0 += row_block) {
      alignas(64) A block[column_block] = {};
      const std::int64_t end = std::min(rows, r0 + row_block);
      for (std::int64_t row = r0; row < end; ++row) {
        const std::int64_t at = row * cols + c0;
#pragma omp simd
        for (std::int64_t c = 0; c < width; ++c) {
          A d = cpu::load(dy + at + c);
          if constexpr (store) {
            d *= F::slope(cpu::load(reference + at + c));
            cpu::store(dpre + at + c, d);
          }
          block[c] += d;
        }
      }
#pragma omp simd
      for (std::int64_t c = 0; c < width; ++c) total[c] += block[c];
    }
  }
}

template <class F, class T>
void grad_flat(F, const T* reference, const T* dy, T* dpre, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) cpu::store(dpre + i, cpu::load(dy + i) * F::slope(cpu::load(reference + i)));
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else

namespace hearth::kernels {
namespace {

std::int64_t columns_of(const Tensor& y) { return y.rank() == 0 ? 1 : y.dim(-1); }

struct GeluOf16Bits {
  // 2^n 2^r, where n + r = -x^2 / (2 ln 2) and n is whole; within 2e-7. 0 where f32 would be subnormal.
  HEARTH_ALWAYS_INLINE static float falling(float x) {
    // Adding 1.5 * 2^23 rounds to an integer, which the low bits of the sum then hold.
    const float shift = 12582912.0f;
    const float scaled = -0.721347520f * x, shifted = scaled * x + shift, n = shifted - shift, r = scaled * x - n;
    float p = 0.00133813021f;
    p = p * r + 0.00966636837f;
    p = p * r + 0.0555038117f;
    p = p * r + 0.240223497f;
    p = p * r + 0.693147182f;
    p = p * r + 1.0f;
    const std::uint32_t power = std::bit_cast<std::uint32_t>(shifted) << 23;
    return n < -125.0f ? 0.0f : std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) + power);
  }
  HEARTH_ALWAYS_INLINE static float value(float x) {
    return gelu_rounded::value(x, falling(x), 1.0f / gelu_rounded::divisor(x));
  }
  HEARTH_ALWAYS_INLINE static float slope(float x) {
    return gelu_rounded::slope(x, falling(x), 1.0f / gelu_rounded::divisor(x));
  }
};

/// f(functor) for the activation's functor of elements of this type.
template <class T, class F>
void visit_for(Activation activation, F&& f) {
  activations::visit_activation(activation, [&]<class Exact>(Exact) {
    constexpr bool rounded = sizeof(T) == 2 && std::is_same_v<Exact, functors::gelu>;
    f(std::conditional_t<rounded, GeluOf16Bits, Exact>{});
  });
}

/// Whether gelu_bf16_vectors.h has F of T; asked only where the processor has the instructions.
template <class F, class T>
constexpr bool has_vectors = std::is_same_v<F, GeluOf16Bits>&& std::is_same_v<T, bf16>;

/// Rows a piece of work has, so that it is worth handing to a thread.
std::int64_t rows_a_piece(std::int64_t cols) {
  return std::max<std::int64_t>(1, 32768 / std::max<std::int64_t>(1, cols));
}

template <class F, class T>
void finish(const Tensor& x, const Tensor& bias, const Tensor& y) {
  const std::int64_t cols = columns_of(y);
  if (y.size() == 0) return;
  const Tensor wide = bias.defined() ? bias.to(dtype_of<acc_t<T> >()) : Tensor();
  const acc_t<T>* b = wide.defined() ? wide.data<acc_t<T> >() : nullptr;
  const T* from = x.data<T>();
  T* into = y.data<T>();
  cpu::parallel_for(y.size() / cols, rows_a_piece(cols), [&](std::int64_t begin, std::int64_t end) {
    if constexpr (has_vectors<F, T>)
      if (b == nullptr && cpu::amx::has_bf16_vectors())
        return gelu_bf16_vectors::values(from + begin * cols, into + begin * cols, (end - begin) * cols);
    HEARTH_ISA_CALL(finish_rows, F{}, from + begin * cols, b, into + begin * cols, end - begin, cols);
  });
}

/// `pieces` rows of partial sums become db, added in order.
template <class A>
void add_partials(const A* partials, std::int64_t pieces, std::int64_t cols, const Tensor& db) {
  cpu::Scratch scratch;
  A* total = scratch.take<A>(cols);
  std::copy(partials, partials + cols, total);
  for (std::int64_t i = 1; i < pieces; ++i)
    for (std::int64_t c = 0; c < cols; ++c) total[c] += partials[i * cols + c];
  visit_dtype("bias gradient", db.dtype(), Floats{}, [&]<class D>() {
    D* into = db.data<D>();
    for (std::int64_t c = 0; c < cols; ++c) {
      if constexpr (std::is_same_v<D, double>)
        into[c] = static_cast<double>(total[c]);
      else
        into[c] = static_cast<D>(static_cast<float>(total[c]));
    }
  });
}

/// Column sums of `dy` times F's slope; the product is stored in dpre where that is defined.
template <class F, class T>
void grad_with_sums(const Tensor& reference, const Tensor& dy, const Tensor& dpre, const Tensor& db) {
  using A = acc_t<T>;
  const std::int64_t cols = columns_of(dy);
  if (cols == 0) return;
  const std::int64_t rows = dy.size() / cols;
  if (rows == 0) {
    db.fill_(0);
    return;
  }
  // At most 64 pieces of whole row blocks: few partial sums, enough shares for any thread pool.
  const std::int64_t share = (rows + 63) / 64;
  const std::int64_t least = std::max(share, rows_a_piece(cols));
  const std::int64_t grain = (least + row_block - 1) / row_block * row_block;
  const std::int64_t pieces = (rows + grain - 1) / grain;
  cpu::Scratch scratch;
  A* partials = scratch.take<A>(checked_mul(pieces, cols, "bias gradient: partial sums"));
  const T* gradient = dy.data<T>();
  const T* other = dpre.defined() ? reference.data<T>() : nullptr;
  T* into = dpre.defined() ? dpre.data<T>() : nullptr;
  cpu::parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end) {
    A* sums = partials + begin / grain * cols;
    const std::int64_t at = begin * cols;
    if constexpr (has_vectors<F, T>)
      if (cpu::amx::has_bf16_vectors())
        return gelu_bf16_vectors::gradients_and_sums(other + at, gradient + at, into + at, sums, end - begin, cols);
    if (into != nullptr)
      HEARTH_ISA_CALL(grad_rows, F{}, std::true_type{}, other + at, gradient + at, into + at, sums, end - begin, cols);
    else
      HEARTH_ISA_CALL(grad_rows, F{}, std::false_type{}, other, gradient + at, into, sums, end - begin, cols);
  });
  add_partials(partials, pieces, cols, db);
}

}  // namespace

void fill_rows(cpu::Stream&, const Tensor& bias, const Tensor& y) {
  const std::int64_t cols = columns_of(y);
  if (y.size() == 0) return;
  const Tensor row = bias.to(y.dtype());
  const std::size_t bytes = row.byte_size();
  cpu::parallel_for(y.size() / cols, rows_a_piece(cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      std::copy_n(row.bytes(), bytes, y.bytes() + static_cast<std::size_t>(i) * bytes);
  });
}

void add_bias(cpu::Stream&, const Tensor& bias, const Tensor& y) {
  visit_dtype("bias", y.dtype(), Floats{}, [&]<class T>() { finish<activations::NoActivation, T>(y, bias, y); });
}

void activate(cpu::Stream&, Activation activation, const Tensor& pre, const Tensor& y) {
  visit_dtype("activation", y.dtype(), Floats{},
              [&]<class T>() { visit_for<T>(activation, [&]<class F>(F) { finish<F, T>(pre, Tensor(), y); }); });
}

void activate_grad(cpu::Stream&, Activation activation, const Tensor& reference, const Tensor& dy, const Tensor& dpre,
                   const Tensor& db) {
  visit_dtype("activation gradient", dy.dtype(), Floats{}, [&]<class T>() {
    visit_for<T>(activation, [&]<class F>(F) {
      if (db.defined()) return grad_with_sums<F, T>(reference, dy, dpre, db);
      const T* other = reference.data<T>();
      const T* gradient = dy.data<T>();
      T* into = dpre.data<T>();
      cpu::parallel_for(dy.size(), 32768, [&](std::int64_t begin, std::int64_t end) {
        if constexpr (has_vectors<F, T>)
          if (cpu::amx::has_bf16_vectors())
            return gelu_bf16_vectors::gradients(other + begin, gradient + begin, into + begin, end - begin);
        HEARTH_ISA_CALL(grad_flat, F{}, other + begin, gradient + begin, into + begin, end - begin);
      });
    });
  });
}

void sum_rows(cpu::Stream&, const Tensor& dy, const Tensor& db) {
  visit_dtype("bias gradient", dy.dtype(), Floats{},
              [&]<class T>() { grad_with_sums<activations::NoActivation, T>(Tensor(), dy, Tensor(), db); });
}

}  // namespace hearth::kernels
#endif
