// SPDX-License-Identifier: Apache-2.0
// Whole models in f64 on several ranks have the losses of one process to 1e-12.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <ostream>

#include "autograd/backward.h"
#include "core/random.h"
#include "dist/data_parallel.h"
#include "models/resnet.h"
#include "models/swin.h"
#include "models/transformer/gpt.h"
#include "models/transformer/transformer.h"
#include "ops/ops.h"
#include "optim/adam.h"
#include "optim/layerwise.h"
#include "optim/sgd.h"
#include "tests/dist/groups.h"

namespace hearth::train::ranks_in_f64_test {
namespace {

constexpr std::int64_t rows = 12, steps = 5, classes = 7, longest = 6;

struct Case {
  const char* name;
  std::unique_ptr<nn::Module> (*make)();
  nn::Inputs (*inputs)(Random& random);
  Shape labels;
  std::unique_ptr<optim::Optimizer> (*optimizer)(FlatParameters& parameters);
  int zero = 0;
};
void PrintTo(const Case& of, std::ostream* out) { *out << of.name; }

Tensor images(Random& random) {
  std::vector<double> pixels(static_cast<std::size_t>(rows * 8 * 8 * 3));
  for (double& pixel : pixels) pixel = random.normal();
  return Tensor::of({rows, 8, 8, 3}, pixels);
}

Tensor ids(Random& random, const Shape& shape) {
  const Tensor drawn = Tensor::empty(shape, DType::i32);
  for (std::int32_t& id : std::span(drawn.data<std::int32_t>(), static_cast<std::size_t>(shape.size())))
    id = 1 + static_cast<std::int32_t>(random.uniform(0, classes - 1));
  return drawn;
}

/// Labels of which every row but the first ignores some, as translations of several lengths do.
Tensor labels(Random& random, const Shape& shape) {
  const Tensor drawn = ids(random, shape);
  const std::int64_t length = shape.size() / rows;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t i = length - row % length; i < length; ++i) drawn.data<std::int32_t>()[row * length + i] = -100;
  return drawn;
}

std::int64_t counted(const Tensor& labels) {
  const auto values = labels.to_doubles();
  return std::count_if(values.begin(), values.end(), [](double label) { return label >= 0; });
}

nn::Inputs part_of(const nn::Inputs& inputs, std::int64_t begin, std::int64_t end) {
  nn::Inputs part;
  for (const Tensor& input : inputs) part.push_back(slice(input, 0, begin, end).contiguous());
  return part;
}

/// The losses of a loop by hand, and an average of the weights after it; each rank computes its rows, in two batches.
/// `group` null: one process.
std::vector<double> train(const Case& of, Collective* group) {
  const std::int64_t ranks = group ? group->size() : 1, rank = group ? group->rank() : 0;
  const auto model = of.make();
  nn::initialize(*model, 5);
  model->to(DType::f64);
  if (group) nn::sync_batch_norm(*model, group);
  FlatParameters parameters(model->parameters());
  std::optional<dist::DataParallel> parallel;
  if (group)
    parallel.emplace(*group, parameters,
                     dist::DataParallelOptions{.bucket_mb = 0.01, .first_bucket_mb = 0.001, .zero = of.zero});
  const auto optimizer = of.optimizer(parameters);
  std::vector<double> losses;
  for (std::uint64_t step = 0; step < steps; ++step) {
    const Tensor loss_sum = Tensor::zeros({1}, DType::f64);
    for (const std::uint64_t batch : {0, 1}) {
      Random random(100 + step, batch);
      const nn::Inputs inputs = of.inputs(random);
      const Tensor of_batch = labels(random, of.labels);
      const std::int64_t begin = rank * rows / ranks, end = (rank + 1) * rows / ranks;
      const Tensor mine = slice(of_batch, 0, begin, end).contiguous();
      const double weight = 0.5 * static_cast<double>(counted(mine)) / static_cast<double>(counted(of_batch));
      const Tensor loss = cross_entropy((*model)(part_of(inputs, begin, end)), mine);
      if (parallel) parallel->overlap_next(batch == 1);
      backward(loss, weight);
      loss_sum.copy_from(loss_sum + reshape(loss.detach(), {1}) * weight);
    }
    if (parallel) {
      parallel->reduce();
      group->all_reduce(loss_sum).wait();
    }
    losses.push_back(loss_sum.item());
    (void)optimizer->clip_grad_norm(0.7);
    optimizer->step();
    optimizer->zero_grad();
  }
  return losses;
}

const Case cases[] = {
    {"resnet",
     []() -> std::unique_ptr<nn::Module> {
       return std::make_unique<models::ResNet>(models::ResNetOptions{
           .blocks = {1, 1}, .bottleneck = true, .stem = models::ResNetStem::small, .width = 4, .classes = classes});
     },
     [](Random& random) { return nn::Inputs{images(random)}; },
     {rows},
     [](FlatParameters& parameters) -> std::unique_ptr<optim::Optimizer> {
       return std::make_unique<optim::Sgd>(parameters, optim::SgdOptions{.lr = 0.05, .momentum = 0.9});
     }},
    {"gpt",
     []() -> std::unique_ptr<nn::Module> {
       return std::make_unique<models::Gpt>(models::GptOptions{
           .vocabulary = classes, .context = longest, .layers = 2, .heads = 2, .width = 8, .dropout = 0});
     },
     [](Random& random) {
       return nn::Inputs{ids(random, {rows, longest})};
     },
     {rows, longest},
     [](FlatParameters& parameters) -> std::unique_ptr<optim::Optimizer> {
       return std::make_unique<optim::Adam>(parameters, optim::AdamOptions{.lr = 1e-3, .weight_decay = 0.1});
     },
     1},
    {"translation",
     []() -> std::unique_ptr<nn::Module> {
       return std::make_unique<models::Transformer>(models::TransformerOptions{.source_vocabulary = classes,
                                                                               .vocabulary = classes,
                                                                               .context = longest,
                                                                               .layers = 1,
                                                                               .decoder_layers = 1,
                                                                               .heads = 2,
                                                                               .width = 8,
                                                                               .hidden = 16,
                                                                               .dropout = 0,
                                                                               .source_pad = 0});
     },
     [](Random& random) {
       const Tensor source = ids(random, {rows, 5});
       for (std::int64_t row = 0; row < rows; ++row)
         for (std::int64_t i = 5 - row % 4; i < 5; ++i) source.data<std::int32_t>()[row * 5 + i] = 0;
       return nn::Inputs{source, ids(random, {rows, longest})};
     },
     {rows, longest},
     [](FlatParameters& parameters) -> std::unique_ptr<optim::Optimizer> {
       return std::make_unique<optim::Lamb>(parameters, optim::LambOptions{.lr = 1e-3});
     }},
    {"swin",
     []() -> std::unique_ptr<nn::Module> {
       return std::make_unique<models::Swin>(
           models::SwinOptions{.depths = {2}, .heads = {2}, .width = 8, .patch = 2, .window = 2, .classes = classes});
     },
     [](Random& random) { return nn::Inputs{images(random)}; },
     {rows},
     [](FlatParameters& parameters) -> std::unique_ptr<optim::Optimizer> {
       return std::make_unique<optim::Lars>(parameters, optim::LarsOptions{.lr = 0.5});
     },
     1},
};

class RanksInF64 : public testing::TestWithParam<Case> {};

TEST_P(RanksInF64, HaveTheLossesOfOneProcess) {
  const std::vector<double> one = train(GetParam(), nullptr);
  EXPECT_NE(one.back(), one.front());
  for (const char* backend : {"loopback", "shared memory", "tcp"})
    for (const int ranks : {1, 2, 4, 5})
      for (const std::string& failure :
           test::failures_of_ranks(dist::groups_of(backend, ranks), [&](Collective& group) {
             const std::vector<double> many = train(GetParam(), &group);
             for (std::size_t i = 0; i < steps; ++i)
               EXPECT_NEAR(many[i], one[i], 1e-12 * one[i]) << backend << ", " << ranks << " ranks, step " << i;
           }))
        EXPECT_EQ(failure, "");
}

INSTANTIATE_TEST_SUITE_P(All, RanksInF64, testing::ValuesIn(cases),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace hearth::train::ranks_in_f64_test
