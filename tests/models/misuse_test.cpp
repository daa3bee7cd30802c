// SPDX-License-Identifier: Apache-2.0
// Mistakes in a training loop of one's own that would train the wrong thing, or nothing: each throws in the first step
// and names the parameter and the remedy.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/grad_state.h"
#include "autograd/parameters.h"
#include "autograd/recompute.h"
#include "models/nn/nn.h"
#include "ops/ops.h"
#include "optim/clip.h"
#include "optim/registry.h"
#include "tests/support/error_message.h"

namespace hearth::misuse_test {
namespace {

struct Net : nn::Module {
  nn::Linear in{3, 4}, out{4, 2};
  explicit Net(bool registers_out = true) {
    register_module("in", in);
    if (registers_out) register_module("out", out);
    nn::initialize(*this, 1);
  }
  Tensor forward(const Tensor& input) override { return out(relu(in(input))); }
};

const Tensor x = Tensor::of<float>({2, 3}, {1, -2, 3, 0.5, 1, -1});

Tensor loss_of(nn::Module& net) { return mean(square(net(x))); }

void expect_parts(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_PRED2(test::contains, message, part);
}

struct Training {
  FlatParameters parameters;
  optim::Sgd sgd;
  explicit Training(nn::Module& net, std::optional<LowPrecisionCopy> low_precision = {})
      : parameters(net.parameters(), low_precision), sgd(parameters, {.lr = 0.1}) {}
  void step(nn::Module& net) {
    parameters.zero_grads();
    backward(loss_of(net));
    sgd.step(0.1);
  }
};

TEST(Misuse, TheLoopAsItIsMeantTrains) {
  Net net;
  Training training(net);
  const double before = loss_of(net).item();
  for (int step = 0; step < 20; ++step) training.step(net);
  EXPECT_LT(loss_of(net).item(), 0.5 * before);
}

TEST(Misuse, SecondFlatParameters) {
  Net net;
  Training first(net);
  expect_parts(test::error_message<UsageError>([&] { Training{net}; }), {"\"in.weight\"", "other FlatParameters"});
  expect_parts(test::error_message<UsageError>([&] { Training{net.out}; }), {"\"weight\"", "other FlatParameters"});
  first.step(net);
}

TEST(Misuse, AModuleThatIsCalledButNotRegistered) {
  Net net(false);
  {
    Training training(net);
    expect_parts(test::error_message<UsageError>([&] { training.step(net); }),
                 {"Net", "a Linear with 10 parameters", "register_module()", "NoGrad"});
    const NoGrad no_grad;
    EXPECT_NO_THROW((void)net(x));
  }
  // Trained by somebody all the same.
  nn::initialize(net.out, 1);
  Training inner(net), outer(net.out);
  backward(loss_of(net));
  inner.sgd.step(0.1);
  outer.sgd.step(0.1);
}

struct Outer : nn::Module {
  Net& inner;
  nn::Linear head{2, 2};
  explicit Outer(Net& net) : inner(net) {
    register_module("head", head);
    nn::initialize(*this, 1);
  }
  Tensor forward(const Tensor& input) override {
    const NoGrad frozen;
    return head(inner(input));
  }
};

TEST(Misuse, AFrozenModuleOfAnotherTreeIsNone) {
  Net net;
  Outer outer(net);
  const Training training(outer);
  EXPECT_NO_THROW((void)outer(x));
}

struct Late : Net {
  nn::Linear extra{2, 2};
  Tensor gain = Tensor::zeros({2});
  void register_late() { register_module("extra", extra); }
  void define_late() { parameter("gain", gain, nn::init::ones()); }
};

TEST(Misuse, ModulesAndParametersThatComeTooLate) {
  Late net;
  const Training training(net);
  expect_parts(test::error_message<UsageError>([&] { net.register_late(); }),
               {"registers \"extra\"", "\"weight\"", "whole model"});
  expect_parts(test::error_message<UsageError>([&] { net.define_late(); }), {"the parameter \"gain\""});
}

struct Blank : nn::Module {
  nn::Linear in{3, 4}, out{4, 2};
  Blank() {
    register_module("in", in);
    register_module("out", out);
  }
  Tensor forward(const Tensor& input) override { return out(relu(in(input))); }
};

TEST(Misuse, AModelThatNobodyInitialized) {
  Blank net;
  const auto refuses = [&](const std::string& name) {
    expect_parts(test::error_message<UsageError>([&] { FlatParameters{net.parameters()}; }),
                 {name, "nn::initialize(model, seed)"});
  };
  refuses("\"in.weight\" [4, 3]");
  net.to(DType::f64);
  refuses("\"in.weight\" [4, 3]");
  net.to(DType::f32);
  nn::initialize(net.in, 1);
  refuses("\"out.weight\" [2, 4]");
  net.out.weight.copy_from(Tensor::full({2, 4}, 0.5));
  net.out.bias = requires_grad(Tensor::zeros({2}));
  EXPECT_NO_THROW(FlatParameters{net.parameters()}) << "values of the user's are as good";
  Blank whole;
  nn::initialize(whole, 1);
  Training{whole}.step(whole);
}

TEST(Misuse, AHandleThatWasGivenAnotherTensor) {
  for (const bool is_leaf : {true, false}) {
    Net net;
    Training training(net);
    const Tensor other = Tensor::full({2, 4}, 0.5);
    net.out.weight = is_leaf ? requires_grad(other) : other;
    expect_parts(test::error_message<UsageError>([&] { training.step(net); }),
                 {"no longer holds \"out.weight\" f32 [2, 4]", "copy_from()"});
  }
  Net tied;
  tied.in.bias = requires_grad(Tensor::zeros({4}));
  nn::Linear& out = tied.out;
  out.bias = requires_grad(Tensor::zeros({2}));
  Training training(tied);
  tied.out.weight.copy_from(Tensor::full({2, 4}, 0.5));
  EXPECT_NO_THROW(training.step(tied)) << "what was assigned before, and written afterwards, is trained";
}

TEST(Misuse, WeightsWrittenBetweenForwardAndBackward) {
  Net net;
  Training training(net);
  training.parameters.zero_grads();
  const Tensor loss = loss_of(net);
  net.out.weight.data<float>()[0] = 100;
  expect_parts(test::error_message<UsageError>([&] { backward(loss); }),
               {"linear (backward) of out", "f32 [2, 4]", "changed in place", "data<const T>()"});
}

TEST(Misuse, WeightsOfARecomputedPartWrittenBetweenForwardAndBackward) {
  Net net;
  Training training(net);
  const Tensor loss = mean(square(nn::recomputed(net, x)));
  net.out.weight.data<float>()[0] = 100;
  expect_parts(test::error_message<UsageError>([&] { backward(loss); }), {"recompute (backward)", "changed in place"});
}

TEST(Misuse, LogitsMayBeReadBetweenForwardAndBackward) {
  Net net;
  Training training(net);
  const Tensor logits = net(x);
  const Tensor loss = cross_entropy(logits, Tensor::of<std::int64_t>({2}, {0, 1}));
  EXPECT_TRUE(std::isfinite(logits.data<const float>()[0]));
  EXPECT_EQ(count_correct(logits, Tensor::of<std::int64_t>({2}, {0, 1})).size(), 1);
  (void)logits.to_doubles();
  EXPECT_NO_THROW(backward(loss));
}

TEST(Misuse, TwoOptimizersOfTheSameGradients) {
  Net net;
  Training training(net);
  optim::Adam adam(training.parameters, {});
  training.step(net);
  (void)optim::grad_norm(training.parameters);
  expect_parts(test::error_message<UsageError>([&] { adam.step(0.1); }),
               {"another optimizer has used these gradients", "backward()"});
  training.parameters.zero_grads();
  backward(loss_of(net));
  EXPECT_NO_THROW(adam.step(0.1)) << "one after the other is no mistake";
}

TEST(Misuse, GradientsZeroedBeforeTheyAreUsed) {
  Net net;
  Training training(net);
  backward(loss_of(net));
  training.parameters.zero_grads();
  expect_parts(test::error_message<UsageError>([&] { training.sgd.step(0.1); }),
               {"no gradient has arrived", "backward() after zero_grads()"});
}

TEST(Misuse, FlatParametersThatAreGoneOrMoved) {
  Net net;
  auto parameters = std::make_unique<FlatParameters>(net.parameters());
  optim::Sgd of_gone(*parameters, {});
  parameters.reset();
  expect_parts(test::error_message<UsageError>([&] { of_gone.step(0.1); }), {"FlatParameters are gone"});
  FlatParameters here(net.parameters());
  optim::Sgd of_moved(here, {});
  const FlatParameters there = std::move(here);
  expect_parts(test::error_message<UsageError>([&] { of_moved.step(0.1); }), {"moved to another object"});
}

// O1: ops read the low-precision copy of a weight, which a write to the weight leaves behind.
TEST(Misuse, AnOutdatedLowPrecisionCopyIsNotRead) {
  Net net;
  Training training(net, LowPrecisionCopy{DType::bf16, LowPrecisionCopy::Use::beside});
  const AutocastScope autocast(DType::bf16);
  const std::vector<double> before = net(x).to_doubles();
  for (const NamedTensor& parameter : net.parameters()) parameter.tensor->fill_(0.25);
  const std::vector<double> written = net(x).to_doubles();
  EXPECT_NE(written, before);
  training.parameters.refresh_low_precision();
  EXPECT_EQ(net(x).to_doubles(), written);
}

// O2: the model's weights are the rounded values, which each update writes anew.
TEST(Misuse, LowPrecisionWeightsThatAnUpdateWouldOverwrite) {
  Net net;
  Training training(net, LowPrecisionCopy{DType::bf16, LowPrecisionCopy::Use::instead});
  const AutocastScope autocast(DType::bf16);
  training.step(net);
  net.out.weight.fill_(0.25);
  expect_parts(test::error_message<UsageError>([&] { training.step(net); }),
               {"weights in bf16 were written", "refresh_low_precision()"});
  training.parameters.refresh_low_precision();
  EXPECT_NO_THROW(training.step(net));
}

}  // namespace
}  // namespace hearth::misuse_test
