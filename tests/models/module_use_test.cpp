// SPDX-License-Identifier: Apache-2.0
// What a program does with a module beside training it: freezing, hooks, and its weights in a file.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/grad_state.h"
#include "core/creation.h"
#include "core/io/safetensors.h"
#include "models/nn/nn.h"
#include "models/weights/module_file.h"
#include "ops/ops.h"
#include "optim/sgd.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"

namespace hearth::module_use_test {
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

TEST(Freeze, RecomputedLayersMayBeFrozen) {
  Net net;
  net.in.freeze();
  const Tensor input = requires_grad(x.clone());
  mean(square(nn::recomputed(net, input))).backward();
  EXPECT_TRUE(needs_grad(net.out.weight));
  const std::vector<double> out = net.out.weight.grad().to_doubles(), dx = input.grad().to_doubles();
  Net other;
  const Tensor same = requires_grad(x.clone());
  mean(square(other(same))).backward();
  EXPECT_EQ(out, other.out.weight.grad().to_doubles());
  EXPECT_EQ(dx, same.grad().to_doubles());
}

/// A generator's gradients, through a discriminator that is frozen or is not, and the discriminator's own.
struct ThroughDiscriminator {
  std::vector<double> generator, discriminator;
};
ThroughDiscriminator gradients(bool frozen, std::optional<LowPrecisionCopy> low_precision) {
  Net discriminator(2);
  nn::Linear generator(3, 3);
  nn::initialize(generator, 3);
  FlatParameters of_generator(generator.parameters(), low_precision);
  FlatParameters of_discriminator(discriminator.parameters(), low_precision);
  const AutocastScope autocast(low_precision ? std::optional(low_precision->dtype) : std::nullopt);
  of_generator.zero_grads();
  of_discriminator.zero_grads();
  std::optional<nn::FreezeScope> scope;
  if (frozen) scope.emplace(discriminator);
  mean(square(discriminator(generator(x)))).backward();
  scope.reset();
  ThroughDiscriminator seen;
  of_generator.finish_grads();
  seen.generator = of_generator.grads().to_doubles();
  if (frozen)
    EXPECT_THROW(of_discriminator.finish_grads(), UsageError) << "no contribution arrived";
  else
    of_discriminator.finish_grads();
  for (const auto& entry : of_discriminator.entries())
    for (const double value : entry.value.grad().to_doubles()) seen.discriminator.push_back(value);
  return seen;
}

TEST(FreezeScope, GradientsPassAndTheFrozenGetNone) {
  const LowPrecisionCopy beside{DType::bf16, LowPrecisionCopy::Use::beside};
  const LowPrecisionCopy instead{DType::bf16, LowPrecisionCopy::Use::instead};
  for (const auto& low_precision : {std::optional<LowPrecisionCopy>(), std::optional(beside), std::optional(instead)}) {
    const ThroughDiscriminator plain = gradients(false, low_precision), frozen = gradients(true, low_precision);
    EXPECT_EQ(frozen.generator, plain.generator) << "the same bits";
    EXPECT_EQ(frozen.discriminator, std::vector<double>(plain.discriminator.size(), 0));
    EXPECT_NE(plain.discriminator, frozen.discriminator);
  }
}

TEST(FreezeScope, EndsAndNests) {
  Net net;
  net.in.freeze();
  FlatParameters parameters(net.parameters());
  mean(square(net(x))).backward();
  {
    const nn::FreezeScope outer(net.out);
    {
      const nn::FreezeScope all(net);
      EXPECT_FALSE(needs_grad(net(x)));
      EXPECT_TRUE(is_flat(net.out.weight));
      net.zero_grad();
    }
    EXPECT_TRUE(needs_grad(net.norm.weight));
    EXPECT_FALSE(needs_grad(net.out.weight)) << "frozen by the outer one";
    EXPECT_EQ(net.out.weight.grad().to_doubles(), std::vector<double>(8, 0));
  }
  EXPECT_TRUE(needs_grad(net.out.weight));
  EXPECT_FALSE(needs_grad(net.in.weight)) << "frozen for good";
  optim::Sgd sgd(parameters, {.lr = 0.1});
  const std::vector<double> before = net.out.weight.to_doubles();
  mean(square(net(x))).backward();
  sgd.step();
  EXPECT_NE(net.out.weight.to_doubles(), before);
}

TEST(FreezeScope, EndsInAnyOrder) {
  Net net;
  auto first = std::make_unique<nn::FreezeScope>(net), second = std::make_unique<nn::FreezeScope>(net);
  first.reset();
  EXPECT_FALSE(needs_grad(net.in.weight)) << "the second lives";
  second.reset();
  EXPECT_TRUE(needs_grad(net.in.weight));
}

TEST(FreezeScope, RefusesWhatReplacesParameters) {
  Net net;
  {
    const nn::FreezeScope frozen(net.in);
    const auto message = [](auto&& f) { return test::error_message<UsageError>(f); };
    EXPECT_PRED2(test::contains, message([&] { net.to(DType::f64); }), "end the scope first");
    EXPECT_PRED2(test::contains, message([&] { net.freeze(); }), "end the scope first");
    EXPECT_PRED2(test::contains, message([&] { FlatParameters{net.parameters()}; }), "end the scope first");
    net.out.freeze();
  }
  net.to(DType::f64);
  EXPECT_TRUE(needs_grad(net.in.weight));
  EXPECT_FALSE(needs_grad(net.out.weight));
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

TEST(Hooks, EmptyOnesAreRefused) {
  Net net;
  EXPECT_THROW(net.on_forward(nullptr), UsageError);
  EXPECT_THROW(net.on_backward(nullptr), UsageError);
  EXPECT_NO_THROW((void)net(x));
}

TEST(Hooks, MayRegisterHooks) {
  Net net;
  int calls = 0;
  net.in.on_forward([&](const nn::Module&, const Tensor&) {
    ++calls;
    for (int i = 0; i < 50; ++i) net.in.on_forward([&](const nn::Module&, const Tensor&) { calls += 1000; });
  });
  (void)net(x);
  EXPECT_EQ(calls, 1) << "those that are registered meanwhile see the next call";
  (void)net(x);
  EXPECT_EQ(calls, 2 + 50 * 1000);
}

TEST(Hooks, OfParametersStayWithThem) {
  Net net;
  int calls = 0, ready = 0;
  net.in.weight.register_hook([&](const Tensor&) {
    ++calls;
    return Tensor();
  });
  on_grad_ready(net.in.weight, [&] { ++ready; });
  const auto backward_calls = [&] {
    calls = ready = 0;
    mean(square(net(x.to(net.in.weight.dtype())))).backward();
    return std::pair(calls, ready);
  };
  EXPECT_EQ(backward_calls(), std::pair(1, 1));
  net.to(DType::f64);
  EXPECT_EQ(backward_calls(), std::pair(1, 1));
  net.in.freeze();
  EXPECT_EQ(backward_calls(), std::pair(0, 0));
  net.to(DType::f32);
  EXPECT_EQ(backward_calls(), std::pair(0, 0)) << "frozen as before";
  net.in.freeze(false);
  EXPECT_EQ(backward_calls(), std::pair(1, 1));
  const FlatParameters parameters(net.parameters());
  EXPECT_EQ(backward_calls(), std::pair(1, 1));
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

TEST(ModuleFile, OfLowPrecisionItHasTheWideValues) {
  const test::TempDir dir;
  const std::string path = (dir.path() / "net.safetensors").string();
  for (const LowPrecisionCopy::Use use : {LowPrecisionCopy::Use::instead, LowPrecisionCopy::Use::beside}) {
    Net net(1), other(2);
    FlatParameters parameters(net.parameters(), LowPrecisionCopy{DType::bf16, use});
    optim::Sgd sgd(parameters, {.lr = 0.1});
    {
      const AutocastScope low(DType::bf16);
      mean(square(net(x))).backward();
    }
    sgd.step();
    nn::save(net, path);
    nn::load(other, path);
    for (std::size_t i = 0; i < parameters.entries().size(); ++i) {
      const FlatParameters::Entry& entry = parameters.entries()[i];
      EXPECT_EQ(other.parameters()[i].tensor->to_doubles(), entry.master.to_doubles()) << entry.name;
    }
    const bool rounded = net.in.weight.to_doubles() != other.in.weight.to_doubles();
    EXPECT_EQ(rounded, use == LowPrecisionCopy::Use::instead);
  }
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

TEST(ModuleFile, PyTorchsCountersOfBatchesAreLeftOut) {
  const test::TempDir dir;
  const std::string path = (dir.path() / "net.safetensors").string();
  Net net(1), other(2);
  std::vector<NamedTensor> named = net.parameters();
  for (const NamedTensor& buffer : net.buffers()) named.push_back(buffer);
  const auto write = [&](const std::string& name, const Tensor& value) {
    std::vector<SafetensorsEntry> entries;
    for (const NamedTensor& one : named)
      entries.push_back(
          {one.name, one.tensor->dtype(), one.tensor->shape(), {one.tensor->bytes(), one.tensor->byte_size()}});
    entries.push_back({name, value.dtype(), value.shape(), {value.bytes(), value.byte_size()}});
    write_safetensors(path, std::move(entries));
  };
  const Tensor count = Tensor::full({}, 7, DType::i64);
  write("norm.num_batches_tracked", count);
  nn::load(other, path);
  EXPECT_EQ(other.in.weight.to_doubles(), net.in.weight.to_doubles());
  for (const char* name : {"norm.num_batches", "num_batches_tracked", "norm.num_batches_tracked.more"}) {
    write(name, count);
    EXPECT_PRED2(test::contains, test::error_message<FileError>([&] { nn::load(other, path); }), name);
  }
}

TEST(ModuleFile, WeightsThatNobodyMadeAreNotSaved) {
  const test::TempDir dir;
  const std::string path = (dir.path() / "layer.safetensors").string();
  nn::Linear layer(3, 4), loaded(3, 4);
  const std::string message = test::error_message<UsageError>([&] { nn::save(layer, path); });
  EXPECT_PRED2(test::contains, message, "\"weight\" [4, 3] was never initialized; call nn::initialize(model, seed)");
  EXPECT_FALSE(std::filesystem::exists(path));
  nn::initialize(layer, 1);
  nn::save(layer, path);
  nn::load(loaded, path);
  EXPECT_NO_THROW(nn::save(loaded, path)) << "loaded weights are some";
}

}  // namespace
}  // namespace hearth::module_use_test
