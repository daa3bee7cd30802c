// SPDX-License-Identifier: Apache-2.0
// The sums of a few rows are made in the nearest cache and normalised there; a gradient is stored, dropped and passed
// on there.
#include <algorithm>

#include "core/cpu/lanes.h"
#include "ops/norm/add_layer_norm.h"
#include "ops/norm/cpu/layer_norm_cpu.h"
#include "ops/pointwise/sample_words.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/norm/cpu/add_layer_norm_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

#include "core/cpu/lanes.inc"

/// f(first element, count, factors) over elements [begin, begin + count) in runs that share their random words.
template <class P, class F>
void each_run(const DropoutFactors<P>& dropout, std::int64_t begin, std::int64_t count, const F& f) {
  std::uint32_t words[dropout_strip] = {};
  P factors[dropout_strip];
  const std::int64_t end = begin + count;
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t skipped = (dropout.first + at) % dropout_strip;
    const std::int64_t run = std::min(dropout_strip - skipped, end - at);
    if (dropout.threshold != 0)
      strip_words(dropout.key, static_cast<std::uint64_t>((dropout.first + at) / dropout_strip), words);
    const std::uint32_t* const word = words + skipped;
#pragma omp simd
    for (std::int64_t i = 0; i < run; ++i) factors[i] = word[i] >= dropout.threshold ? dropout.scale : P(0);
    f(at, run, factors);
    at += run;
  }
}

/// Rows [begin, begin + rows). All pointers are to element 0.
template <class T, class F, class P>
void add_rows(const T* x, const F* f, const DropoutFactors<P>& dropout, const PathFactors<P>& path, T* sum,
              std::int64_t begin, std::int64_t rows, std::int64_t cols) {
  for (std::int64_t r = begin; r < begin + rows; ++r) {
    const P stays = path.of_row(r);
    if (stays == P(0)) {
      std::copy_n(x + r * cols, cols, sum + r * cols);
    } else if (dropout.threshold == 0) {
      const std::int64_t row = r * cols;
      std::int64_t c = fill_lanes(sum + row, cols, [&](std::int64_t at) {
        return load_lanes(x + row + at) + load_lanes(f + row + at) * stays;
      });
      for (; c < cols; ++c) cpu::store(sum + row + c, cpu::load(x + row + c) + cpu::load(f + row + c) * stays);
    } else {
      each_run(dropout, r * cols, cols, [=](std::int64_t at, std::int64_t count, const P* factors) {
#pragma omp simd
        for (std::int64_t i = 0; i < count; ++i)
          cpu::store(sum + at + i, cpu::load(x + at + i) + cpu::load(f + at + i) * factors[i] * stays);
      });
    }
  }
}

/// The gradient of what was added, from that of the sums. As add_rows().
template <class T, class F, class P>
void drop_rows(const T* d_sum, const DropoutFactors<P>& dropout, const PathFactors<P>& path, F* df, std::int64_t begin,
               std::int64_t rows, std::int64_t cols) {
  for (std::int64_t r = begin; r < begin + rows; ++r) {
    const P stays = path.of_row(r);
    const T* const from = d_sum + r * cols;
    F* const to = df + r * cols;
    if (stays == P(0)) {
      std::fill_n(to, cols, F(0.0f));
    } else if (dropout.threshold == 0) {
      std::int64_t c = fill_lanes(to, cols, [&](std::int64_t at) { return load_lanes(from + at) * stays; });
      for (; c < cols; ++c) cpu::store(to + c, cpu::load(from + c) * stays);
    } else {
      each_run(dropout, r * cols, cols, [=](std::int64_t at, std::int64_t count, const P* factors) {
#pragma omp simd
        for (std::int64_t i = 0; i < count; ++i)
          cpu::store(df + at + i, cpu::load(d_sum + at + i) * stays * factors[i]);
      });
    }
  }
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {
namespace {

/// f.operator()<T, F, D>() for the types of x, of what is added to it, and of y, which is one of the two.
template <class Body>
void visit_types(DType x, DType f, DType y, Body&& body) {
  visit_dtype("add_layer_norm", x, Floats{}, [&]<class T>() {
    if (f == x) return body.template operator()<T, T, T>();
    if constexpr (std::is_same_v<T, float>)
      visit_dtype("add_layer_norm", f, Types<f16, bf16>{}, [&]<class F>() {
        y == x ? body.template operator()<T, F, T>() : body.template operator()<T, F, F>();
      });
  });
}

template <class P>
DropoutFactors<P> factors_of(const ResidualDropout& dropout, std::int64_t elements) {
  return {dropout.key, dropout.key.first_element(elements), dropout_threshold(dropout.p),
          static_cast<P>(1.0 / (1.0 - dropout.p))};
}

template <class P>
std::vector<P> sample_factors(const ResidualDropout& dropout, std::int64_t samples) {
  std::vector<P> factors;
  if (dropout.path == 0) return factors;
  const std::uint32_t threshold = dropout_threshold(dropout.path);
  for (const std::uint32_t word : sample_words(dropout.path_key, samples))
    factors.push_back(word >= threshold ? static_cast<P>(1.0 / (1.0 - dropout.path)) : P(0));
  return factors;
}

}  // namespace

void add_layer_norm(cpu::Stream&, const Tensor& x, const Tensor& f, const ResidualDropout& dropout, const Tensor& sum,
                    const Normalized& o) {
  if (x.size() == 0) return;
  const std::int64_t cols = x.dim(-1);
  visit_types(x.dtype(), f.dtype(), o.y.dtype(), [&]<class T, class F, class D>() {
    using P = acc_t<T>;
    const auto factors = factors_of<P>(dropout, x.size());
    const std::vector<P> samples = sample_factors<P>(dropout, x.dim(0));
    const PathFactors<P> path{dropout.path > 0 ? samples.data() : nullptr, x.size() / cols / x.dim(0)};
    const T* const values = x.data<T>();
    const F* const terms = f.data<F>();
    const P *const gamma = o.gamma.data<P>(), *const beta = o.beta.data<P>();
    T* const sums = sum.data<T>();
    D* const y = o.y.data<D>();
    P *const means = o.mean.data<P>(), *const rstds = o.rstd.data<P>();
    const std::int64_t most = rows_in_cache<T>(cols);
    cpu::parallel_for(x.size() / cols, norm_grain(cols), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; r += most) {
        const std::int64_t at = r * cols, count = std::min(most, end - r);
        HEARTH_ISA_CALL_FOR(T, add_rows, values, terms, factors, path, sums, r, count, cols);
        layer_norm_rows(sums + at, gamma, beta, o.eps, y + at, means + r, rstds + r, count, cols);
      }
    });
  });
}

void add_layer_norm_grad(cpu::Stream&, const Tensor& sum, const NormGradient& g, const ResidualDropout& dropout,
                         const Tensor& others, const Tensor& d_sum, const Tensor& df) {
  const std::int64_t cols = sum.dim(-1), rows = cols == 0 ? 0 : sum.size() / cols;
  const DType of_f = df.defined() ? df.dtype() : g.dy.dtype();
  visit_types(sum.dtype(), of_f, g.dy.dtype(), [&]<class T, class F, class D>() {
    using P = acc_t<T>;
    const auto factors = factors_of<P>(dropout, sum.size());
    const std::vector<P> samples = sample_factors<P>(dropout, sum.dim(0));
    const PathFactors<P> path{dropout.path > 0 ? samples.data() : nullptr,
                              rows / std::max<std::int64_t>(sum.dim(0), 1)};
    const T* const values = sum.data<T>();
    const D* const dy = g.dy.data<D>();
    const P *const gamma = g.gamma.data<P>(), *const means = g.mean.data<P>(), *const rstds = g.rstd.data<P>();
    const T* const more = others.defined() ? others.data<T>() : nullptr;
    T* const into = d_sum.data<T>();
    F* const dropped = df.defined() ? df.data<F>() : nullptr;
    norm_grad_pieces(rows, cols, {g.d_gamma, g.d_beta}, [&](std::int64_t begin, std::int64_t piece, double* sums) {
      cpu::Scratch scratch;
      NormParameterSums<P> parameters(scratch, sums, cols);
      const std::int64_t end = begin + piece, most = rows_in_cache<T>(cols);
      for (std::int64_t r = begin; r < end; r += most) {
        const std::int64_t at = r * cols, count = std::min(most, end - r);
        layer_norm_grad_rows(values + at, dy + at, gamma, means + r, rstds + r, more == nullptr ? more : more + at,
                             into + at, parameters, count, r + count == end);
        if (dropped != nullptr) HEARTH_ISA_CALL_FOR(T, drop_rows, into, factors, path, dropped, r, count, cols);
      }
    });
  });
}

}  // namespace hearth::kernels
#endif
