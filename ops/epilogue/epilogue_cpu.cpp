// SPDX-License-Identifier: Apache-2.0
// Bias and activation on the CPU: each element is read and written once, and the bias gradient is summed while the
// activation's gradient passes by.
#include <algorithm>
#include <bit>
#include <compare>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "core/cpu/amx.h"
#include "core/cpu/blocks.h"
#include "core/cpu/element.h"
#include "core/cpu/parallel.h"
#include "ops/dispatch/candidates.h"
#include "ops/epilogue/epilogue.h"
#include "ops/epilogue/gelu_bf16_vectors.h"
#include "ops/epilogue/gelu_rounded.h"
#include "ops/pointwise/blocks.h"
#include "ops/scratch.h"

#ifndef HEARTH_ISA_NAMESPACE
namespace hearth::kernels {
namespace {

/// Columns handled at a time, so that their sums stay in the first-level cache.
constexpr std::int64_t column_block = 256;
static_assert(column_block <= cpu::block_size);
/// Rows summed directly; sums of more rows are sums of such blocks, which keeps the rounding error small.
constexpr std::int64_t row_block = 64;

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

}  // namespace
}  // namespace hearth::kernels
#endif

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/epilogue/epilogue_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

inline void rounded_gelu(const float* x, float* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = GeluOf16Bits::value(x[i]);
}

inline void rounded_gelu_slopes(const float* x, const float* dy, float* dx, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] * GeluOf16Bits::slope(x[i]);
}

/// y += bias in every row.
template <class T>
void add_bias_rows(const acc_t<T>* bias, T* y, std::int64_t rows, std::int64_t cols) {
  for (std::int64_t row = 0; row < rows; ++row, y += cols) {
#pragma omp simd
    for (std::int64_t c = 0; c < cols; ++c) cpu::store(y + c, cpu::load(y + c) + bias[c]);
  }
}

/// sums += x.
template <class A>
void add_row(const A* x, A* sums, std::int64_t cols) {
#pragma omp simd
  for (std::int64_t c = 0; c < cols; ++c) sums[c] += x[c];
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else

namespace hearth::kernels {
namespace {

std::int64_t columns_of(const Tensor& y) { return y.rank() == 0 ? 1 : y.dim(-1); }

Pointwise function_of(Activation activation) {
  switch (activation) {
    case Activation::relu:
      return Pointwise::relu;
    case Activation::gelu:
      return Pointwise::gelu;
    case Activation::gelu_tanh:
      return Pointwise::gelu_tanh;
    case Activation::silu:
      return Pointwise::silu;
    case Activation::none:
      break;
  }
  throw UsageError(join_text("activation: value ", static_cast<int>(activation), " is not one of the enumeration"));
}

/// An activation of elements of T, in blocks of what they are computed in.
template <class T>
class ActivationBlocks {
 public:
  using A = acc_t<T>;
  explicit ActivationBlocks(Activation activation)
      : copies_(activation == Activation::none), rounds_(sizeof(T) == 2 && activation == Activation::gelu) {
    if (copies_ || rounds_) return;
    values_ = value_block<A>(function_of(activation));
    slopes_ = slope_block<A>(function_of(activation));
  }

  void values(const A* x, A* y, std::int64_t n) const {
    if (copies_) {
      if (x != y) std::copy_n(x, n, y);
      return;
    }
    if constexpr (sizeof(T) == 2)
      if (rounds_) return HEARTH_ISA_CALL(rounded_gelu, x, y, n);
    values_(x, y, n, A(0), A(0));
  }
  void slopes(const A* reference, const A* dy, A* dx, std::int64_t n) const {
    if (copies_) {
      if (dy != dx) std::copy_n(dy, n, dx);
      return;
    }
    if constexpr (sizeof(T) == 2)
      if (rounds_) return HEARTH_ISA_CALL(rounded_gelu_slopes, reference, dy, dx, n);
    slopes_(reference, dy, dx, n, A(0), A(0));
  }

 private:
  bool copies_, rounds_;
  ValueBlock<A> values_ = nullptr;
  SlopeBlock<A> slopes_ = nullptr;
};

/// What the choice depends on.
struct ActivationProblem {
  DType dtype;
  Activation activation;
  bool gradient = false;
  auto operator<=>(const ActivationProblem&) const = default;
};

std::ostream& operator<<(std::ostream& out, const ActivationProblem& p) {
  return out << (p.gradient ? "gradient of " : "") << name_of(p.activation) << " of " << p.dtype;
}

std::string gelu_vectors_unsupported(const ActivationProblem& p) {
  if (p.activation != Activation::gelu) return join_text(name_of(p.activation), ", not gelu");
  return p.dtype == DType::bf16 ? cpu::amx::bf16_vectors_unsupported() : join_text(p.dtype, ", not bf16");
}

template <class Run>
Candidates<ActivationProblem, Run> activation_candidates(Run* avx512_bf16, Run* portable) {
  return {"activation",
          {{"avx512_bf16", gelu_vectors_unsupported, avx512_bf16},
           {"portable", [](const ActivationProblem&) { return std::string(); }, portable}}};
}

/// Elements, and rows, that a piece of work has, so that it is worth handing to a thread.
constexpr std::int64_t elements_a_piece = 32768;
std::int64_t epilogue_rows(std::int64_t cols) {
  return std::max<std::int64_t>(1, elements_a_piece / std::max<std::int64_t>(1, cols));
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

/// Column sums of a part of dy, times the activation's slope, which is stored in dpre unless that is null.
template <class T>
void column_sums(const ActivationBlocks<T>& activation, const T* reference, const T* dy, T* dpre, acc_t<T>* sums,
                 std::int64_t rows, std::int64_t cols) {
  using A = acc_t<T>;
  cpu::Strip<T> strip, strip_reference;
  for (std::int64_t c0 = 0; c0 < cols; c0 += column_block) {
    const std::int64_t width = std::min(column_block, cols - c0);
    A* const total = sums + c0;
    std::fill_n(total, width, A(0));
    for (std::int64_t r0 = 0; r0 < rows; r0 += row_block) {
      alignas(64) A block[column_block] = {};
      const std::int64_t end = std::min(rows, r0 + row_block);
      for (std::int64_t row = r0; row < end; ++row) {
        const std::int64_t at = row * cols + c0;
        const A* slopes = cpu::read_block(dy + at, width, strip);
        if (dpre != nullptr) {
          A* const to = cpu::block_of(dpre + at, strip);
          activation.slopes(cpu::read_block(reference + at, width, strip_reference), slopes, to, width);
          cpu::write_block(strip, dpre + at, width);
          slopes = to;
        }
        HEARTH_ISA_CALL(add_row, slopes, block, width);
      }
      HEARTH_ISA_CALL(add_row, static_cast<const A*>(block), total, width);
    }
  }
}

/// Column sums of `dy` times the activation's slope; the product is stored in dpre where that is defined. Those of a
/// part, sums [cols], are made by part(first element, rows, cols, sums).
template <class T, class F>
void grad_with_sums(const Tensor& dy, const Tensor& db, const F& part) {
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
  const std::int64_t least = std::max(share, epilogue_rows(cols));
  const std::int64_t grain = (least + row_block - 1) / row_block * row_block;
  const std::int64_t pieces = (rows + grain - 1) / grain;
  cpu::Scratch scratch;
  A* partials = scratch.take<A>(checked_mul(pieces, cols, "bias gradient: partial sums"));
  cpu::parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end) {
    part(begin * cols, end - begin, cols, partials + begin / grain * cols);
  });
  add_partials(partials, pieces, cols, db);
}

void activate_by_vectors(Activation, const Tensor& pre, const Tensor& y) {
  const bf16* const from = pre.data<bf16>();
  bf16* const into = y.data<bf16>();
  cpu::parallel_for(y.size(), elements_a_piece, [&](std::int64_t begin, std::int64_t end) {
    gelu_bf16_vectors::values(from + begin, into + begin, end - begin);
  });
}

void activate_portable(Activation activation, const Tensor& pre, const Tensor& y) {
  visit_dtype("activation", y.dtype(), Floats{}, [&]<class T>() {
    const ActivationBlocks<T> blocks(activation);
    const T* const from = pre.data<T>();
    T* const into = y.data<T>();
    cpu::parallel_for(y.size(), elements_a_piece, [&](std::int64_t begin, std::int64_t end) {
      cpu::Strip<T> strip;
      cpu::each_block<T>(begin, end, [&](std::int64_t at, std::int64_t n) {
        blocks.values(cpu::read_block(from + at, n, strip), cpu::block_of(into + at, strip), n);
        cpu::write_block(strip, into + at, n);
      });
    });
  });
}

void activate_grad_by_vectors(Activation, const Tensor& reference, const Tensor& dy, const Tensor& dpre,
                              const Tensor& db) {
  const bf16 *const x = reference.data<bf16>(), *const gradient = dy.data<bf16>();
  bf16* const into = dpre.data<bf16>();
  if (db.defined())
    return grad_with_sums<bf16>(dy, db, [&](std::int64_t at, std::int64_t rows, std::int64_t cols, float* sums) {
      gelu_bf16_vectors::gradients_and_sums(x + at, gradient + at, into + at, sums, rows, cols);
    });
  cpu::parallel_for(dy.size(), elements_a_piece, [&](std::int64_t begin, std::int64_t end) {
    gelu_bf16_vectors::gradients(x + begin, gradient + begin, into + begin, end - begin);
  });
}

void activate_grad_portable(Activation activation, const Tensor& reference, const Tensor& dy, const Tensor& dpre,
                            const Tensor& db) {
  visit_dtype("activation gradient", dy.dtype(), Floats{}, [&]<class T>() {
    const ActivationBlocks<T> blocks(activation);
    const T* other = reference.data<T>();
    const T* gradient = dy.data<T>();
    T* into = dpre.data<T>();
    if (db.defined())
      return grad_with_sums<T>(dy, db, [&](std::int64_t at, std::int64_t rows, std::int64_t cols, acc_t<T>* sums) {
        column_sums<T>(blocks, other + at, gradient + at, into + at, sums, rows, cols);
      });
    cpu::parallel_for(dy.size(), elements_a_piece, [&](std::int64_t begin, std::int64_t end) {
      cpu::Strip<T> strip, strip_reference;
      cpu::each_block<T>(begin, end, [&](std::int64_t at, std::int64_t n) {
        blocks.slopes(cpu::read_block(other + at, n, strip_reference), cpu::read_block(gradient + at, n, strip),
                      cpu::block_of(into + at, strip), n);
        cpu::write_block(strip, into + at, n);
      });
    });
  });
}

}  // namespace

void fill_rows(cpu::Stream&, const Tensor& bias, const Tensor& y) {
  const std::int64_t cols = columns_of(y);
  if (y.size() == 0) return;
  const Tensor row = bias.to(y.dtype());
  const std::size_t bytes = row.byte_size();
  cpu::parallel_for(y.size() / cols, epilogue_rows(cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      std::copy_n(row.bytes(), bytes, y.bytes() + static_cast<std::size_t>(i) * bytes);
  });
}

void add_bias(cpu::Stream&, const Tensor& bias, const Tensor& y) {
  const std::int64_t cols = columns_of(y);
  if (y.size() == 0) return;
  visit_dtype("bias", y.dtype(), Floats{}, [&]<class T>() {
    using A = acc_t<T>;
    const Tensor row = bias.to(dtype_of<A>());
    const A* const values = row.data<A>();
    T* const into = y.data<T>();
    cpu::parallel_for(y.size() / cols, epilogue_rows(cols), [&](std::int64_t begin, std::int64_t end) {
      HEARTH_ISA_CALL(add_bias_rows, values, into + begin * cols, end - begin, cols);
    });
  });
}

void activate(cpu::Stream&, Activation activation, const Tensor& pre, const Tensor& y) {
  static auto candidates = activation_candidates(activate_by_vectors, activate_portable);
  candidates.run({y.dtype(), activation}, [&](auto* run) { run(activation, pre, y); });
}

void activate_grad(cpu::Stream&, Activation activation, const Tensor& reference, const Tensor& dy, const Tensor& dpre,
                   const Tensor& db) {
  static auto candidates = activation_candidates(activate_grad_by_vectors, activate_grad_portable);
  candidates.run({dy.dtype(), activation, true}, [&](auto* run) { run(activation, reference, dy, dpre, db); });
}

void sum_rows(cpu::Stream&, const Tensor& dy, const Tensor& db) {
  visit_dtype("bias gradient", dy.dtype(), Floats{}, [&]<class T>() {
    const ActivationBlocks<T> none(Activation::none);
    const T* const gradient = dy.data<T>();
    grad_with_sums<T>(dy, db, [&](std::int64_t at, std::int64_t rows, std::int64_t cols, acc_t<T>* sums) {
      column_sums<T>(none, nullptr, gradient + at, nullptr, sums, rows, cols);
    });
  });
}

}  // namespace hearth::kernels
#endif
