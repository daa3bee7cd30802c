// SPDX-License-Identifier: Apache-2.0
#include "train/task/contrastive.h"

#include <algorithm>

#include "autograd/grad_mode.h"
#include "core/run_on.h"
#include "ops/ops.h"
#include "train/model/trained_model.h"

namespace hearth::train {
namespace {

/// Rows of length 1, in f32 or f64.
Tensor normalized(const Tensor& x) {
  constexpr double smallest = 1e-12;  // of the squared length
  const Tensor wide = upcast(x);
  return div(wide, sqrt(maximum(sum(square(wide), {1}, true), smallest)));
}

/// Rows [first, first + count) of x.
Tensor rows_of(const Tensor& x, std::int64_t first, std::int64_t count) { return slice(x, 0, first, first + count); }

/// 0, 1, ..., n - 1 as labels, made where the run computes: a recorded step copies nothing from the host.
Tensor own_rows(std::int64_t n, Device device) {
  const Tensor identity = Tensor::zeros({n, n}, DType::f32, device);
  Strides diagonal{};
  diagonal[0] = n + 1;
  Tensor::view(identity.storage(), {n}, diagonal, 0, DType::f32, device).fill_(1);
  return argmax(identity, 1);
}

class PairMetrics : public Metrics {
 public:
  void add(const Tensor& outputs, const data::Batch&) override {
    const std::int64_t half = outputs.dim(0) / 2;
    const Tensor rows = normalized(outputs.to(Device{}));
    first_.push_back(rows_of(rows, 0, half));
    second_.push_back(rows_of(rows, half, half));
  }
  bool is_reducible() const override { return true; }
  void reduce(Collective& group) override {
    for (std::vector<Tensor>* rows : {&first_, &second_}) *rows = gather_batches(group, *rows, DType::f32);
  }
  void report(Json& record) const override {
    record.set("recall_at_1", first_.empty() ? 0.0 : recall_at_1(concat(first_, 0), concat(second_, 0)));
  }

 private:
  std::vector<Tensor> first_, second_;
};

}  // namespace

void describe(Fields<ContrastiveOptions>& f) {
  f.text("inputs", &ContrastiveOptions::inputs, {},
         "The two tensors of a sample that belong together; empty: those that samples have.");
  f.number("temperature", &ContrastiveOptions::temperature, {.above = 0, .max = 100},
           "Cosines are divided by this; smaller values stress the hardest negatives.");
  f.boolean("shared_encoder", &ContrastiveOptions::shared_encoder,
            "The model encodes one input and gets both as rows of one batch. false: it takes two inputs.");
}

ContrastiveTask::ContrastiveTask(const data::DataSplits& data, const ContrastiveOptions& options)
    : options_(options), inputs_("contrastive", data, options.inputs, "") {
  HEARTH_CHECK(ConfigError, inputs_.names().size() == 2, "/task/inputs: contrastive is of 2 inputs a sample, not ",
               inputs_.names().size(), " (", inputs_.describe(), ")");
  const Tensor &first = inputs_.first()[inputs_.names()[0]], &second = inputs_.first()[inputs_.names()[1]];
  HEARTH_CHECK(ConfigError,
               !options.shared_encoder || (first.shape() == second.shape() && first.dtype() == second.dtype()),
               "/task/shared_encoder: the inputs ", inputs_.describe(),
               " differ; use false, with a model that takes two inputs");
}

void ContrastiveTask::check(const Loss& loss) const {
  Task::check(loss);
  HEARTH_CHECK(
      ConfigError, !loss.ignored_label || *loss.ignored_label == data::ignored_label,
      "/loss/ignore_index: ", *loss.ignored_label,
      ", but the labels of contrastive are the numbers of the pairs within a batch, of which one would be left "
      "out; leave ignore_index out");
}

nn::Inputs ContrastiveTask::inputs(const TrainedModel&, const data::Batch& batch) const {
  const nn::Inputs both = inputs_.of(batch);
  return options_.shared_encoder ? nn::Inputs{concat(both, 0)} : both;
}

Tensor ContrastiveTask::loss(const TrainedModel& trained, const data::Batch& batch, const Measured& measured) const {
  const std::int64_t n = batch[inputs_.names()[0]].dim(0);
  const Tensor outputs = (*trained.model)(inputs(trained, batch));
  HEARTH_CHECK(ShapeError, outputs.rank() == 2 && outputs.dim(0) == 2 * n, "contrastive: the model gives ",
               hearth::describe(outputs), " for ", n, " pairs; embeddings are [", 2 * n,
               ", D]: those of the first inputs, then those of the second");
  const Tensor rows = normalized(outputs);
  const Tensor first = rows_of(rows, 0, n), second = rows_of(rows, n, n);
  const Tensor labels = own_rows(n, outputs.device());
  const double scale = 1 / options_.temperature;
  const Tensor forth = mul(matmul(first, second, {.transpose_b = true}), scale);
  const Tensor back = mul(matmul(second, first, {.transpose_b = true}), scale);
  if (measured.correct.defined()) {
    const NoGrad no_grad;
    run_on(forth.device(), [&](auto& stream) {
      kernels::count_correct(stream, forth.detach().contiguous(), labels, 1, data::ignored_label, measured.correct);
    });
  }
  if (measured.metrics != nullptr) measured.metrics->add(outputs, batch);
  return mul(add(trained.loss(forth, labels), trained.loss(back, labels)), 0.5);
}

std::unique_ptr<Metrics> ContrastiveTask::metrics() const { return std::make_unique<PairMetrics>(); }

std::string ContrastiveTask::describe() const { return join_text("pairs, input ", inputs_.describe()); }

double recall_at_1(const Tensor& first, const Tensor& second) {
  HEARTH_CHECK(ShapeError, first.rank() == 2 && first.shape() == second.shape() && first.dim(0) >= 1,
               "recall at 1: ", describe(first), " and ", describe(second), "; both are [N, D] with N >= 1");
  const NoGrad no_grad;
  constexpr std::int64_t rows_at_once = 1024;
  std::int64_t correct = 0;
  for (std::int64_t begin = 0; begin < first.dim(0); begin += rows_at_once) {
    const std::int64_t count = std::min(rows_at_once, first.dim(0) - begin);
    const Tensor nearest = argmax(matmul(rows_of(first, begin, count), second, {.transpose_b = true}), 1);
    for (std::int64_t i = 0; i < count; ++i) correct += nearest.data<const std::int64_t>()[i] == begin + i;
  }
  return static_cast<double>(correct) / static_cast<double>(first.dim(0));
}

}  // namespace hearth::train
