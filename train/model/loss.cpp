// SPDX-License-Identifier: Apache-2.0
#include "train/model/loss.h"

#include <memory>
#include <vector>

#include "core/creation.h"
#include "core/run_on.h"
#include "data/batch.h"
#include "ops/ops.h"

namespace hearth::train {
namespace {

/// A loss of classes, as its fields say.
struct ClassLossFields {
  double label_smoothing = 0;
  double gamma = 0;  ///< above 0: rows count (1 - p)^gamma, focal loss (Lin et al. 2017, arXiv:1708.02002)
  std::int64_t ignore_index = -100;
  std::vector<double> class_weights{};
};
struct CrossEntropyFields : ClassLossFields {};
struct FocalFields : ClassLossFields {
  FocalFields() { gamma = 2; }
};

template <class T>
void describe_rows(Fields<T>& f) {
  f.integer("ignore_index", &T::ignore_index, {},
            "Samples with this label do not count. It is -100 in models that predict ids.");
  f.number(
      "class_weights", &T::class_weights, {.above = 0},
      "The weight of a sample of each class, one number a class; empty: all the same. The mean over the samples of "
      "a step, or of an evaluation, divides by the sum of their weights, for soft labels by their number.");
}
void describe(Fields<CrossEntropyFields>& f) {
  f.number("label_smoothing", &CrossEntropyFields::label_smoothing, {.min = 0, .below = 1},
           "Share of the target spread evenly over all classes.");
  describe_rows(f);
}
void describe(Fields<FocalFields>& f) {
  f.number("gamma", &FocalFields::gamma, {.above = 0, .max = 100},
           "Samples count (1 - p)^gamma, where p is the probability of their class.");
  describe_rows(f);
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

/// A tensor that a loss needs besides the batch, kept where the run computes: Loss::place moves it there, so that steps
/// copy nothing from the host.
class Constant {
 public:
  Tensor on(Device device) const { return value_->defined() ? value_->to(device) : Tensor(); }
  void place(const Tensor& value, Device device) const { *value_ = value.to(device); }

 private:
  std::shared_ptr<Tensor> value_ = std::make_shared<Tensor>();
};

Tensor class_numbers(std::int64_t classes) { return arange(0, static_cast<double>(classes), 1, DType::i64); }

/// The targets as `outputs` has its axes, of its type: i64 [N] of classes become one-hot rows [N, C]; others are
/// converted, and reshaped where they have as many elements. ShapeError where they have not; IndexError for labels that
/// are no class, on the CPU.
Tensor targets_like(const Tensor& outputs, const Tensor& labels, const Constant& numbers, const char* op) {
  const std::int64_t rows = outputs.rank() == 2 ? outputs.dim(0) : -1;
  if (labels.dtype() == DType::i64 && labels.rank() == 1 && labels.dim(0) == rows) {
    const std::int64_t classes = outputs.dim(1);
    run_on(labels.device(),
           [&](auto& stream) { kernels::require_class_labels(stream, op, labels, classes, data::ignored_label); });
    Tensor known = numbers.on(labels.device());
    if (!known.defined() || known.size() != classes) known = class_numbers(classes).to(labels.device());
    return equal(reshape(labels, {rows, 1}), known).to(outputs.dtype());
  }
  HEARTH_CHECK(ShapeError, labels.size() == outputs.size(), op, ": outputs ", describe(outputs), " and targets ",
               describe(labels), "; give the model as many outputs as a sample has targets");
  return reshape(labels.to(outputs.dtype()), outputs.shape());
}

/// A loss of outputs and targets of one shape.
template <class F>
Loss elementwise(const char* op, F&& f) {
  const Constant numbers;
  Loss loss = [op, f, numbers](const Tensor& outputs, const Tensor& labels) {
    const Tensor x = upcast(outputs);
    return f(x, targets_like(x, labels, numbers, op));
  };
  loss.place = [numbers](Device device, std::int64_t classes) { numbers.place(class_numbers(classes), device); };
  return loss;
}

/// Labels of which those that do not count are data::ignored_label, whatever number they had.
Tensor with_ignored(const Tensor& labels, std::int64_t ignored) {
  if (ignored == data::ignored_label || is_floating(labels.dtype())) return labels;
  return where(not_equal(labels, static_cast<double>(ignored)), labels, static_cast<double>(data::ignored_label));
}

/// Focal loss: the losses of cross entropy by how far their rows are from right, and their mean.
Tensor focal_loss(const Tensor& logits, const Tensor& labels, double gamma, const Tensor& weights) {
  const Tensor losses = cross_entropy(logits, labels, {.reduction = Reduction::none});
  Tensor counted = losses;
  if (weights.defined())
    counted = cross_entropy(logits, labels, {.reduction = Reduction::none, .class_weights = weights});
  // Above 0, so that the logarithm and its gradient are finite where a row is right.
  constexpr double smallest = 1e-12;
  const Tensor wrong = maximum(sub(1.0, exp(neg(losses))), smallest);
  counted = mul(exp(mul(log(wrong), gamma)), counted);
  if (is_floating(labels.dtype())) return mean(counted);
  return div(sum(counted), maximum(sum(row_weights(labels, weights, counted.dtype())), smallest));
}

/// Loss::weight. Labels on the host do not wait for the device of the run.
std::function<Tensor(const Tensor&)> weight_of_labels(const ClassLossFields& o, const Constant& placed) {
  const Tensor on_host = placed.on({});
  return [on_host, placed, ignored = o.ignore_index](const Tensor& labels) {
    const Device device = labels.device();
    if (is_floating(labels.dtype()))
      return Tensor::full({1}, static_cast<double>(labels.size() / labels.dim(-1)), DType::f64, device);
    const Tensor weights = device.is_cpu() ? on_host : placed.on(device);
    return reshape(sum(row_weights(with_ignored(labels, ignored), weights, DType::f64)), {1});
  };
}

Loss class_loss(const ClassLossFields& o) {
  const Constant weights;
  const auto place = [o, weights](Device device, std::int64_t) {
    if (!o.class_weights.empty())
      weights.place(Tensor::of({static_cast<std::int64_t>(o.class_weights.size())}, o.class_weights), device);
  };
  place({}, 0);
  Loss loss = [o, weights](const Tensor& outputs, const Tensor& labels) {
    const Tensor counted = with_ignored(labels, o.ignore_index), of_classes = weights.on(outputs.device());
    if (o.gamma > 0) return focal_loss(outputs, counted, o.gamma, of_classes);
    return cross_entropy(outputs, counted, {.label_smoothing = o.label_smoothing, .class_weights = of_classes});
  };
  if (!o.class_weights.empty()) {
    loss.place = place;
    loss.weight = weight_of_labels(o, weights);
  } else if (o.gamma == 0) {
    loss.of_head = [o](const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& labels, const Tensor& correct) {
      return linear_cross_entropy(x, w, b, with_ignored(labels, o.ignore_index), {.label_smoothing = o.label_smoothing},
                                  correct);
    };
    loss.is_likelihood = o.label_smoothing == 0;
  }
  loss.ignored_label = o.ignore_index;
  loss.labels = LabelKind::classes;
  loss.class_weights = static_cast<std::int64_t>(o.class_weights.size());
  return loss;
}

}  // namespace

Tensor upcast(const Tensor& x) { return cast(x, x.dtype() == DType::f64 ? DType::f64 : DType::f32); }

LossRegistry& losses() {
  static LossRegistry registry("loss", "What training minimises.", [](LossRegistry& r) {
    r.add<NoOptions>("model", "That of the model itself, as detectors have one.", [](const NoOptions&) {
      Loss loss([](const Tensor& outputs, const Tensor&) -> Tensor {
        throw UsageError(join_text("loss: \"model\" is none of outputs ", describe(outputs), "; the model has it"));
      });
      loss.is_of_model = true;
      return loss;
    });
    r.add<CrossEntropyFields>("cross_entropy", "Cross entropy of softmax outputs, averaged over the batch.",
                              class_loss);
    r.add<FocalFields>("focal", "Cross entropy in which samples that are already right count less.", class_loss);
    r.add<NoOptions>("mse", "Mean squared difference between outputs and targets, or one-hot labels.",
                     [](const NoOptions&) {
                       return elementwise("mse", [](const Tensor& x, const Tensor& t) { return mse(x, t); });
                     });
    r.add<NoOptions>("l1", "Mean absolute difference between outputs and targets.", [](const NoOptions&) {
      return elementwise("l1", [](const Tensor& x, const Tensor& t) { return l1_loss(x, t); });
    });
    r.add<HuberFields>("huber", "Squared for small differences, absolute for large ones.", [](const HuberFields& o) {
      return elementwise("huber", [o](const Tensor& x, const Tensor& t) { return huber_loss(x, t, o.delta); });
    });
    r.add<BceFields>("bce_with_logits", "Binary cross entropy of each output's sigmoid, for labels that are 0 or 1.",
                     [](const BceFields& o) {
                       return elementwise("bce_with_logits", [o](const Tensor& x, const Tensor& t) {
                         const bool even = o.positive_weight == 1;
                         return bce_with_logits(
                             x, t, {}, even ? Tensor() : Tensor::full({1}, o.positive_weight, x.dtype(), x.device()));
                       });
                     });
  });
  return registry;
}

}  // namespace hearth::train
