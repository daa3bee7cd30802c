// SPDX-License-Identifier: Apache-2.0
// Modules that are destroyed before those that they are registered with, and after.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "autograd/parameters.h"
#include "core/origin.h"
#include "models/nn/nn.h"
#include "tests/models/small_modules.h"
#include "tests/support/error_message.h"

namespace hearth::module_lifetime_test {
namespace {

using test::Branch;
using test::Leaf;

std::vector<std::string> names_of(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> names;
  for (const NamedTensor& tensor : tensors) names.push_back(tensor.name);
  return names;
}

/// Whose head may be replaced.
struct WithHead : nn::Module {
  Leaf trunk;
  std::unique_ptr<Leaf> head;
  WithHead() {
    register_module("trunk", trunk);
    replace_head();
  }
  void replace_head() {
    head = std::make_unique<Leaf>();
    register_module("head", *head);
  }
  Tensor forward(const Tensor& x) override { return (*head)(trunk(x)); }
};

TEST(ModuleLifetime, APartThatIsDestroyedLeavesItsParent) {
  WithHead model;
  model.replace_head();
  model.replace_head();
  EXPECT_EQ(names_of(model.parameters()), (std::vector<std::string>{"trunk.weight", "head.weight"}));
  EXPECT_EQ(model.parameter_count(), 12);
  EXPECT_EQ(model.head->path(), "head");
  model.head.reset();
  EXPECT_EQ(names_of(model.buffers()), std::vector<std::string>{"trunk.mean"});
  model.replace_head();
  nn::initialize(model, 1);
  FlatParameters flat(model.parameters());
  EXPECT_PRED2(test::contains, test::error_message<UsageError>([&] { model.replace_head(); }),
               "part of FlatParameters");
}

/// What reports about its ops call the module.
std::string origin_within(nn::Module& module) {
  struct Watching : nn::CallObserver {
    std::string seen;
    void before(const nn::Module&) override { seen = current_origin().layer; }
    void after(const nn::Module&, const Tensor&) override {}
  } observer;
  const nn::ObserverScope scope(observer);
  (void)module(Tensor::zeros({1}));
  return observer.seen;
}

TEST(ModuleLifetime, PartsThatOutliveTheirParentAreFreeForAnother) {
  struct Wrapper : nn::Module {
    Wrapper(const std::string& name, nn::Module& inner) { register_module(name, inner); }
  };
  Branch branch;
  {
    Wrapper first("first", branch);
    EXPECT_EQ(branch.left.path(), "first.left");
    EXPECT_EQ(origin_within(branch.left), "first.left");
  }
  EXPECT_EQ(branch.path(), "");
  EXPECT_EQ(branch.name(), "");
  EXPECT_EQ(branch.depth(), 0);
  EXPECT_EQ(branch.left.path(), "left");
  EXPECT_EQ(origin_within(branch.left), "left");
  Wrapper second("second", branch);
  EXPECT_EQ(branch.left.path(), "second.left");
  EXPECT_EQ(names_of(second.parameters()).front(), "second.scale");
}

}  // namespace
}  // namespace hearth::module_lifetime_test
