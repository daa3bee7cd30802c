// SPDX-License-Identifier: Apache-2.0
#include "hearth/ops/loss/cross_entropy.h"

#include <array>

#include "hearth/autograd/record.h"
#include "hearth/core/run_on.h"

namespace hearth {
namespace {

DType wide_of(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

Shape leading_axes(const Tensor& logits) {
  return Shape(std::span(logits.shape().begin(), static_cast<std::size_t>(logits.rank() - 1)));
}

// As the kernels take them: contiguous, i64 or the type of the result.
Tensor prepared_labels(const Tensor& labels, DType wide) {
  const DType dtype = is_floating(labels.dtype()) ? wide : DType::i64;
  return labels.dtype() == dtype ? labels.contiguous() : labels.to(dtype);
}

std::int64_t count_of_rows(const Tensor& labels, std::int64_t rows, std::int64_t ignore_index) {
  if (is_floating(labels.dtype())) return rows;
  const std::int64_t* const values = labels.data<std::int64_t>();
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < rows; ++i) count += values[i] != ignore_index;
  return count;
}

struct CrossEntropy {
  static constexpr OpInfo info{.name = "cross_entropy", .autocast = Autocast::as_is};
  CrossEntropyOptions options;

  struct Kept {
    KeptTensor logits;
    KeptTensor labels;
    Tensor most, log_sum;
    double share = 1.0;  // of a row in the result
  };

  Tensor forward(Kept& kept, const Tensor& logits_view, const Tensor& labels_view) const {
    const Tensor logits = logits_view.contiguous();
    const DType wide = wide_of(logits.dtype());
    const Tensor labels = prepared_labels(labels_view, wide);
    const std::int64_t rows = logits.size() / logits.dim(-1);
    const Tensor most = Tensor::empty({rows}, wide), log_sum = Tensor::empty({rows}, wide);
    const Tensor losses = Tensor::empty(leading_axes(logits), wide);
    run_on(logits.device(),
           [&](auto& stream) { kernels::cross_entropy(stream, logits, labels, options, most, log_sum, losses); });
    double share = 1.0;
    if (options.reduction == Reduction::mean) {
      const std::int64_t count = count_of_rows(labels, rows, options.ignore_index);
      share = count == 0 ? 0.0 : 1.0 / static_cast<double>(count);
    }
    if (is_recording()) {
      kept.logits = logits;
      kept.labels = labels;
      kept.most = most;
      kept.log_sum = log_sum;
      kept.share = share;
    }
    if (options.reduction == Reduction::none) return losses;
    double total = 0.0;
    for (const double loss : losses.to_doubles()) total += loss;
    return Tensor::full({}, total * share, wide);
  }

  std::array<Tensor, 2> backward(const Kept& kept, Tensor dy, const GradWants& wants) const {
    const Tensor& logits = kept.logits.get();
    const Tensor scale = options.reduction == Reduction::none
                             ? dy.contiguous().as_shape({dy.size()})
                             : Tensor::full({1}, dy.item() * kept.share, wide_of(logits.dtype()));
    // Logits that nobody else can read any more give their memory to the gradient.
    const Tensor dx = logits.sole_owner() ? logits.detach() : wants.make(0, logits.shape(), logits.dtype());
    run_on(logits.device(), [&](auto& stream) {
      kernels::cross_entropy_grad(stream, logits, kept.labels.get(), options, kept.most, kept.log_sum, scale, dx);
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

void check_class_labels(const char* op, const Tensor& logits, const Tensor& labels, std::int64_t ignore_index) {
  const std::int64_t classes = logits.dim(-1);
  HEARTH_CHECK(ShapeError, labels.shape() == leading_axes(logits), op, ": labels ", labels.shape(),
               " do not fit logits ", logits.shape(), "; they must be ", leading_axes(logits));
  const Tensor wide = labels.dtype() == DType::i64 ? labels.contiguous() : labels.to(DType::i64);
  const std::int64_t* const values = wide.data<std::int64_t>();
  for (std::int64_t i = 0; i < wide.size(); ++i)
    HEARTH_CHECK(IndexError, (values[i] >= 0 && values[i] < classes) || values[i] == ignore_index, op, ": label ",
                 values[i], " at position ", i, " of ", labels.shape(), " is outside [0, ", classes,
                 ") and is not the ignored label ", ignore_index);
}

bool is_class_type(DType dtype) { return dtype == DType::i32 || dtype == DType::i64; }

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options) {
  const char* const op = CrossEntropy::info.name;
  check_logits(op, logits, labels);
  HEARTH_CHECK(UsageError, options.label_smoothing >= 0.0 && options.label_smoothing <= 1.0, op,
               ": label_smoothing is ", options.label_smoothing, "; it must lie in [0, 1]");
  HEARTH_CHECK(DTypeError, is_class_type(labels.dtype()) || is_floating(labels.dtype()), op, ": labels are ",
               describe(labels), "; they must be classes (i32, i64) or floating targets of every class");
  if (is_class_type(labels.dtype()))
    check_class_labels(op, logits, labels, options.ignore_index);
  else
    HEARTH_CHECK(ShapeError, labels.shape() == logits.shape(), op, ": targets ", labels.shape(),
                 " must have the shape of the logits ", logits.shape());
  return record(CrossEntropy{options}, logits, labels.detach());
}

std::int64_t count_correct(const Tensor& logits, const Tensor& labels, std::int64_t k, std::int64_t ignore_index) {
  const char* const op = "count_correct";
  check_logits(op, logits, labels);
  HEARTH_CHECK(DTypeError, is_class_type(labels.dtype()), op, ": labels are ", describe(labels),
               "; they must be i32 or i64");
  HEARTH_CHECK(UsageError, k >= 1 && k <= logits.dim(-1), op, ": k is ", k, " for ", logits.dim(-1),
               " classes; it must lie in [1, ", logits.dim(-1), "]");
  check_class_labels(op, logits, labels, ignore_index);
  return run_on(logits.device(), [&](auto& stream) {
    return kernels::count_correct(stream, logits.contiguous(), prepared_labels(labels, DType::f32), k, ignore_index);
  });
}

}  // namespace hearth
