// SPDX-License-Identifier: Apache-2.0
#include "train/loss.h"

#include "ops/ops.h"

namespace hearth::train {
namespace {

struct CrossEntropyFields {
  double label_smoothing = 0;
  std::int64_t ignore_index = -100;
};
void describe(Fields<CrossEntropyFields>& f) {
  f.number("label_smoothing", &CrossEntropyFields::label_smoothing, {.min = 0, .below = 1},
           "Share of the target spread evenly over all classes.");
  f.integer("ignore_index", &CrossEntropyFields::ignore_index, {},
            "Samples with this label do not count. Of texts whose ids are predicted it is -100.");
}

// Rows of the identity: the host does not see labels that lie on a device. A bad one is reported as index_select does.
Tensor one_hot_on_device(const Tensor& labels, std::int64_t classes, DType dtype) {
  const Tensor identity = Tensor::zeros({classes, classes}, dtype, labels.device());
  Strides diagonal{};
  diagonal[0] = classes + 1;
  Tensor::view(identity.storage(), {classes}, diagonal, 0, dtype, labels.device()).fill_(1);
  return index_select(identity, 0, labels);
}

Tensor one_hot(const Tensor& labels, std::int64_t classes, DType dtype) {
  if (!labels.device().is_cpu()) return one_hot_on_device(labels, classes, dtype);
  const Tensor result = Tensor::zeros({labels.size(), classes}, DType::f32);
  const auto* label = labels.data<std::int64_t>();
  float* row = result.data<float>();
  for (std::int64_t i = 0; i < labels.size(); ++i, row += classes) {
    HEARTH_CHECK(IndexError, label[i] >= 0 && label[i] < classes, "mse: label ", label[i], " at position ", i,
                 " is outside the ", classes, " classes");
    row[label[i]] = 1;
  }
  return dtype == DType::f32 ? result : result.to(dtype);
}

Tensor squared_error(const Tensor& outputs, const Tensor& labels) {
  const Tensor wide = cast(outputs, outputs.dtype() == DType::f64 ? DType::f64 : DType::f32);
  return mse(wide, is_floating(labels.dtype()) ? labels : one_hot(labels, wide.dim(-1), wide.dtype()));
}

}  // namespace

LossRegistry& losses() {
  static LossRegistry registry("loss", "What training minimises.", [](LossRegistry& r) {
    r.add<CrossEntropyFields>(
        "cross_entropy", "Cross entropy of softmax outputs, averaged over the batch.",
        [](const CrossEntropyFields& o) -> Loss {
          const CrossEntropyOptions options{.label_smoothing = o.label_smoothing, .ignore_index = o.ignore_index};
          Loss loss = [options](const Tensor& outputs, const Tensor& labels) {
            return cross_entropy(outputs, labels, options);
          };
          loss.of_head = [o](const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& labels,
                             const Tensor& correct) {
            return linear_cross_entropy(
                x, w, b, labels, {.label_smoothing = o.label_smoothing, .ignore_index = o.ignore_index}, correct);
          };
          loss.ignored_label = o.ignore_index;
          loss.is_likelihood = o.label_smoothing == 0;
          return loss;
        });
    r.add<NoOptions>("mse", "Mean squared difference between outputs and one-hot labels.",
                     [](const NoOptions&) -> Loss { return squared_error; });
  });
  return registry;
}

}  // namespace hearth::train
