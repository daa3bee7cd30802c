// SPDX-License-Identifier: Apache-2.0
#include "train/loss.h"

#include <vector>

#include "ops/ops.h"
#include "train/composed_losses.h"

namespace hearth::train {
namespace {

struct CrossEntropyFields {
  double label_smoothing = 0;
  std::int64_t ignore_index = -100;
  std::vector<double> class_weights{};
};
void describe(Fields<CrossEntropyFields>& f) {
  f.number("label_smoothing", &CrossEntropyFields::label_smoothing, {.min = 0, .below = 1},
           "Share of the target spread evenly over all classes.");
  f.integer("ignore_index", &CrossEntropyFields::ignore_index, {},
            "Samples with this label do not count. Of sequences whose ids are predicted it is -100.");
  f.number("class_weights", &CrossEntropyFields::class_weights, {.above = 0},
           "What a sample of each class counts for, one number a class; empty: all the same. The mean is by the sum of "
           "the weights in a batch.");
}

struct FocalFields {
  double gamma = 2;
  std::int64_t ignore_index = -100;
  std::vector<double> class_weights{};
};
void describe(Fields<FocalFields>& f) {
  f.number("gamma", &FocalFields::gamma, {.above = 0, .max = 100},
           "Samples count (1 - p)^gamma, where p is the probability of their class.");
  f.integer("ignore_index", &FocalFields::ignore_index, {}, "Samples with this label do not count.");
  f.number("class_weights", &FocalFields::class_weights, {.above = 0}, "As in cross_entropy.");
}

struct HuberFields {
  double delta = 1;
};
void describe(Fields<HuberFields>& f) {
  f.number("delta", &HuberFields::delta, {.above = 0}, "Distance from which the loss grows linearly.");
}

struct BceFields {
  double positive_weight = 1;
};
void describe(Fields<BceFields>& f) {
  f.number("positive_weight", &BceFields::positive_weight, {.above = 0},
           "Factor on the loss of labels that are 1; above 1 raises recall, below 1 precision.");
}

/// Outputs in f32 or wider.
Tensor widened(const Tensor& outputs) { return cast(outputs, outputs.dtype() == DType::f64 ? DType::f64 : DType::f32); }

/// A loss of outputs and targets of one shape.
template <class F>
Loss elementwise(const char* op, F&& f) {
  return [op, f](const Tensor& outputs, const Tensor& labels) {
    const Tensor x = widened(outputs);
    return f(x, composed::labels_like(x, labels, op));
  };
}

Loss cross_entropy_loss(const CrossEntropyFields& o) {
  Loss loss;
  if (o.class_weights.empty()) {
    const CrossEntropyOptions options{.label_smoothing = o.label_smoothing, .ignore_index = o.ignore_index};
    loss = [options](const Tensor& outputs, const Tensor& labels) { return cross_entropy(outputs, labels, options); };
    loss.of_head = [o](const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& labels, const Tensor& correct) {
      return linear_cross_entropy(x, w, b, labels,
                                  {.label_smoothing = o.label_smoothing, .ignore_index = o.ignore_index}, correct);
    };
    loss.is_likelihood = o.label_smoothing == 0;
  } else {
    const composed::CrossEntropyByClassOptions options{
        .label_smoothing = o.label_smoothing, .ignore_index = o.ignore_index, .class_weights = o.class_weights};
    loss = [options](const Tensor& outputs, const Tensor& labels) {
      return composed::cross_entropy_by_class(outputs, labels, options);
    };
  }
  loss.ignored_label = o.ignore_index;
  loss.labels = LabelKind::classes;
  loss.class_weights = static_cast<std::int64_t>(o.class_weights.size());
  return loss;
}

Loss focal_loss(const FocalFields& o) {
  const composed::CrossEntropyByClassOptions options{
      .ignore_index = o.ignore_index, .class_weights = o.class_weights, .gamma = o.gamma};
  Loss loss = [options](const Tensor& outputs, const Tensor& labels) {
    return composed::cross_entropy_by_class(outputs, labels, options);
  };
  loss.ignored_label = o.ignore_index;
  loss.labels = LabelKind::classes;
  loss.class_weights = static_cast<std::int64_t>(o.class_weights.size());
  return loss;
}

}  // namespace

LossRegistry& losses() {
  static LossRegistry registry("loss", "What training minimises.", [](LossRegistry& r) {
    r.add<CrossEntropyFields>("cross_entropy", "Cross entropy of softmax outputs, averaged over the batch.",
                              cross_entropy_loss);
    r.add<FocalFields>("focal", "Cross entropy in which samples that are already right count less.", focal_loss);
    r.add<NoOptions>("mse", "Mean squared difference between outputs and targets, or one-hot labels.",
                     [](const NoOptions&) {
                       return elementwise("mse", [](const Tensor& x, const Tensor& t) { return mse(x, t); });
                     });
    r.add<NoOptions>("l1", "Mean absolute difference between outputs and targets.",
                     [](const NoOptions&) { return elementwise("l1", composed::l1); });
    r.add<HuberFields>("huber", "Squared for small differences, absolute for large ones.", [](const HuberFields& o) {
      return elementwise("huber",
                         [delta = o.delta](const Tensor& x, const Tensor& t) { return composed::huber(x, t, delta); });
    });
    r.add<BceFields>("bce_with_logits", "Binary cross entropy of each output's sigmoid, for labels that are 0 or 1.",
                     [](const BceFields& o) {
                       return elementwise("bce_with_logits",
                                          [weight = o.positive_weight](const Tensor& x, const Tensor& t) {
                                            return composed::bce_with_logits(x, t, weight);
                                          });
                     });
  });
  return registry;
}

}  // namespace hearth::train
