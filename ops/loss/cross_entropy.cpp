// SPDX-License-Identifier: Apache-2.0
#include "ops/loss/cross_entropy.h"

#include <array>
#include <limits>

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/index/index.h"
#include "ops/pointwise/binary.h"
#include "ops/pointwise/compare.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/view.h"

namespace hearth {
namespace {

Shape leading_axes(const Tensor& logits) {
  return Shape(std::span(logits.shape().begin(), static_cast<std::size_t>(logits.rank() - 1)));
}

// As the kernels take them: contiguous, i64 or the type of the result.
Tensor prepared_labels(const Tensor& labels, DType wide) {
  const DType dtype = is_floating(labels.dtype()) ? wide : DType::i64;
  return labels.dtype() == dtype ? labels.contiguous() : labels.to(dtype);
}

struct CrossEntropy {
  static constexpr OpInfo info{.name = "cross_entropy", .autocast = Autocast::as_is};
  CrossEntropyOptions options;

  struct Saved {
    SavedTensor logits;
    SavedTensor labels;
    Tensor most, log_sum;
    Tensor row_weight;  // of a row in the result
  };

  Tensor forward(Saved& saved, const Tensor& logits_view, const Tensor& labels_view) const {
    const Tensor logits = logits_view.contiguous();
    const DType wide = kernels::loss_type(logits.dtype());
    const Tensor labels = prepared_labels(labels_view, wide);
    const std::int64_t classes = logits.dim(-1), rows = logits.size() / classes;
    const Tensor most = Tensor::empty({rows}, wide, logits.device()), log_sum = Tensor::empty_like(most);
    const Tensor losses = Tensor::empty(leading_axes(logits), wide, logits.device());
    Tensor result = losses, row_weight;
    if (options.reduction != Reduction::none) {
      result = Tensor::empty({}, wide, logits.device());
      row_weight = Tensor::empty({1}, DType::f64, logits.device());
    }
    run_on(logits.device(), [&](auto& stream) {
      if (!is_floating(labels.dtype()))
        kernels::require_class_labels(stream, info.name, labels, classes, options.ignore_index);
      kernels::cross_entropy(stream, logits, labels, options, most, log_sum, losses);
      if (row_weight.defined()) kernels::cross_entropy_total(stream, losses, labels, options, result, row_weight);
    });
    if (is_recording()) {
      saved.logits = logits;
      saved.labels = labels;
      saved.most = most;
      saved.log_sum = log_sum;
      saved.row_weight = row_weight;
    }
    return result;
  }

  std::array<Tensor, 2> backward(const Saved& saved, Tensor dy, const NeedsGrad& needs) const {
    const Tensor& logits = saved.logits.get();
    // Logits that nobody else can read any more give their memory to the gradient.
    const Tensor dx = logits.sole_owner() ? logits.detach() : needs.make(0, logits.shape(), logits.dtype());
    run_on(logits.device(), [&](auto& stream) {
      kernels::cross_entropy_grad(stream, logits, saved.labels.get(), options, saved.most, saved.log_sum,
                                  dy.contiguous(), saved.row_weight, dx);
    });
    return {dx, Tensor{}};
  }
};

void check_logits(const char* op, const Tensor& logits, const Tensor& labels) {
  HEARTH_CHECK(UsageError, logits.defined(), op, ": logits are absent");
  HEARTH_CHECK(UsageError, labels.defined(), op, ": labels are absent");
  HEARTH_CHECK(DTypeError, is_floating(logits.dtype()), op, ": logits are ", describe(logits),
               "; they must be f32, f64, f16 or bf16");
  HEARTH_CHECK(ShapeError, logits.rank() >= 1 && logits.dim(-1) >= 1, op, ": logits ", logits.shape(),
               " need a last axis with at least one class");
}

void check_class_labels(const char* op, const Tensor& logits, const Tensor& labels) {
  HEARTH_CHECK(ShapeError, labels.shape() == leading_axes(logits), op, ": labels ", labels.shape(),
               " do not fit logits ", logits.shape(), "; they must be ", leading_axes(logits));
}

bool is_class_type(DType dtype) { return dtype == DType::i32 || dtype == DType::i64; }

void check_class_weights(const char* op, const Tensor& logits, const Tensor& weights) {
  HEARTH_CHECK(DTypeError, weights.dtype() == DType::f32 || weights.dtype() == DType::f64, op, ": class weights are ",
               describe(weights), "; they must be f32 or f64");
  HEARTH_CHECK(ShapeError, weights.shape() == Shape{logits.dim(-1)}, op, ": class weights ", weights.shape(), " for ",
               logits.dim(-1), " classes; give one a class");
  detail::check_devices(op, std::array{logits, weights});
}

/// [...]: the sum over the classes of target * weight * -log p; 0 for ignored rows.
Tensor weighted_losses(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options) {
  const CrossEntropyOptions each{.ignore_index = options.ignore_index, .reduction = Reduction::none};
  const DType wide = kernels::loss_type(logits.dtype());
  const Tensor weights = options.class_weights.detach().to(wide);
  const double even = options.label_smoothing / static_cast<double>(logits.dim(-1)), kept = 1 - options.label_smoothing;
  if (is_floating(labels.dtype()))
    return cross_entropy(logits, mul(add(mul(labels.detach().to(wide), kept), even), weights), each);
  const Tensor losses = cross_entropy(logits, labels, each);
  const Tensor hard = mul(losses, row_weights(labels, weights, wide, options.ignore_index));
  if (even == 0) return hard;
  const Tensor all = cross_entropy(logits, expand(weights, logits.shape()), each);
  return add(mul(hard, kept), mul(mul(all, row_weights(labels, {}, wide, options.ignore_index)), even));
}

Tensor weighted_cross_entropy(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options) {
  const Tensor losses = weighted_losses(logits, labels, options);
  if (options.reduction == Reduction::none) return losses;
  if (options.reduction == Reduction::sum) return sum(losses);
  if (is_floating(labels.dtype())) return mean(losses);
  const Tensor total = sum(row_weights(labels, options.class_weights, losses.dtype(), options.ignore_index));
  // Where no row has a weight the mean is 0, as where none counts, though smoothing gives each a loss.
  return div(sum(losses), where(equal(total, 0.0), std::numeric_limits<double>::infinity(), total));
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options) {
  const char* const op = CrossEntropy::info.name;
  check_logits(op, logits, labels);
  HEARTH_CHECK(UsageError, options.label_smoothing >= 0.0 && options.label_smoothing <= 1.0, op,
               ": label_smoothing is ", options.label_smoothing, "; it must lie in [0, 1]");
  HEARTH_CHECK(DTypeError, is_class_type(labels.dtype()) || is_floating(labels.dtype()), op, ": labels are ",
               describe(labels), "; they must be classes (i32, i64) or floating targets of every class");
  if (is_class_type(labels.dtype()))
    check_class_labels(op, logits, labels);
  else
    HEARTH_CHECK(ShapeError, labels.shape() == logits.shape(), op, ": targets ", labels.shape(),
                 " must have the shape of the logits ", logits.shape());
  if (!options.class_weights.defined()) return record(CrossEntropy{options}, logits, labels.detach());
  check_class_weights(op, logits, options.class_weights);
  return weighted_cross_entropy(logits, labels, options);
}

Tensor row_weights(const Tensor& labels, const Tensor& class_weights, DType dtype, std::int64_t ignore_index) {
  const char* const op = "row_weights";
  HEARTH_CHECK(UsageError, labels.defined(), op, ": labels are absent");
  HEARTH_CHECK(DTypeError, is_class_type(labels.dtype()), op, ": labels are ", describe(labels),
               "; they must be i32 or i64");
  HEARTH_CHECK(DTypeError, is_floating(dtype), op, ": weights of type ", dtype, "; they are floating");
  const Tensor classes = prepared_labels(labels, DType::f32);
  const Tensor counts = not_equal(classes, static_cast<double>(ignore_index));
  if (!class_weights.defined()) return counts.to(dtype);
  HEARTH_CHECK(DTypeError, is_floating(class_weights.dtype()), op, ": class weights are ", describe(class_weights),
               "; they must be floating");
  HEARTH_CHECK(ShapeError, class_weights.rank() == 1 && class_weights.size() > 0, op, ": class weights ",
               class_weights.shape(), "; they must be [C], one a class");
  detail::check_devices(op, std::array{labels, class_weights});
  const Tensor of_rows = index_select(class_weights.detach().to(dtype), 0, reshape(where(counts, classes, 0.0), {-1}));
  return where(counts, reshape(of_rows, labels.shape()), 0.0);
}

Tensor count_correct(const Tensor& logits, const Tensor& labels, std::int64_t k, std::int64_t ignore_index) {
  const char* const op = "count_correct";
  check_logits(op, logits, labels);
  HEARTH_CHECK(DTypeError, is_class_type(labels.dtype()), op, ": labels are ", describe(labels),
               "; they must be i32 or i64");
  HEARTH_CHECK(UsageError, k >= 1 && k <= logits.dim(-1), op, ": k is ", k, " for ", logits.dim(-1),
               " classes; it must lie in [1, ", logits.dim(-1), "]");
  check_class_labels(op, logits, labels);
  detail::check_devices(op, std::array{logits, labels});
  const profiler::Scope scope(op);
  const Tensor classes = prepared_labels(labels, DType::f32);
  const Tensor count = Tensor::zeros({}, DType::i64, logits.device());
  run_on(logits.device(), [&](auto& stream) {
    kernels::require_class_labels(stream, op, classes, logits.dim(-1), ignore_index);
    kernels::count_correct(stream, logits.contiguous(), classes, k, ignore_index, count);
  });
  return count;
}

}  // namespace hearth
