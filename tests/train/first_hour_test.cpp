// SPDX-License-Identifier: Apache-2.0
// What a user of PyTorch writes first: it works, or the message names what does. Forms that must not compile are in
// tests/first_hour/rejected.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "hearth.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"

namespace hearth::first_hour_test {
namespace {

using test::contains;
using test::error_message;
using Values = std::vector<double>;

struct Mlp : nn::Module {
  nn::Linear in{2, 4}, out{4, 2};
  explicit Mlp(bool initialized = true) {
    register_module("in", in);
    register_module("out", out);
    if (initialized) nn::initialize(*this, 1);
  }
  Tensor forward(const Tensor& x) override { return out(relu(in(x))); }
};

const Tensor points = tensor({{1, -2}, {0.5, 1}, {3, 4}});
const Tensor labels = tensor({0, 1, 1}, DType::i64);

std::string printed(const Tensor& x) {
  std::ostringstream out;
  out << x;
  return out.str();
}

TEST(FirstHour, PrintCreateAndAskForSizes) {
  EXPECT_EQ(printed(tensor({{1, 2}, {3, 4}})), "[[1, 2],\n [3, 4]] f32 [2, 2]");
  EXPECT_EQ(zeros({2, 3}).to_doubles(), Values(6, 0));
  EXPECT_EQ(full({2}, 7, DType::i64).dtype(), DType::i64);
  const Tensor x = zeros_like(ones({2, 3}, DType::f64));
  EXPECT_EQ(x.dtype(), DType::f64);
  EXPECT_EQ(ones_like(x).to_doubles(), Values(6, 1));
  EXPECT_EQ(x.size(0), 2);
  EXPECT_EQ(x.size(-1), 3);
  EXPECT_EQ(x.size(), 6);
  EXPECT_PRED2(contains, error_message<ShapeError>([&] { (void)x.size(2); }), "[2, 3]");
}

TEST(FirstHour, SizesAndAxesNeedNoBraces) {
  EXPECT_EQ(zeros(2, 3).shape(), (Shape{2, 3}));
  EXPECT_EQ(ones(4).to_doubles(), Values(4, 1));
  EXPECT_EQ(randn(2, 1, 3).shape(), (Shape{2, 1, 3}));
  EXPECT_EQ(rand(5).shape(), Shape{5});
  const Tensor x = tensor({{1, 2, 3}, {4, 5, 6}});
  EXPECT_EQ(x.reshape(-1, 2).shape(), (Shape{3, 2}));
  EXPECT_EQ(x.view(6).shape(), Shape{6});
  EXPECT_EQ(x.permute(1, 0).to_doubles(), (Values{1, 4, 2, 5, 3, 6}));
  const std::vector<float> values{1, 2};
  EXPECT_EQ(tensor(values).to_vector<float>(), values);
  EXPECT_EQ(tensor(std::vector<std::int64_t>{3}).dtype(), DType::i64);
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{1, 2, 3, 4, 5, 6}));
}

TEST(FirstHour, SoftmaxOfAnyAxis) {
  Tensor x = tensor({{1, 2, 3}, {4, 0, 6}}, DType::f64);
  x.requires_grad_();
  const Tensor columns = softmax(x, 0);
  EXPECT_EQ(columns.to_doubles(), softmax(x.transpose(0, 1)).transpose(0, 1).to_doubles());
  EXPECT_NEAR(columns[0][1].item(), std::exp(2.0) / (std::exp(2.0) + 1), 1e-12);
  EXPECT_EQ(softmax(x, -1).to_doubles(), softmax(x).to_doubles());
  (columns * tensor({{1, 0, 0}, {0, 0, 0}}, DType::f64)).sum().backward();
  const double share = columns[0][0].item();
  EXPECT_NEAR(x.grad()[0][0].item(), share * (1 - share), 1e-12);
  EXPECT_NEAR(log_softmax(x, -2)[1][0].item(), std::log(1 - share), 1e-12);
  EXPECT_PRED2(contains, error_message<ShapeError>([&] { (void)softmax(x, 2); }), "softmax: axis 2 of f64 [2, 3]");
}

TEST(FirstHour, IndexSliceAndWriteAPart) {
  const Tensor x = tensor({{1, 2, 3}, {4, 5, 6}});
  EXPECT_EQ(x[0][1].item(), 2);
  EXPECT_EQ((x[{all, Slice(1, 3)}].to_doubles()), (Values{2, 3, 5, 6}));
  x[0] = 9;
  x[{all, 2}] = tensor({7, 8});
  EXPECT_EQ(x.to_doubles(), (Values{9, 9, 7, 4, 5, 8}));
  Tensor y = x;
  y = tensor({1});
  EXPECT_EQ(x.size(), 6) << "another name, not a write";
  EXPECT_PRED2(contains, error_message<ShapeError>([&] { x[0] = tensor({1, 2}); }), "[2]");
  const Tensor w = requires_grad(ones({2, 2}));
  EXPECT_PRED2(contains, error_message<UsageError>([&] { w[0] = 1; }), "within NoGrad");
  EXPECT_PRED2(contains, error_message<UsageError>([&] { x[0] = sum(w); }), "the tape does not record");
  EXPECT_PRED2(contains, error_message<ShapeError>([&] { (void)x[5]; }), "position 5 on axis 0 of shape [2, 3]");
}

TEST(FirstHour, ViewAndReduceOverOneAxis) {
  const Tensor x = tensor({{1, 2, 3}, {4, 5, 6}});
  EXPECT_EQ(x.view({-1, 2}).shape(), (Shape{3, 2}));
  EXPECT_TRUE(x.view({6}).same_storage(x));
  EXPECT_PRED2(contains, error_message<UsageError>([&] { (void)x.transpose(0, 1).view({6}); }), "use reshape()");
  EXPECT_EQ(x.sum(0).to_doubles(), (Values{5, 7, 9}));
  EXPECT_EQ(x.mean(-1).to_doubles(), (Values{2, 5}));
  EXPECT_EQ(x.max(1, true).shape(), (Shape{2, 1}));
  EXPECT_EQ(min(x, 0).to_doubles(), (Values{1, 2, 3}));
  EXPECT_EQ(sum(x, 1).to_doubles(), x.sum({1}).to_doubles());
  EXPECT_EQ(mean(x, 0).to_doubles(), x.mean({0}).to_doubles());
  EXPECT_EQ(max(x, {}, true).shape(), (Shape{1, 1})) << "{} is over all axes";
}

TEST(FirstHour, ShapesAndPartsAsMembers) {
  const Tensor x = tensor({{1, 2, 3}, {4, 5, 6}});
  EXPECT_EQ(x.unsqueeze(-1).shape(), (Shape{2, 3, 1}));
  EXPECT_EQ(x.unsqueeze(0).unsqueeze(-1).squeeze().shape(), x.shape());
  EXPECT_EQ(x.unsqueeze(0).unsqueeze(0).squeeze(1).shape(), (Shape{1, 2, 3}));
  const std::vector<Tensor> columns = x.split(2, 1);
  ASSERT_EQ(columns.size(), 2u);
  EXPECT_EQ(columns[1].to_doubles(), (Values{3, 6}));
  EXPECT_TRUE(columns[1].same_storage(x)) << "views";
  EXPECT_EQ(x.split({1, 2}, -1)[1].to_doubles(), (Values{2, 3, 5, 6}));
  EXPECT_EQ(x.split({2}).size(), 1u) << "braces are sizes";
  EXPECT_EQ(x.chunk(3, 1)[2].to_doubles(), (Values{3, 6}));
  EXPECT_EQ(x.flip(0)[0].to_doubles(), (Values{4, 5, 6}));
  EXPECT_EQ(x.flip({0, 1}).to_doubles(), (Values{6, 5, 4, 3, 2, 1}));
  const Tensor ids = tensor({{2}, {0}}, DType::i64);
  EXPECT_EQ(x.gather(1, ids).to_doubles(), (Values{3, 4}));
  EXPECT_EQ(x.index_select(1, ids.flatten(0)).to_doubles(), (Values{3, 1, 6, 4}));
  EXPECT_EQ(x.masked_fill(greater(x, 2), -1).to_doubles(), (Values{1, 2, -1, -1, -1, -1}));
  EXPECT_PRED2(contains, error_message<ShapeError>([&] { (void)x.split(0); }), "a part has at least 1");
}

TEST(FirstHour, StatisticsAndOrderAsMembers) {
  const Tensor x = tensor({{3, 1, 2}, {4, 9, 5}});
  EXPECT_EQ(x.var(1).to_doubles(), (Values{1, 7}));
  EXPECT_EQ(x.var({1}, {.correction = 2}).to_doubles(), (Values{2, 14}));
  EXPECT_EQ(x.var(0, true).shape(), (Shape{1, 3}));
  EXPECT_EQ(x.var().to_doubles(), var(x).to_doubles());
  EXPECT_EQ(x.logsumexp(1).to_doubles(), logsumexp(x, {1}).to_doubles());
  EXPECT_EQ(x.logsumexp({0, 1}, true).shape(), (Shape{1, 1}));
  EXPECT_EQ(x.cumsum(1).to_doubles(), (Values{3, 4, 6, 4, 13, 18}));
  EXPECT_EQ(x.argmin(1).to_doubles(), (Values{1, 0}));
  EXPECT_EQ(x.argsort(1).to_doubles(), (Values{1, 2, 0, 0, 2, 1}));
  const auto [values, indices] = x.topk(2);
  EXPECT_EQ(values.to_doubles(), (Values{3, 2, 9, 5}));
  EXPECT_EQ(indices.to_doubles(), (Values{0, 2, 1, 2}));
  EXPECT_EQ(x.topk(1, 0, false).values.to_doubles(), (Values{3, 1, 2}));
  EXPECT_EQ(x.sort(1, true).values.to_doubles(), (Values{3, 2, 1, 9, 5, 4}));
  EXPECT_EQ(x.clamp(2, 4).to_doubles(), (Values{3, 2, 2, 4, 4, 4}));
  EXPECT_EQ(x.pow(2)[0].to_doubles(), (Values{9, 1, 4}));
  Tensor w = tensor({1, 2});
  w.requires_grad_();
  w.unsqueeze(0).flip(1).cumsum(1).split(1, 1)[1].sum().backward();
  EXPECT_EQ(w.grad().to_doubles(), (Values{1, 1})) << "members are recorded";
}

TEST(FirstHour, NumbersOfAnyTypeBesideATensor) {
  const Tensor x = tensor({2, 4});
  EXPECT_EQ((x + 1).to_doubles(), (Values{3, 5}));
  EXPECT_EQ((1.5f * x - 2L).to_doubles(), (Values{1, 4}));
  EXPECT_EQ((8 / x).to_doubles(), (Values{4, 2}));
  EXPECT_EQ((1u - x / std::int64_t{2}).to_doubles(), (Values{0, -1}));
  const float first = x[0].item<float>();
  EXPECT_EQ(first, 2);
}

TEST(FirstHour, UpdateByHand) {
  Tensor w = tensor({2, 3});
  w.requires_grad_();
  square(w).sum().backward();
  {
    const NoGrad no_grad;
    w -= 0.5 * w.grad();
    w += 1;
    w *= 2;
    w /= tensor({1, 2});
  }
  EXPECT_EQ(w.to_doubles(), (Values{2, 1}));
  EXPECT_TRUE(needs_grad(w)) << "still the leaf";
  EXPECT_PRED2(contains, error_message<UsageError>([&] { w -= 1; }), "a -= b: writes into f32 [2] in place");
  EXPECT_PRED2(contains, error_message<UsageError>([&] { w.requires_grad_(false); }), "layer.freeze()");
}

TEST(FirstHour, LoopByHandWithClippingAndASchedule) {
  Mlp model;
  FlatParameters parameters(model.parameters());
  optim::Adam optimizer(parameters, {.lr = 0.05});
  const optim::CosineSchedule schedule({}, {.total_steps = 40});
  optimizer.attach(schedule);
  double first = 0, last = 0;
  for (int step = 0; step < 40; ++step) {
    const Tensor loss = cross_entropy(model(points), labels);
    optimizer.zero_grad();
    loss.backward();
    EXPECT_GT(optimizer.clip_grad_norm(1.0), 0);
    optimizer.step();
    last = loss.item();
    if (step == 0) first = last;
  }
  EXPECT_LT(last, first / 2);
  EXPECT_LT(optimizer.lr(), 1e-6);
}

TEST(FirstHour, LearningRateOfOneLayerByName) {
  Mlp model;
  FlatParameters parameters(model.parameters());
  optim::Sgd optimizer(parameters, {.lr = 1, .groups = {{.match = {"in.*"}, .lr_scale = 0}}});
  const Values in = model.in.weight.to_doubles(), out = model.out.weight.to_doubles();
  cross_entropy(model(points), labels).backward();
  optimizer.step();
  EXPECT_EQ(model.in.weight.to_doubles(), in);
  EXPECT_NE(model.out.weight.to_doubles(), out);
  const auto misspelt = [&] { optim::Sgd(parameters, {.groups = {{.match = {"inn.*"}, .lr_scale = 0}}}); };
  EXPECT_PRED2(contains, error_message<ConfigError>(misspelt), "the nearest are \"in.");
}

TEST(FirstHour, AnotherLearningRate) {
  Mlp model;
  FlatParameters parameters(model.parameters());
  optim::Sgd optimizer(parameters, {.lr = 1});
  optimizer.set_lr(0);
  EXPECT_EQ(optimizer.lr(), 0);
  const Values before = model.out.weight.to_doubles();
  cross_entropy(model(points), labels).backward();
  optimizer.step();
  EXPECT_EQ(model.out.weight.to_doubles(), before);
  EXPECT_PRED2(contains, error_message<ConfigError>([&] { optimizer.set_lr(-1); }), "learning rate -1");
}

TEST(FirstHour, FreezeALayer) {
  Mlp model;
  model.in.freeze();
  FlatParameters parameters(model.parameters());
  optim::Sgd optimizer(parameters, {.lr = 1});
  const Values in = model.in.weight.to_doubles();
  cross_entropy(model(points), labels).backward();
  optimizer.step();
  EXPECT_EQ(model.in.weight.to_doubles(), in);
  EXPECT_PRED2(contains, error_message<UsageError>([&] { model.out.freeze(); }), "nn::FreezeScope");
  Tensor x = points.clone();
  x.requires_grad_();
  {
    const nn::FreezeScope frozen(model);
    model(x).sum().backward();
  }
  EXPECT_NE(x.grad().to_doubles(), Values(6, 0)) << "the gradient passes";
}

TEST(FirstHour, SaveAndLoadModelAndOptimizer) {
  const test::TempDir folder;
  const auto step = [](Mlp& model, optim::Optimizer& optimizer) {
    optimizer.zero_grad();
    cross_entropy(model(points), labels).backward();
    optimizer.step();
  };
  Mlp model, other(false);
  FlatParameters parameters(model.parameters());
  optim::Adam optimizer(parameters, {.lr = 0.1});
  step(model, optimizer);
  nn::save(model, folder / "model.safetensors");
  optim::save(optimizer, folder / "optimizer.safetensors");
  nn::load(other, folder / "model.safetensors");
  FlatParameters other_parameters(other.parameters());
  optim::Adam other_optimizer(other_parameters, {.lr = 0.1});
  optim::load(other_optimizer, folder / "optimizer.safetensors");
  EXPECT_EQ(other_optimizer.steps(), 1);
  step(model, optimizer);
  step(other, other_optimizer);
  EXPECT_EQ(other.in.weight.to_doubles(), model.in.weight.to_doubles()) << "the moments came back";
  optim::Sgd sgd(other_parameters, {});
  EXPECT_THROW(optim::load(sgd, folder / "optimizer.safetensors"), FileError);
  EXPECT_THROW(optim::load(sgd, folder / "none.safetensors"), FileError);
}

TEST(FirstHour, GradientsAndHooks) {
  Mlp model;
  std::vector<std::string> calls;
  model.in.on_forward([&](const nn::Module& m, const Tensor&) { calls.push_back("forward " + m.path()); });
  model.in.on_backward([&](const nn::Module& m, const Tensor& dy) {
    EXPECT_EQ(dy.shape(), (Shape{3, 4}));
    calls.push_back("backward " + m.path());
  });
  const Tensor hidden = model.in(points);
  Values seen;
  hidden.register_hook([&](const Tensor& dy) { seen = dy.to_doubles(); });
  model.in.weight.register_hook([](const Tensor& dw) { return dw * 2; });
  hidden.sum().backward();
  EXPECT_EQ(seen, Values(12, 1));
  EXPECT_EQ(calls, (std::vector<std::string>{"forward in", "backward in"}));
  EXPECT_EQ(model.in.weight.grad()[0].to_doubles(), (Values{9, 6})) << "twice the sums of the columns";
  EXPECT_EQ(model.in.bias.grad().to_doubles(), Values(4, 3));
  EXPECT_PRED2(contains, error_message<UsageError>([&] { (void)hidden.grad(); }), "not a leaf");
  EXPECT_PRED2(contains, error_message<UsageError>([&] { points.register_hook([](const Tensor&) {}); }),
               "no gradient reaches this tensor");
  EXPECT_THROW(model.on_backward(nullptr), UsageError);
  model.zero_grad();
  EXPECT_EQ(model.in.bias.grad().to_doubles(), Values(4, 0));
}

TEST(FirstHour, NoGradAndModes) {
  Mlp model;
  {
    const NoGrad no_grad;
    EXPECT_FALSE(needs_grad(model(points)));
  }
  EXPECT_TRUE(needs_grad(model(points)));
  EXPECT_FALSE(needs_grad(model(points).detach()));
  nn::Dropout dropout(0.5);
  dropout.eval();
  EXPECT_EQ(dropout(points).to_doubles(), points.to_doubles());
  dropout.train();
  EXPECT_TRUE(dropout.is_training());
}

struct Points : data::SampleDataset {
  std::int64_t size() const override { return 3; }
  data::TensorSample read(std::int64_t i, Random&) const override { return {{"x", points[i]}, {"labels", labels[i]}}; }
};

TEST(FirstHour, DatasetAndLossOfOnesOwn) {
  data::Loader loader(std::make_shared<Points>(), {.batch_size = 3});
  Mlp model;
  const data::Batch batch = loader.next();
  const Tensor p = exp(log_softmax(model(batch["x"])));
  const Tensor loss = (1 - p).mean();
  loss.backward();
  EXPECT_NE(model.in.weight.grad().to_doubles(), Values(8, 0));
  EXPECT_PRED2(contains, error_message<UsageError>([&] { (void)batch["images"]; }), "it has x, labels");
}

TEST(FirstHour, WhatIsWrongIsNamed) {
  Mlp model;
  EXPECT_PRED2(contains, error_message<ShapeError>([&] { (void)model(ones({3, 5})); }), "[3, 5]");
  EXPECT_PRED2(contains, error_message<DTypeError>([&] { (void)model(ones({3, 2}, DType::f64)); }), "f64");
  EXPECT_PRED2(contains, error_message<DTypeError>([&] { (void)(ones({2}) + ones({2}, DType::i64)); }), "i64");
  EXPECT_PRED2(contains, error_message<DTypeError>([&] { (void)sum(equal(points, points)); }), "bool");
  EXPECT_PRED2(contains, error_message<UsageError>([&] { (void)points.item(); }), "[3, 2]");
  EXPECT_PRED2(contains, error_message<ShapeError>([&] { model(points).backward(); }), "take a sum or a mean");
  EXPECT_PRED2(contains, error_message<UsageError>([&] { points.sum().backward(); }), "nothing on the tape");
  EXPECT_PRED2(contains, error_message<ConfigError>([&] { (void)points.to("gpu"); }), "cuda");
  if (device_count(DeviceType::cuda) == 0) {
    EXPECT_PRED2(contains, error_message<Error>([&] { (void)points.to("cuda"); }), "cuda");
  }
}

TEST(FirstHour, WhatIsForgottenIsNamed) {
  Mlp bare(false);
  EXPECT_PRED2(contains, error_message<UsageError>([&] { FlatParameters{bare.parameters()}; }), "initialize");
  Mlp model;
  FlatParameters parameters(model.parameters());
  optim::Sgd optimizer(parameters, {.lr = 0.1});
  const Tensor loss = cross_entropy(model(points), labels);
  loss.backward();
  EXPECT_PRED2(contains, error_message<UsageError>([&] { loss.backward(); }), "run the forward pass again");
  const Values once = model.out.bias.grad().to_doubles();
  cross_entropy(model(points), labels).backward();
  EXPECT_EQ(model.out.bias.grad()[0].item(), 2 * once[0]) << "without zero_grad() gradients add up, as in PyTorch";
  optimizer.zero_grad();
  EXPECT_PRED2(contains, error_message<UsageError>([&] { optimizer.step(); }), "backward");
}

}  // namespace
}  // namespace hearth::first_hour_test
