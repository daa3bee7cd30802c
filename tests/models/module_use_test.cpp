// SPDX-License-Identifier: Apache-2.0
// What a program does with a module beside training it: freezing, hooks, and its weights in a file.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/creation.h"
#include "models/nn/nn.h"
#include "models/weights/module_file.h"
#include "ops/ops.h"
#include "optim/sgd.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"

namespace hearth {
namespace {

struct Net : nn::Module {
  nn::Linear in{3, 4}, out{4, 2};
  nn::BatchNorm norm{4};
  explicit Net(std::uint64_t seed = 1) {
    register_module("in", in);
    register_module("norm", norm);
    register_module("out", out);
    nn::initialize(*this, seed);
  }
  Tensor forward(const Tensor& x) override { return out(relu(norm(in(x)))); }
};

const Tensor x = tensor({{1, -2, 3}, {0.5, 1, -1}});

TEST(Freeze, FrozenLayersStayAndTheRestIsTrained) {
  Net net;
  net.in.freeze();
  const std::vector<double> in = net.in.weight.to_doubles(), out = net.out.weight.to_doubles();
  FlatParameters parameters(net.parameters());
  EXPECT_EQ(parameters.entries().size(), 4u) << "norm and out";
  optim::Sgd sgd(parameters, {.lr = 0.1});
  for (int step = 0; step < 2; ++step) {
    mean(square(net(x))).backward();
    sgd.step();
    sgd.zero_grad();
  }
  EXPECT_EQ(net.in.weight.to_doubles(), in);
  EXPECT_NE(net.out.weight.to_doubles(), out);
  EXPECT_FALSE(needs_grad(net.in.weight));
  EXPECT_EQ(net.parameters().size(), 6u) << "what is saved";
}

TEST(Freeze, IsTakenBackAndMoves) {
  Net net;
  net.freeze();
  EXPECT_PRED2(test::contains, test::error_message<UsageError>([&] { FlatParameters{net.parameters()}; }),
               "all are frozen");
  net.to(DType::f64);
  EXPECT_FALSE(needs_grad(net.in.weight));
  net.to(DType::f32);
  net.freeze(false);
  const FlatParameters parameters(net.parameters());
  EXPECT_EQ(parameters.entries().size(), 6u);
  EXPECT_THROW(net.in.freeze(), UsageError) << "part of FlatParameters";
}

TEST(Freeze, TiedWeightsAreFrozenTogether) {
  struct Tied : nn::Module {
    nn::Linear first{3, 3}, second{3, 3};
    Tied() {
      register_module("first", first);
      register_module("second", second);
      nn::initialize(*this, 1);
      second.weight = first.weight;
    }
  } tied;
  tied.first.freeze();
  EXPECT_PRED2(test::contains, test::error_message<UsageError>([&] { FlatParameters{tied.parameters()}; }),
               "\"second.weight\" and \"first.weight\" are one tensor");
  tied.freeze();
  tied.freeze(false);
  EXPECT_TRUE(tied.first.weight.same_storage(tied.second.weight));
  EXPECT_EQ(FlatParameters(tied.parameters()).entries().size(), 3u);
}

TEST(Hooks, SeeEachResult) {
  Net net;
  std::vector<std::string> seen;
  const auto note = [&](const nn::Module& module, const Tensor& y) {
    seen.push_back(module.path() + " " + describe(y));
  };
  net.in.on_forward(note);
  net.on_forward(note);
  (void)net(x);
  EXPECT_EQ(seen, (std::vector<std::string>{"in f32 [2, 4]", " f32 [2, 2]"}));
}

TEST(ModuleFile, WeightsComeBack) {
  const test::TempDir dir;
  const std::string path = (dir.path() / "net.safetensors").string();
  Net net(1), other(2);
  (void)net(x);  // moves the running statistics
  nn::save(net, path);
  EXPECT_NE(other.in.weight.to_doubles(), net.in.weight.to_doubles());
  nn::load(other, path);
  net.eval();
  other.eval();
  EXPECT_EQ(other(x).to_doubles(), net(x).to_doubles());
}

TEST(ModuleFile, SaysWhatDoesNotFit) {
  const test::TempDir dir;
  const std::string path = (dir.path() / "in.safetensors").string();
  Net net;
  nn::save(net.in, path);
  const std::vector<double> before = net.in.weight.to_doubles();
  const std::string message = test::error_message<FileError>([&] { nn::load(net, path); });
  EXPECT_PRED2(test::contains, message, "in.weight");
  EXPECT_EQ(net.in.weight.to_doubles(), before);
  nn::Linear wide(3, 5), unnamed(3, 4);
  EXPECT_PRED2(test::contains, test::error_message<FileError>([&] { nn::load(wide, path); }), "expected [5, 3]");
  nn::load(unnamed, path);
  EXPECT_EQ(unnamed.weight.to_doubles(), before);
  EXPECT_THROW(nn::load(net, (dir.path() / "absent.safetensors").string()), FileError);
  std::ofstream(path) << "no weights";
  EXPECT_THROW(nn::load(unnamed, path), FileError);
  EXPECT_THROW(nn::save(net, (dir.path() / "absent" / "net.safetensors").string()), FileError);
}

}  // namespace
}  // namespace hearth
