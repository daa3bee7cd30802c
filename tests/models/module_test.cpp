// SPDX-License-Identifier: Apache-2.0
// The module tree: names, modes, initial values, observers, and what it refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "autograd/grad_state.h"
#include "autograd/parameters.h"
#include "core/cpu/parallel.h"
#include "models/nn/nn.h"
#include "tests/models/small_modules.h"
#include "tests/support/error_message.h"

namespace hearth::module_test {
namespace {

using test::Branch;
using test::Leaf;

struct Tree : nn::Module {
  Branch branch;
  nn::ModuleList list;
  Tree() {
    register_module("branch", branch);
    list.add<Leaf>();
    list.add_named<Leaf>("5");
    register_module("list", list);
  }
  Tensor forward(const Tensor& x) override { return list(branch(x)); }
};

/// A branch without a name, beside a part of this module's own.
struct Joined : nn::Module {
  Branch branch;
  Leaf other;
  Joined() {
    register_module(branch);
    register_module("other", other);
  }
  Tensor forward(const Tensor& x) override { return branch(x); }
};

std::vector<std::string> names_of(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> names;
  for (const NamedTensor& tensor : tensors) names.push_back(tensor.name);
  return names;
}

// A copy would share its children's registration with the original.
static_assert(!std::is_copy_constructible_v<Leaf> && !std::is_copy_assignable_v<Leaf>);

TEST(ModuleTree, NamesInOrderOfDefinition) {
  Tree tree;
  EXPECT_EQ(names_of(tree.parameters()),
            (std::vector<std::string>{"branch.scale", "branch.left.weight", "branch.right.weight", "list.0.weight",
                                      "list.5.weight"}));
  EXPECT_EQ(names_of(tree.buffers()),
            (std::vector<std::string>{"branch.left.mean", "branch.right.mean", "list.0.mean", "list.5.mean"}));
  EXPECT_EQ(names_of(tree.branch.parameters()), (std::vector<std::string>{"scale", "left.weight", "right.weight"}));
  EXPECT_EQ(tree.branch.left.path(), "branch.left");
  EXPECT_EQ(tree.path(), "");
  EXPECT_EQ(tree.branch.left.type_name(), "Leaf");
  EXPECT_EQ(tree.list.type_name(), "ModuleList");
  EXPECT_EQ(tree.branch.left.depth(), 2);
  EXPECT_EQ(tree.parameter_count(), 4 * 6 + 1);
  int visited = 0;
  tree.for_each_module([&](nn::Module&) { ++visited; });
  EXPECT_EQ(visited, 7);
}

TEST(ModuleTree, PartsOfAnUnnamedModuleAreNamedAsItsParents) {
  Joined joined;
  EXPECT_EQ(names_of(joined.parameters()),
            (std::vector<std::string>{"scale", "left.weight", "right.weight", "other.weight"}));
  EXPECT_EQ(names_of(joined.buffers()), (std::vector<std::string>{"left.mean", "right.mean", "other.mean"}));
  EXPECT_EQ(joined.branch.path(), "");
  EXPECT_EQ(joined.branch.left.path(), "left");
  EXPECT_EQ(joined.branch.left.depth(), 1);
  // Values follow from names: those of a branch alone.
  Branch alone;
  nn::initialize(joined, 7);
  nn::initialize(alone, 7);
  EXPECT_EQ(joined.branch.left.weight.to_doubles(), alone.left.weight.to_doubles());
  joined.eval();
  EXPECT_FALSE(joined.branch.left.is_training());

  nn::ModuleList list;
  list.add_unnamed<Branch>();
  list.add<Leaf>();
  EXPECT_EQ(names_of(list.parameters()),
            (std::vector<std::string>{"scale", "left.weight", "right.weight", "1.weight"}));
}

// A name is taken once, whether by a part of a module's own or of an unnamed one's.
TEST(ModuleTree, NamesOfUnnamedModulesAreTaken) {
  struct Misuse : nn::Module {
    Branch branch, twin;
    Leaf leaf;
    Tensor tensor = Tensor::zeros({1});
    explicit Misuse(int kind) {
      if (kind == 3) register_module("right", leaf);
      register_module(branch);
      if (kind == 0) register_module(branch);
      if (kind == 1) register_module(twin);
      if (kind == 2) register_module("left", leaf);
      if (kind == 4) parameter("scale", tensor, nn::init::ones());
    }
    Tensor forward(const Tensor& x) override { return x; }
  };
  for (int kind = 0; kind <= 4; ++kind) EXPECT_THROW(Misuse{kind}, UsageError) << kind;
  EXPECT_NO_THROW(Misuse{5});
}

TEST(ModuleTree, ParametersAreLeavesAndTheHandlesAreTheMembers) {
  Tree tree;
  EXPECT_EQ(tree.parameters()[1].tensor, &tree.branch.left.weight);
  EXPECT_TRUE(needs_grad(tree.branch.left.weight));
  EXPECT_FALSE(needs_grad(tree.branch.left.mean));
  nn::initialize(tree, 1);
  FlatParameters flat(tree.parameters());
  EXPECT_TRUE(tree.branch.left.weight.same_storage(flat.values()));
}

TEST(ModuleTree, ModeIsRecursive) {
  Tree tree;
  EXPECT_TRUE(tree.branch.left.is_training());
  tree.eval();
  EXPECT_FALSE(tree.is_training());
  EXPECT_FALSE(tree.branch.left.is_training());
  EXPECT_FALSE(tree.list[1].is_training());
  tree.train();
  EXPECT_TRUE(tree.list[1].is_training());
}

TEST(ModuleTree, Conversion) {
  Tree tree;
  nn::initialize(tree, 1);
  const std::vector<double> before = tree.branch.left.weight.to_doubles();
  tree.to(DType::f64);
  EXPECT_EQ(tree.branch.left.weight.dtype(), DType::f64);
  EXPECT_EQ(tree.branch.left.mean.dtype(), DType::f64);
  EXPECT_EQ(tree.branch.left.weight.to_doubles(), before);
  EXPECT_TRUE(needs_grad(tree.branch.left.weight));
  EXPECT_THROW(tree.to(DType::bf16), DTypeError);
}

TEST(ModuleTree, TiedWeightsStayTied) {
  Tree tree;
  tree.branch.right.weight = tree.branch.left.weight;
  tree.to(DType::f64);
  EXPECT_TRUE(tree.branch.right.weight.same_storage(tree.branch.left.weight));
  EXPECT_EQ(tree.branch.right.weight.grad_state(), tree.branch.left.weight.grad_state());
  if (device_count(DeviceType::cuda) > 0) {
    tree.to(Device{DeviceType::cuda, 0});
    EXPECT_TRUE(tree.branch.right.weight.same_storage(tree.branch.left.weight));
  }
  nn::initialize(tree, 1);
  const FlatParameters flat(tree.parameters());
  EXPECT_EQ(flat.entries().size(), tree.parameters().size() - 1);
}

// What trains the parameters would keep the old ones.
TEST(ModuleTree, ParametersMadeFlatStayWhereTheyAre) {
  Tree tree;
  nn::initialize(tree, 1);
  const std::vector<double> before = tree.list[1].parameters().front().tensor->to_doubles();
  {
    const FlatParameters flat(tree.parameters());
    const std::string text = test::error_message<UsageError>([&] { tree.to(DType::f64); });
    for (const char* part : {"Tree", "branch.scale", "f32", "FlatParameters", "call to() before"})
      EXPECT_PRED2(test::contains, text, part);
    EXPECT_THROW(tree.list[1].to(DType::f64), UsageError);
    EXPECT_EQ(tree.branch.left.mean.dtype(), DType::f32) << "nothing was changed";
    EXPECT_NO_THROW(tree.to(DType::f32));
    EXPECT_NO_THROW(tree.to(Device{}));
    const Device gpu{DeviceType::cuda, 0};
    if (device_count(DeviceType::cuda) > 0) {
      EXPECT_THROW(tree.to(gpu), UsageError);
    }
    EXPECT_TRUE(tree.branch.scale.same_storage(flat.values()));
  }
  tree.to(DType::f64);
  EXPECT_EQ(tree.list[1].parameters().front().tensor->to_doubles(), before);

  FlatParameters last({tree.parameters().back()});
  EXPECT_THROW(tree.to(DType::f32), UsageError);
  EXPECT_EQ(tree.branch.scale.dtype(), DType::f64);
  const FlatParameters copy = std::move(last);
  EXPECT_THROW(tree.to(DType::f32), UsageError);
}

struct Misuse : nn::Module {
  Tensor weight = Tensor::zeros({1});
  Tensor absent;
  Leaf leaf;
  explicit Misuse(int kind) {
    parameter("weight", weight, nn::init::zeros());
    if (kind == 0) parameter("weight", weight, nn::init::zeros());
    if (kind == 1) register_module("weight", leaf);
    if (kind == 2) register_module("", leaf);
    if (kind == 3) register_module("a.b", leaf);
    if (kind == 4) parameter("absent", absent, nn::init::zeros());
    if (kind == 5) register_module("self", *this);
    if (kind == 6) parameter("other", weight, {});
    if (kind == 7) buffer("absent", absent);
    if (kind == 8) {
      register_module("once", leaf);
      register_module("twice", leaf);
    }
  }
  Tensor forward(const Tensor& x) override { return x; }
};

TEST(ModuleTree, MisuseIsRefused) {
  for (int kind = 0; kind <= 8; ++kind) EXPECT_THROW(Misuse{kind}, UsageError) << kind;
  EXPECT_NO_THROW(Misuse{9});
}

TEST(ModuleList, IndexIsChecked) {
  nn::ModuleList list;
  EXPECT_THROW(list[0], IndexError);
  list.add<Leaf>();
  EXPECT_EQ(list[0].name(), "0");
  EXPECT_THROW(list[1], IndexError);
}

/// A convolution and its norm, by themselves and as one layer, of the same initial values.
struct Pairs : nn::Module {
  nn::Conv2d conv{8, 16, {.stride = 2, .padding = 1}};
  nn::BatchNorm norm{16, {.momentum = 0.3, .activation = Activation::relu}};
  nn::ConvNorm both{8, 16, {.stride = 2, .padding = 1}, {.momentum = 0.3, .activation = Activation::relu}};
  Pairs() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("both", both);
    nn::initialize(*this, 3);
    both.convolution.weight.copy_from(conv.weight);
    both.convolution.bias.copy_from(conv.bias);
  }
  Tensor forward(const Tensor& x) override { return norm(conv(x)); }
};

TEST(ConvNorm, IsBothLayersOneAfterTheOther) {
  Pairs pairs;
  EXPECT_EQ(names_of(pairs.both.parameters()),
            (std::vector<std::string>{"conv.weight", "conv.bias", "norm.weight", "norm.bias"}));
  EXPECT_EQ(names_of(pairs.both.buffers()), (std::vector<std::string>{"norm.running_mean", "norm.running_var"}));
  Tensor x = Tensor::zeros({2, 6, 6, 8}), residual = Tensor::zeros({2, 3, 3, 16});
  const nn::Init normal = nn::init::normal(1.0);
  normal(x, nn::InitStream(1, "x"));
  normal(residual, nn::InitStream(1, "residual"));
  for (const bool training : {true, false}) {
    pairs.train(training);
    EXPECT_EQ(pairs.both(x).to_doubles(), pairs.norm(pairs.conv(x)).to_doubles());
    EXPECT_EQ(pairs.both(x, residual).to_doubles(), pairs.norm(pairs.conv(x), residual).to_doubles());
    EXPECT_EQ(pairs.both.norm.running_var.to_doubles(), pairs.norm.running_var.to_doubles());
  }
  EXPECT_THROW(nn::ConvNorm(8, 16, {.groups = 3}), ShapeError);
  EXPECT_THROW(nn::ConvNorm(8, 16, {}, {.eps = 0}), ShapeError);
  EXPECT_THROW(nn::ConvNorm(8, 16, {}, {}, {"same", "same"}), UsageError);
}

class Recorder : public nn::CallObserver {
 public:
  void before(const nn::Module& module) override { seen.push_back("+" + module.path()); }
  void after(const nn::Module& module, const Tensor&) override { seen.push_back("-" + module.path()); }
  std::vector<std::string> seen;
};

TEST(ModuleObserver, SeesCallsWhileInstalled) {
  Branch branch;
  Recorder recorder;
  const Tensor x = Tensor::zeros({1});
  branch(x);
  {
    const nn::ObserverScope scope(recorder);
    branch(x);
  }
  branch(x);
  EXPECT_EQ(recorder.seen, (std::vector<std::string>{"+", "+left", "-left", "+right", "-right", "-"}));
}

TEST(ModuleObserver, SeesThePartsOfAnUnnamedModuleOnly) {
  Joined joined;
  Recorder recorder;
  {
    const nn::ObserverScope scope(recorder);
    joined(Tensor::zeros({1}));
  }
  EXPECT_EQ(recorder.seen, (std::vector<std::string>{"+", "+left", "-left", "+right", "-right", "-"}));
  const auto rows = nn::summarize(joined, {Tensor::zeros({4, 5})});
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[1].depth, 1);
}

TEST(ModuleSummary, RowsNameModules) {
  Branch branch;
  const auto rows = nn::summarize(branch, {Tensor::zeros({4, 5})});
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].type, "Branch");
  EXPECT_EQ(rows[0].parameters, 13);
  EXPECT_EQ(rows[2].path, "right");
  EXPECT_EQ(rows[2].output, Shape({4, 5}));
  EXPECT_TRUE(branch.is_training());
  branch.right.eval();
  (void)nn::summarize(branch, {Tensor::zeros({4, 5})});
  EXPECT_TRUE(branch.left.is_training());
  EXPECT_FALSE(branch.right.is_training()) << "each part as it was";
}

TEST(Initialize, DependsOnSeedAndNameOnly) {
  Tree first, second;
  nn::initialize(first, 7);
  const int threads = cpu::threads();
  cpu::set_threads(3);
  nn::initialize(second, 7);
  cpu::set_threads(threads);
  EXPECT_EQ(first.branch.left.weight.to_doubles(), second.branch.left.weight.to_doubles());
  EXPECT_NE(first.branch.left.weight.to_doubles(), first.branch.right.weight.to_doubles());
  nn::initialize(second, 8);
  EXPECT_NE(first.branch.left.weight.to_doubles(), second.branch.left.weight.to_doubles());
  EXPECT_EQ(first.branch.scale.item(), 1.0);
}

struct Moments {
  double mean = 0, deviation = 0, largest = 0;
};

Moments moments_of(const nn::Init& init, const Shape& shape, std::uint64_t seed = 5) {
  const Tensor tensor = Tensor::zeros(shape);
  init(tensor, nn::InitStream(seed, "weight"));
  Moments result;
  const std::vector<double> values = tensor.to_doubles();
  const double n = static_cast<double>(values.size());
  for (const double value : values) {
    result.mean += value / n;
    result.deviation += value * value / n;
    result.largest = std::max(result.largest, std::abs(value));
  }
  result.deviation = std::sqrt(result.deviation);
  return result;
}

TEST(Init, DistributionsHaveTheirMoments) {
  const Shape filter{64, 3, 3, 32};  // fan in 288, fan out 576
  const auto expect = [](const Moments& found, double deviation, double bound) {
    EXPECT_NEAR(found.mean, 0.0, 4 * deviation / std::sqrt(18432.0));
    EXPECT_NEAR(found.deviation / deviation, 1.0, 0.03);
    EXPECT_LE(found.largest, bound);
    EXPECT_GT(found.largest, 0.98 * std::min(bound, 3.5 * deviation));
  };
  const double none = 1e9;
  expect(moments_of(nn::init::normal(0.5), filter), 0.5, none);
  expect(moments_of(nn::init::uniform(0.5), filter), 0.5 / std::sqrt(3.0), 0.5);
  expect(moments_of(nn::init::kaiming_normal_fan_out(), filter), std::sqrt(2.0 / 576), none);
  expect(moments_of(nn::init::kaiming_uniform(), filter), 1 / std::sqrt(3.0 * 288), 1 / std::sqrt(288.0));
  expect(moments_of(nn::init::xavier_uniform(2.0), filter), 2 * std::sqrt(2.0 / 864), 2 * std::sqrt(6.0 / 864));
  expect(moments_of(nn::init::xavier_normal(), filter), std::sqrt(2.0 / 864), none);
  // A normal cut at two deviations has the deviation 0.8796.
  expect(moments_of(nn::init::trunc_normal(0.5), filter), 0.5 * 0.87962566, 1.0);
}

TEST(Init, OrthogonalRowsOrColumns) {
  for (const Shape& shape : {Shape{6, 20}, Shape{20, 6}, Shape{4, 2, 2, 3}}) {
    const Tensor tensor = Tensor::zeros(shape, DType::f64);
    nn::init::orthogonal(2.0)(tensor, nn::InitStream(1, "w"));
    const std::int64_t rows = shape[0], columns = shape.size() / rows;
    const double* w = tensor.data<double>();
    const bool wide = columns >= rows;
    const std::int64_t count = wide ? rows : columns, length = wide ? columns : rows;
    const auto at = [&](std::int64_t i, std::int64_t j) { return wide ? w[i * columns + j] : w[j * columns + i]; };
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t k = 0; k < count; ++k) {
        double product = 0;
        for (std::int64_t j = 0; j < length; ++j) product += at(i, j) * at(k, j);
        EXPECT_NEAR(product, i == k ? 4.0 : 0.0, 1e-12);
      }
    }
  }
}

TEST(Init, RefusesWhatHasNoFans) {
  const Tensor vector = Tensor::zeros({4});
  const nn::InitStream stream(1, "w");
  EXPECT_THROW(nn::init::kaiming_uniform()(vector, stream), ShapeError);
  EXPECT_THROW(nn::init::xavier_normal()(vector, stream), ShapeError);
  EXPECT_THROW(nn::init::orthogonal()(vector, stream), ShapeError);
  EXPECT_THROW(nn::init::normal(1.0)(Tensor::zeros({4}, DType::i32), stream), DTypeError);
}

TEST(Init, SinglePrecisionIsDoubleRounded) {
  const Tensor wide = Tensor::zeros({50, 200}, DType::f64), narrow = Tensor::zeros({50, 200});
  nn::init::normal(1.0)(wide, nn::InitStream(3, "w"));
  nn::init::normal(1.0)(narrow, nn::InitStream(3, "w"));
  EXPECT_EQ(wide.to(DType::f32).to_doubles(), narrow.to_doubles());
}

TEST(Layers, BadSizesAreRefused) {
  EXPECT_THROW(nn::Linear(0, 4), ShapeError);
  EXPECT_THROW(nn::Linear(4, -1), ShapeError);
  EXPECT_THROW(nn::Conv2d(3, 8, {.kernel = 0}), ShapeError);
  EXPECT_THROW(nn::Conv2d(3, 8, {.stride = 0}), ShapeError);
  EXPECT_THROW(nn::Conv2d(3, 8, {.padding = -1}), ShapeError);
  EXPECT_THROW(nn::Conv2d(3, 8, {.groups = 2}), ShapeError);
  EXPECT_THROW(nn::Conv2d(3, 8, {.groups = 0}), ShapeError);
  EXPECT_THROW(nn::Conv2d(std::int64_t{1} << 40, std::int64_t{1} << 40, {.kernel = 3}), ShapeError);
  EXPECT_THROW(nn::BatchNorm(0), ShapeError);
  EXPECT_THROW(nn::BatchNorm(4, {.eps = 0}), ShapeError);
  EXPECT_THROW(nn::LayerNorm(0), ShapeError);
  EXPECT_THROW(nn::Dropout(1.0), UsageError);
  EXPECT_THROW(nn::Dropout(std::nan("")), UsageError);
  EXPECT_THROW(nn::DropPath(1.0), UsageError);
  EXPECT_THROW(nn::DropPath(-0.1), UsageError);
  EXPECT_THROW(nn::Embedding(0, 4), ShapeError);
}

TEST(DropPathLayer, DropsWholeSamplesInTrainingOnly) {
  nn::DropPath layer(0.5);
  const Tensor x = Tensor::full({40, 3}, 1.0), residual = Tensor::full({40, 3}, 4.0);
  const RandomScope scope(1, 2);
  const std::vector<double> y = layer.add_to(residual, x).to_doubles();
  int kept = 0;
  for (std::size_t i = 0; i < y.size(); i += 3) {
    EXPECT_TRUE(y[i] == 4 || y[i] == 6) << y[i];
    EXPECT_TRUE(y[i + 1] == y[i] && y[i + 2] == y[i]);
    kept += y[i] == 6 ? 1 : 0;
  }
  EXPECT_TRUE(kept > 5 && kept < 35) << kept;
  EXPECT_EQ(layer.rate(), 0.5);
  layer.train(false);
  EXPECT_EQ(layer.rate(), 0);
  EXPECT_EQ(layer(x).to_doubles(), x.to_doubles());
  EXPECT_EQ(layer.add_to(residual, x).to_doubles(), Tensor::full({40, 3}, 5.0).to_doubles());
}

}  // namespace
}  // namespace hearth::module_test
