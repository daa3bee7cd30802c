// SPDX-License-Identifier: Apache-2.0
#include "train/composed_losses.h"

#include "core/error.h"
#include "ops/ops.h"

namespace hearth::train::composed {
namespace {

// Rows of the identity: the host does not see labels that lie on a device. A bad one is reported as index_select does.
Tensor one_hot_on_device(const Tensor& labels, std::int64_t classes, DType dtype) {
  const Tensor identity = Tensor::zeros({classes, classes}, dtype, labels.device());
  Strides diagonal{};
  diagonal[0] = classes + 1;
  Tensor::view(identity.storage(), {classes}, diagonal, 0, dtype, labels.device()).fill_(1);
  return index_select(identity, 0, labels);
}

Tensor one_hot(const Tensor& labels, std::int64_t classes, DType dtype, const char* op) {
  if (!labels.device().is_cpu()) return one_hot_on_device(labels, classes, dtype);
  const Tensor result = Tensor::zeros({labels.size(), classes}, DType::f32);
  const auto* label = labels.data<std::int64_t>();
  float* row = result.data<float>();
  for (std::int64_t i = 0; i < labels.size(); ++i, row += classes) {
    HEARTH_CHECK(IndexError, label[i] >= 0 && label[i] < classes, op, ": label ", label[i], " at position ", i,
                 " is outside the ", classes, " classes");
    row[label[i]] = 1;
  }
  return dtype == DType::f32 ? result : result.to(dtype);
}

void check_shapes(const char* op, const Tensor& x, const Tensor& targets) {
  HEARTH_CHECK(ShapeError, x.shape() == targets.shape(), op, ": outputs ", describe(x), " and targets ",
               describe(targets), " have different shapes; give the model as many outputs as a sample has targets");
}

/// What each row counts for by its class, [rows]; 0 where it is ignored. Undefined where all count alike.
Tensor row_weights(const Tensor& labels, std::int64_t classes, const Tensor& weights, std::int64_t ignored) {
  if (is_floating(labels.dtype()))
    return weights.defined() ? sum(mul(reshape(labels, {-1, classes}).to(weights.dtype()), weights), {1}) : Tensor();
  // 1 where a label counts, 0 where not; ignored ones become class 0, which is one.
  const Tensor values = reshape(labels, {-1}).to(DType::f64);
  const Tensor counts = minimum(abs(sub(values, static_cast<double>(ignored))), 1.0);
  if (!weights.defined()) return counts.to(DType::f32);
  return mul(index_select(weights, 0, mul(values, counts).to(DType::i64)), counts.to(weights.dtype()));
}

}  // namespace

Tensor labels_like(const Tensor& outputs, const Tensor& labels, const char* op) {
  if (labels.dtype() == DType::i64 && labels.rank() == 1 && outputs.rank() == 2 && labels.dim(0) == outputs.dim(0))
    return one_hot(labels, outputs.dim(1), outputs.dtype(), op);
  HEARTH_CHECK(ShapeError, labels.size() == outputs.size(), op, ": outputs ", describe(outputs), " and targets ",
               describe(labels), "; give the model as many outputs as a sample has targets");
  return reshape(labels.dtype() == outputs.dtype() ? labels : labels.to(outputs.dtype()), outputs.shape());
}

Tensor l1(const Tensor& x, const Tensor& targets) {
  check_shapes("l1", x, targets);
  return mean(abs(sub(x, targets)));
}

Tensor huber(const Tensor& x, const Tensor& targets, double delta) {
  check_shapes("huber", x, targets);
  HEARTH_CHECK(ConfigError, delta > 0, "huber: delta ", delta, "; it is above 0");
  const Tensor distance = abs(sub(x, targets));
  const Tensor near = minimum(distance, delta);
  // near^2 / 2 + delta * (distance - near)
  return mean(add(mul(square(near), 0.5), mul(sub(distance, near), delta)));
}

Tensor bce_with_logits(const Tensor& x, const Tensor& targets, double positive_weight) {
  check_shapes("bce_with_logits", x, targets);
  HEARTH_CHECK(ConfigError, positive_weight > 0, "bce_with_logits: positive_weight ", positive_weight,
               "; it is above 0");
  // log(1 + exp(-x)) without overflow.
  const Tensor softplus = add(log(add(exp(neg(abs(x))), 1.0)), maximum(neg(x), 0.0));
  const Tensor weight = add(mul(targets, positive_weight - 1), 1.0);
  return mean(add(mul(sub(1.0, targets), x), mul(weight, softplus)));
}

Tensor cross_entropy_by_class(const Tensor& logits, const Tensor& labels, const CrossEntropyByClassOptions& options) {
  const std::int64_t classes = logits.dim(-1);
  const auto given = static_cast<std::int64_t>(options.class_weights.size());
  HEARTH_CHECK(ShapeError, given == 0 || given == classes, "cross_entropy: ", given, " class weights for ", classes,
               " classes; give one a class");
  const Tensor losses = reshape(cross_entropy(logits, labels,
                                              {.label_smoothing = options.label_smoothing,
                                               .ignore_index = options.ignore_index,
                                               .reduction = Reduction::none}),
                                {-1});
  const Tensor weights =
      given > 0 ? Tensor::of({given}, options.class_weights).to(losses.dtype()).to(logits.device()) : Tensor();
  const Tensor counts = row_weights(labels, classes, weights, options.ignore_index);
  Tensor weighted = losses;
  if (options.gamma > 0) {
    // Above 0, so that the logarithm and its gradient are finite where a row is right.
    constexpr double smallest = 1e-12;
    const Tensor wrong = maximum(sub(1.0, exp(neg(losses))), smallest);
    weighted = mul(exp(mul(log(wrong), options.gamma)), losses);
  }
  if (!counts.defined()) return mean(weighted);
  const Tensor of_type = counts.to(losses.dtype());
  return div(sum(mul(weighted, of_type)), maximum(sum(of_type), 1e-12));
}

}  // namespace hearth::train::composed
