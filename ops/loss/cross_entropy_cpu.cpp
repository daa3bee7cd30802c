// SPDX-License-Identifier: Apache-2.0
// One row after the other; the passes after the first find the row in a cache. Narrow logits are read as they are.
// Reference, for each row of C classes that is not ignored:
//   t = (1 - label_smoothing) * target + label_smoothing / C, where target is the label's one-hot row or given
//   loss = -sum(t * log_softmax(x))
//   dx = scale * (softmax(x) * sum(t) - t)
#include <algorithm>
#include <cmath>
#include <compare>
#include <limits>
#include <type_traits>
#include <vector>

#include "core/cpu/amx.h"
#include "core/cpu/lanes.h"
#include "core/cpu/parallel.h"
#include "ops/dispatch/candidates.h"
#include "ops/loss/cross_entropy.h"
#include "ops/loss/cross_entropy_bf16.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/loss/cross_entropy_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

#include "core/cpu/lanes.inc"

// The largest element of a row, and the logarithm of the sum of exp(x - largest). Of bf16 `by_vectors`:
// cross_entropy_bf16.h.
template <class T, class P>
void log_sum_exp(const T* x, std::int64_t cols, [[maybe_unused]] bool by_vectors, P& max_out, P& log_sum_out) {
  if constexpr (std::is_same_v<T, bf16>)
    if (by_vectors) {
      P total;
      sum_exponentials_bf16(x, cols, max_out, total);
      log_sum_out = static_cast<P>(std::log(static_cast<double>(total)));
      return;
    }
  constexpr P lowest = -std::numeric_limits<P>::infinity();
  using Vector = typename Lanes<P>::Vector;
  const Vector start = Vector{} + lowest;
  Vector tops[4] = {start, start, start, start};
  std::int64_t i = over_lanes<P>(cols, [&](std::int64_t at, int k) {
    const Vector value = load_lanes(x + at);
    tops[k] = value > tops[k] ? value : tops[k];
  });
  P most = lowest;
  for (const Vector& top : tops)
    for (std::int64_t lane = 0; lane < Lanes<P>::count; ++lane) most = top[lane] > most ? top[lane] : most;
  for (; i < cols; ++i) {
    const P value = cpu::load(x + i);
    most = value > most ? value : most;
  }
  // Sums come from a cache and keep the processor busy: meanwhile the next row comes from memory.
  constexpr std::int64_t run = 2048 / sizeof(T), line = 64 / sizeof(T);
  P sum = 0;
  for (std::int64_t first = 0; first < cols; first += run) {
    const std::int64_t end = std::min(cols, first + run);
    for (std::int64_t c = first; c < end; c += line) __builtin_prefetch(x + cols + c, 0, 2);
    P part = 0;
#pragma omp simd reduction(+ : part)
    for (std::int64_t c = first; c < end; ++c) part += cpu::math::exp_of_negative(cpu::load(x + c) - most);
    sum += part;
  }
  max_out = most;
  log_sum_out = static_cast<P>(std::log(static_cast<double>(sum)));
}

template <class T, class P>
void class_losses(const T* x, const std::int64_t* labels, std::int64_t rows, std::int64_t cols, P smoothing,
                  std::int64_t ignored, bool by_vectors, P* most, P* log_sum, P* losses) {
  for (std::int64_t r = 0; r < rows; ++r, x += cols) {
    if (labels[r] == ignored) {
      most[r] = log_sum[r] = losses[r] = P(0);
      continue;
    }
    log_sum_exp(x, cols, by_vectors, most[r], log_sum[r]);
    const P top = most[r];
    P loss = log_sum[r] - (cpu::load(x + labels[r]) - top);
    if (smoothing != P(0)) {
      P sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t c = 0; c < cols; ++c) sum += cpu::load(x + c) - top;
      loss = (P(1) - smoothing) * loss + smoothing * (log_sum[r] - sum / static_cast<P>(cols));
    }
    losses[r] = loss;
  }
}

// dx = (exp((x - most) - log_sum) - even) * factor.
template <class T, class P>
void exponential_slopes(const T* x, std::int64_t cols, P most, P log_sum, P even, P factor,
                        [[maybe_unused]] bool by_vectors, T* dx) {
  if constexpr (std::is_same_v<T, bf16>)
    if (by_vectors) return exponential_slopes_bf16(x, cols, most, log_sum, even, factor, dx);
#pragma omp simd
  for (std::int64_t c = 0; c < cols; ++c)
    cpu::store(dx + c, (cpu::math::exp_of_negative((cpu::load(x + c) - most) - log_sum) - even) * factor);
}

template <class T, class P>
void class_gradients(const T* x, const std::int64_t* labels, std::int64_t rows, std::int64_t cols, P smoothing,
                     std::int64_t ignored, const P* most, const P* log_sum, const P* scale, std::int64_t scale_step,
                     double row_weight, bool by_vectors, T* dx) {
  const P even = smoothing / static_cast<P>(cols);
  for (std::int64_t r = 0; r < rows; ++r, x += cols, dx += cols, scale += scale_step) {
    if (labels[r] == ignored) {
#pragma omp simd
      for (std::int64_t c = 0; c < cols; ++c) cpu::store(dx + c, P(0));
      continue;
    }
    const P top = most[r], log_total = log_sum[r], factor = static_cast<P>(static_cast<double>(*scale) * row_weight);
    const P at_label = cpu::math::exp_of_negative((cpu::load(x + labels[r]) - top) - log_total);
    exponential_slopes(x, cols, top, log_total, even, factor, by_vectors, dx);
    cpu::store(dx + labels[r], (at_label - even - (P(1) - smoothing)) * factor);
  }
}

// Targets t become (1 - smoothing) t + smoothing / cols.
template <class T, class P>
void target_losses(const T* x, const P* targets, std::int64_t rows, std::int64_t cols, P smoothing, bool by_vectors,
                   P* most, P* log_sum, P* losses) {
  const P even = smoothing / static_cast<P>(cols), kept = P(1) - smoothing;
  for (std::int64_t r = 0; r < rows; ++r, x += cols, targets += cols) {
    log_sum_exp(x, cols, by_vectors, most[r], log_sum[r]);
    const P top = most[r], log_total = log_sum[r];
    P loss = 0;
#pragma omp simd reduction(+ : loss)
    for (std::int64_t c = 0; c < cols; ++c) {
      const P target = kept * targets[c] + even;
      // A class without target does not count, even where its logit is -infinity.
      loss += target == P(0) ? P(0) : target * (log_total - (cpu::load(x + c) - top));
    }
    losses[r] = loss;
  }
}

template <class T, class P>
void target_gradients(const T* x, const P* targets, std::int64_t rows, std::int64_t cols, P smoothing, const P* most,
                      const P* log_sum, const P* scale, std::int64_t scale_step, double row_weight, T* dx) {
  const P even = smoothing / static_cast<P>(cols), kept = P(1) - smoothing;
  for (std::int64_t r = 0; r < rows; ++r, x += cols, dx += cols, targets += cols, scale += scale_step) {
    const P top = most[r], log_total = log_sum[r], factor = static_cast<P>(static_cast<double>(*scale) * row_weight);
    P total = 0;
#pragma omp simd reduction(+ : total)
    for (std::int64_t c = 0; c < cols; ++c) total += kept * targets[c] + even;
#pragma omp simd
    for (std::int64_t c = 0; c < cols; ++c) {
      const P p = cpu::math::exp_of_negative((cpu::load(x + c) - top) - log_total);
      cpu::store(dx + c, (p * total - (kept * targets[c] + even)) * factor);
    }
  }
}

// Elements that come before the label's in descending order.
template <class T>
std::int64_t rank_of(const T* x, std::int64_t label, std::int64_t cols) {
  const acc_t<T> value = cpu::load(x + label);
  std::int64_t before = 0;
#pragma omp simd reduction(+ : before)
  for (std::int64_t c = 0; c < cols; ++c) before += cpu::load(x + c) > value ? 1 : 0;
#pragma omp simd reduction(+ : before)
  for (std::int64_t c = 0; c < label; ++c) before += cpu::load(x + c) == value ? 1 : 0;
  return value == value ? before : cols;
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {
namespace {

// f(first row, rows) over pieces of about 16 thousand logits.
template <class F>
void over_rows(const Tensor& logits, const F& f) {
  const std::int64_t cols = logits.dim(-1);
  cpu::parallel_for(logits.size() / cols, std::max<std::int64_t>(1, (1 << 14) / cols),
                    [&](std::int64_t begin, std::int64_t end) { f(begin, end - begin); });
}

/// What the choice depends on.
struct RowsProblem {
  DType dtype;         ///< of the logits
  bool mixed = false;  ///< labels are distributions
  bool gradient = false;
  auto operator<=>(const RowsProblem&) const = default;
};

std::ostream& operator<<(std::ostream& out, const RowsProblem& p) {
  return out << (p.gradient ? "gradient" : "forward") << " of " << p.dtype << (p.mixed ? ", floating labels" : "");
}

std::string rows_by_vectors_unsupported(const RowsProblem& p) {
  if (p.dtype != DType::bf16) return join_text("logits are ", p.dtype, ", not bf16");
  if (p.gradient && p.mixed) return "the gradient with floating labels";
  return cpu::amx::bf16_vectors_unsupported();
}

template <class Run>
Candidates<RowsProblem, Run> row_candidates(Run* avx512_bf16, Run* portable) {
  return {"cross_entropy",
          {{"avx512_bf16", rows_by_vectors_unsupported, avx512_bf16},
           {"portable", [](const RowsProblem&) { return std::string(); }, portable}}};
}

template <bool by_vectors>
using LogitTypes = std::conditional_t<by_vectors, Types<bf16>, Floats>;

template <bool by_vectors>
void losses_of_rows(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options, const Tensor& most,
                    const Tensor& log_sum, const Tensor& losses) {
  const std::int64_t cols = logits.dim(-1);
  visit_dtype("cross_entropy", logits.dtype(), LogitTypes<by_vectors>{}, [&]<class T>() {
    using P = acc_t<T>;
    const T* const x = logits.data<T>();
    P *top = most.data<P>(), *log_total = log_sum.data<P>(), *out = losses.data<P>();
    const P smoothing = static_cast<P>(options.label_smoothing);
    if (is_floating(labels.dtype())) {
      const P* const targets = labels.data<P>();
      over_rows(logits, [&](std::int64_t row, std::int64_t rows) {
        HEARTH_ISA_CALL_FOR(T, target_losses, x + row * cols, targets + row * cols, rows, cols, smoothing, by_vectors,
                            top + row, log_total + row, out + row);
      });
      return;
    }
    const std::int64_t* const classes = labels.data<std::int64_t>();
    over_rows(logits, [&](std::int64_t row, std::int64_t rows) {
      HEARTH_ISA_CALL_FOR(T, class_losses, x + row * cols, classes + row, rows, cols, smoothing, options.ignore_index,
                          by_vectors, top + row, log_total + row, out + row);
    });
  });
}

template <bool by_vectors>
void gradients_of_rows(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options,
                       const Tensor& most, const Tensor& log_sum, const Tensor& scale, const Tensor& row_weight,
                       const Tensor& dx) {
  const double part = row_weight.defined() ? *row_weight.data<double>() : 1.0;
  const std::int64_t cols = logits.dim(-1);
  const std::int64_t step = options.reduction == Reduction::none ? 1 : 0;
  visit_dtype("cross_entropy", logits.dtype(), LogitTypes<by_vectors>{}, [&]<class T>() {
    using P = acc_t<T>;
    const T* const x = logits.data<T>();
    T* const out = dx.data<T>();
    const P *top = most.data<P>(), *log_total = log_sum.data<P>(), *factor = scale.data<P>();
    const P smoothing = static_cast<P>(options.label_smoothing);
    if (is_floating(labels.dtype())) {
      const P* const targets = labels.data<P>();
      over_rows(logits, [&](std::int64_t row, std::int64_t rows) {
        HEARTH_ISA_CALL_FOR(T, target_gradients, x + row * cols, targets + row * cols, rows, cols, smoothing, top + row,
                            log_total + row, factor + row * step, step, part, out + row * cols);
      });
      return;
    }
    const std::int64_t* const classes = labels.data<std::int64_t>();
    over_rows(logits, [&](std::int64_t row, std::int64_t rows) {
      HEARTH_ISA_CALL_FOR(T, class_gradients, x + row * cols, classes + row, rows, cols, smoothing,
                          options.ignore_index, top + row, log_total + row, factor + row * step, step, part, by_vectors,
                          out + row * cols);
    });
  });
}

}  // namespace

void require_class_labels(cpu::Stream&, const char* op, const Tensor& labels, std::int64_t classes,
                          std::int64_t ignore_index) {
  const std::int64_t* const values = labels.data<std::int64_t>();
  for (std::int64_t i = 0; i < labels.size(); ++i)
    HEARTH_CHECK(IndexError, (values[i] >= 0 && values[i] < classes) || values[i] == ignore_index, op, ": label ",
                 values[i], " at position ", i, " of ", labels.shape(), " is outside [0, ", classes,
                 ") and is not the ignored label ", ignore_index);
}

void cross_entropy(cpu::Stream&, const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options,
                   const Tensor& most, const Tensor& log_sum, const Tensor& losses) {
  static auto candidates = row_candidates(losses_of_rows<true>, losses_of_rows<false>);
  candidates.run({logits.dtype(), is_floating(labels.dtype())},
                 [&](auto* run) { run(logits, labels, options, most, log_sum, losses); });
}

void cross_entropy_total(cpu::Stream&, const Tensor& losses, const Tensor& labels, const CrossEntropyOptions& options,
                         const Tensor& result, const Tensor& row_weight) {
  const std::int64_t rows = losses.size();
  double part = 1.0;
  if (options.reduction == Reduction::mean) {
    std::int64_t count = rows;
    if (!is_floating(labels.dtype())) {
      const std::int64_t* const values = labels.data<std::int64_t>();
      count = rows - std::count(values, values + rows, options.ignore_index);
    }
    part = count == 0 ? 0.0 : 1.0 / static_cast<double>(count);
  }
  *row_weight.data<double>() = part;
  visit_dtype("cross_entropy", losses.dtype(), FullFloats{}, [&]<class P>() {
    double total = 0.0;
    for (std::int64_t row = 0; row < rows; ++row) total += static_cast<double>(losses.data<P>()[row]);
    *result.data<P>() = static_cast<P>(total * part);
  });
}

void cross_entropy_grad(cpu::Stream&, const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options,
                        const Tensor& most, const Tensor& log_sum, const Tensor& scale, const Tensor& row_weight,
                        const Tensor& dx) {
  static auto candidates = row_candidates(gradients_of_rows<true>, gradients_of_rows<false>);
  candidates.run({logits.dtype(), is_floating(labels.dtype()), true},
                 [&](auto* run) { run(logits, labels, options, most, log_sum, scale, row_weight, dx); });
}

void count_correct(cpu::Stream&, const Tensor& logits, const Tensor& labels, std::int64_t k, std::int64_t ignore_index,
                   const Tensor& count) {
  const std::int64_t cols = logits.dim(-1), rows = logits.size() / cols;
  const std::int64_t* const classes = labels.data<std::int64_t>();
  std::vector<std::uint8_t> correct(static_cast<std::size_t>(rows), 0);
  visit_dtype("count_correct", logits.dtype(), Floats{}, [&]<class T>() {
    const T* const x = logits.data<T>();
    over_rows(logits, [&](std::int64_t first, std::int64_t rows_here) {
      for (std::int64_t row = first; row < first + rows_here; ++row) {
        if (classes[row] == ignore_index) continue;
        correct[static_cast<std::size_t>(row)] =
            HEARTH_ISA_CALL_FOR(T, rank_of, x + row * cols, classes[row], cols) < k;
      }
    });
  });
  *count.data<std::int64_t>() += std::count(correct.begin(), correct.end(), std::uint8_t{1});
}

}  // namespace hearth::kernels
#endif
