// SPDX-License-Identifier: Apache-2.0
// The reference models: shapes, names and sizes as torchvision has them, configuration, weight layout.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/random.h"
#include "models/mlp.h"
#include "models/registry.h"
#include "models/resnet.h"
#include "models/swin.h"
#include "models/vgg.h"
#include "models/weights/import.h"
#include "ops/ops.h"
#include "tests/support/error_message.h"

namespace hearth::networks_test {
namespace {

Tensor random_images(const Shape& shape, std::uint64_t seed) {
  const Tensor x = Tensor::empty(shape);
  Random random(seed, 0);
  for (std::int64_t i = 0; i < x.size(); ++i) x.data<float>()[i] = static_cast<float>(random.normal());
  return x;
}

std::unique_ptr<nn::Module> model(const std::string& text, const models::InputInfo& input = {
                                                               .height = 8, .width = 8, .channels = 1, .classes = 5}) {
  return models::make(parse_json(text, "test"), input);
}

double deviation_of(const Tensor& tensor) {
  double squares = 0;
  for (const double value : tensor.to_doubles()) squares += value * value;
  return std::sqrt(squares / static_cast<double>(tensor.size()));
}

std::vector<std::string> names_of(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> names;
  for (const NamedTensor& tensor : tensors) names.push_back(tensor.name);
  return names;
}

bool has(const std::vector<std::string>& names, const char* name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

TEST(ResNet, ParameterCountsAreTorchvisions) {
  EXPECT_EQ(models::ResNet({.depth = 18}).parameter_count(), 11'689'512);
  EXPECT_EQ(models::ResNet({.depth = 34}).parameter_count(), 21'797'672);
  EXPECT_EQ(models::ResNet({.depth = 50}).parameter_count(), 25'557'032);
  EXPECT_EQ(models::ResNet({.depth = 101}).parameter_count(), 44'549'160);
}

TEST(ResNet, NamesAreTorchvisions) {
  models::ResNet resnet({.depth = 50});
  const std::vector<std::string> names = names_of(resnet.parameters());
  const std::vector<std::string> beginning(names.begin(), names.begin() + 15);
  EXPECT_EQ(beginning,
            (std::vector<std::string>{"conv1.weight", "bn1.weight", "bn1.bias", "layer1.0.conv1.weight",
                                      "layer1.0.bn1.weight", "layer1.0.bn1.bias", "layer1.0.conv2.weight",
                                      "layer1.0.bn2.weight", "layer1.0.bn2.bias", "layer1.0.conv3.weight",
                                      "layer1.0.bn3.weight", "layer1.0.bn3.bias", "layer1.0.downsample.0.weight",
                                      "layer1.0.downsample.1.weight", "layer1.0.downsample.1.bias"}));
  EXPECT_EQ(names.size(), 161u);
  EXPECT_EQ(names[159], "fc.weight");
  EXPECT_EQ(names[160], "fc.bias");
  EXPECT_TRUE(has(names, "layer4.2.bn3.bias"));
  EXPECT_FALSE(has(names, "layer2.1.downsample.0.weight"));
  EXPECT_TRUE(has(names_of(resnet.buffers()), "layer3.5.bn2.running_var"));
  EXPECT_EQ(resnet.buffers().size(), 106u);
}

TEST(ResNet, ShapesOfBothStems) {
  models::ResNet imagenet({.blocks = {1, 1}, .width = 8, .classes = 7});
  nn::initialize(imagenet, 1);
  const auto rows = nn::summarize(imagenet, {random_images({2, 32, 32, 3}, 1)});
  EXPECT_EQ(rows.front().output, Shape({2, 7}));
  EXPECT_GT(rows.front().flops, 0.0);
  const auto output_of = [&](const std::string& path) {
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return r.path == path; });
    return row == rows.end() ? Shape() : row->output;
  };
  EXPECT_EQ(output_of("conv1"), Shape({2, 16, 16, 8}));
  EXPECT_EQ(output_of("layer1"), Shape({2, 8, 8, 8}));
  EXPECT_EQ(output_of("layer2"), Shape({2, 4, 4, 16}));
  EXPECT_EQ(output_of("layer2.0.downsample"), Shape({2, 4, 4, 16}));
  EXPECT_EQ(output_of("layer2.0.bn2"), Shape({2, 4, 4, 16}));

  models::ResNet small({.blocks = {1, 2, 1},
                        .bottleneck = true,
                        .stem = models::ResNetStem::small,
                        .width = 4,
                        .in_channels = 1,
                        .classes = 5});
  nn::initialize(small, 1);
  EXPECT_EQ(small(random_images({3, 8, 8, 1}, 1)).shape(), Shape({3, 5}));
}

TEST(ResNet, EveryParameterGetsAGradient) {
  auto resnet = model(R"({"type": "resnet", "depth": 10, "width": 4, "stem": "small"})");
  nn::initialize(*resnet, 3);
  FlatParameters flat(resnet->parameters());
  const Tensor labels = Tensor::of<std::int64_t>({4}, {0, 1, 2, 3});
  backward(cross_entropy((*resnet)(random_images({4, 8, 8, 1}, 2)), labels));
  for (const auto& entry : flat.entries()) {
    const std::vector<double> gradient = grad_of(entry.value).to_doubles();
    EXPECT_TRUE(std::any_of(gradient.begin(), gradient.end(), [](double g) { return g != 0; })) << entry.name;
  }
}

TEST(ResNet, ZeroInitResidualStartsBlocksAsIdentity) {
  models::ResNet resnet({.blocks = {2}, .stem = models::ResNetStem::small, .width = 4, .zero_init_residual = true});
  nn::initialize(resnet, 1);
  for (const NamedTensor& parameter : resnet.parameters()) {
    if (!parameter.name.ends_with(".weight") || parameter.tensor->rank() != 1) continue;
    const double expected = parameter.name.ends_with(".bn2.weight") ? 0.0 : 1.0;
    EXPECT_EQ(parameter.tensor->to_doubles()[0], expected) << parameter.name;
  }
}

TEST(ResNet, MakesTheFirstStagesWithTheirStrides) {
  models::ResNet model({.depth = 18, .stages = 3, .strides = {1, 2, 1}, .width = 4, .classes = 0});
  EXPECT_EQ(model.feature_channels(), (std::vector<std::int64_t>{4, 8, 16}));
  const std::vector<Tensor> maps = model.features(Tensor::zeros({1, 67, 50, 3}));
  ASSERT_EQ(maps.size(), 3U);
  EXPECT_EQ(maps[0].shape(), (Shape{1, 17, 13, 4}));
  EXPECT_EQ(maps[1].shape(), (Shape{1, 9, 7, 8}));
  EXPECT_EQ(maps[2].shape(), (Shape{1, 9, 7, 16}));
  EXPECT_THROW(models::ResNet({.depth = 18, .stages = 5}), ShapeError);
  EXPECT_THROW(models::ResNet({.depth = 18, .stages = -1}), ShapeError);
  EXPECT_THROW(models::ResNet({.depth = 18, .strides = {1, 2, 1}}), ShapeError);
  EXPECT_THROW(models::ResNet({.depth = 18, .stages = 1, .strides = {0}}), ShapeError);
}

TEST(ResNet, BadOptionsAreRefused) {
  EXPECT_THROW(models::ResNet({.depth = 20}), ConfigError);
  EXPECT_THROW(models::ResNet({.blocks = {1, 0}}), ShapeError);
  EXPECT_THROW(models::ResNet({.blocks = {1, 1, 1, 1, 1, 1, 1}}), ShapeError);
  EXPECT_THROW(models::ResNet({.depth = 18, .width = 0}), ShapeError);
  EXPECT_THROW(models::ResNet({.depth = 18, .in_channels = 0}), ShapeError);
  EXPECT_THROW(models::ResNet({.depth = 18, .classes = -1}), ShapeError);
}

TEST(Vgg, ParameterCountsAndNamesAreTorchvisions) {
  models::Vgg plain({.depth = 16});
  EXPECT_EQ(plain.parameter_count(), 138'357'544);
  const std::vector<std::string> names = names_of(plain.parameters());
  EXPECT_EQ(names.front(), "features.0.weight");
  EXPECT_TRUE(has(names, "features.28.bias"));
  EXPECT_TRUE(has(names, "classifier.3.weight"));
  EXPECT_EQ(names.back(), "classifier.6.bias");
  models::Vgg normed({.depth = 16, .batch_norm = true, .head = models::VggHead::small});
  const std::vector<std::string> normed_names = names_of(normed.parameters());
  EXPECT_TRUE(has(normed_names, "features.1.weight"));
  EXPECT_TRUE(has(normed_names, "features.41.bias"));
  EXPECT_TRUE(has(names_of(normed.buffers()), "features.41.running_mean"));
}

TEST(Vgg, ShapesOfBothHeads) {
  const Tensor x = random_images({2, 32, 32, 1}, 1);
  const models::InputInfo input{.height = 32, .width = 32, .channels = 1, .classes = 6};
  auto small = model(R"({"type": "vgg", "depth": 11, "head": "small", "width": 4, "batch_norm": true})", input);
  nn::initialize(*small, 1);
  EXPECT_EQ((*small)(x).shape(), Shape({2, 6}));
  auto large = model(R"({"type": "vgg", "depth": 11, "width": 2, "head_width": 8})", input);
  nn::initialize(*large, 1);
  large->eval();
  EXPECT_EQ((*large)(x).shape(), Shape({2, 6}));
  EXPECT_THROW((*large)(random_images({2, 64, 96, 1}, 1)), ShapeError);
  EXPECT_THROW((*large)(random_images({2, 16, 16, 1}, 1)), ShapeError);
  EXPECT_THROW(models::Vgg({.depth = 12}), ConfigError);
}

TEST(Models, LabelledDataHasAnOutputForEachClass) {
  const char* of_four = R"({"type": "mlp", "hidden": [3], "classes": 4})";
  models::InputInfo input{.height = 2, .width = 2, .channels = 1, .classes = 6};
  EXPECT_EQ(model(of_four, input)->parameters().back().tensor->shape(), Shape({4}));
  input.labelled = true;
  EXPECT_PRED2(test::contains, test::error_message<ConfigError>([&] { model(of_four, input); }),
               "/model/classes: 4, but the data has 6 classes; leave it out");
}

TEST(Swin, ParameterCountsAndNamesAreTorchvisions) {
  EXPECT_EQ(models::Swin({.size = models::SwinSize::tiny}).parameter_count(), 28'288'354);
  EXPECT_EQ(models::Swin({.size = models::SwinSize::small}).parameter_count(), 49'606'258);
  const models::SwinOptions mini{.size = models::SwinSize::mini, .window = 4, .in_channels = 1, .classes = 10};
  EXPECT_EQ(models::Swin(mini).parameter_count(), 2'083'240);
  const auto base = model(R"({"type": "swin", "size": "swin_b", "in_channels": 3, "classes": 1000})", {});
  EXPECT_EQ(base->parameter_count(), 87'768'224);
  const std::vector<std::string> names = names_of(base->parameters());
  EXPECT_EQ(names.front(), "features.0.0.weight");
  EXPECT_TRUE(has(names, "features.0.2.bias"));
  EXPECT_TRUE(has(names, "features.1.1.attn.relative_position_bias_table"));
  EXPECT_TRUE(has(names, "features.2.reduction.weight"));
  EXPECT_TRUE(has(names, "features.2.norm.bias"));
  EXPECT_FALSE(has(names, "features.2.reduction.bias"));
  EXPECT_TRUE(has(names, "features.5.17.mlp.3.weight"));
  EXPECT_TRUE(has(names, "features.7.1.attn.qkv.bias"));
  EXPECT_TRUE(has(names, "norm.weight"));
  EXPECT_EQ(names.back(), "head.bias");
  EXPECT_TRUE(base->buffers().empty());
}

/// Two stages for images of any size.
models::SwinOptions small_swin() {
  return {.depths = {2, 2}, .heads = {1, 2}, .width = 4, .patch = 2, .window = 3, .in_channels = 1, .classes = 5};
}

TEST(Swin, StartsFromTorchvisionsDeviation) {
  models::SwinOptions options = small_swin();
  options.width = 64;
  options.absolute_positions = true;
  options.image_size = 64;
  models::Swin swin(options);
  nn::initialize(swin, 1);
  double drawn = 0, squares = 0;
  for (const NamedTensor& named : swin.parameters()) {
    // The patches' convolution starts as PyTorch's do; norms and biases are constant.
    if (named.name.starts_with("features.0.") || named.name.ends_with("bias") || named.tensor->rank() == 1) continue;
    const double deviation = deviation_of(*named.tensor), size = static_cast<double>(named.tensor->size());
    EXPECT_NEAR(deviation / 0.02, 1, 5 / std::sqrt(2 * size)) << named.name;
    drawn += size;
    squares += size * deviation * deviation;
  }
  EXPECT_GT(drawn, 200'000);
  EXPECT_NEAR(std::sqrt(squares / drawn) / 0.02, 1, 0.01) << "0.88 if values beyond two deviations were drawn again";
}

TEST(Swin, TakesImagesOfAnySize) {
  models::Swin swin(small_swin());
  nn::initialize(swin, 1);
  for (const auto& [height, width] : {std::pair{12, 12}, {13, 9}, {6, 30}, {7, 6}})
    EXPECT_EQ(swin(random_images({2, height, width, 1}, 1)).shape(), Shape({2, 5})) << height << " x " << width;
  EXPECT_THROW(swin(random_images({2, 12, 12, 3}, 1)), ShapeError);
  EXPECT_THROW(swin(random_images({12, 12, 1}, 1)), ShapeError);
}

TEST(Swin, ImagesThatDoNotFitAreRefused) {
  const auto refusal = [](std::int64_t height, std::int64_t width, const models::SwinOptions& options) {
    models::Swin swin(options);
    return test::error_message<ShapeError>([&] { (void)swin(random_images({2, height, width, 1}, 1)); });
  };
  models::SwinOptions options = small_swin();
  EXPECT_PRED2(test::contains, refusal(1, 12, options), "1 x 12 pixels is smaller than a patch of 2");
  EXPECT_PRED2(
      test::contains, refusal(4, 30, options),
      "a window of 3 x 3 tokens is larger than the 2 x 15 tokens of an image of 4 x 30 pixels; use a window of "
      "at most 2");
  options.image_size = 12;
  EXPECT_PRED2(test::contains, refusal(12, 13, options), "12 x 13 pixels where \"image_size\" is 12");
  options = small_swin();
  options.depths = options.heads = {1, 1, 1, 1};
  options.window = 2;
  EXPECT_NO_THROW((void)models::Swin(options)(random_images({2, 10, 4, 1}, 1))) << "5 x 2, 3 x 1, 2 x 1 and 1 x 1";
  EXPECT_PRED2(test::contains, refusal(5, 5, options), "is a single token before stage 3, which would merge 2 x 2");
}

TEST(Swin, PlacesAreAddedToTokens) {
  struct Tokens : nn::CallObserver {
    Tensor seen = {};
    void before(const nn::Module&) override {}
    void after(const nn::Module& module, const Tensor& y) override {
      if (module.path() == "features.0") seen = y;
    }
  };
  const Tensor x = random_images({2, 9, 9, 1}, 1);
  const auto tokens_of = [&](models::Swin& swin) {
    Tokens tokens;
    const nn::ObserverScope scope(tokens);
    (void)swin(x);
    return tokens.seen.to_doubles();
  };
  models::SwinOptions options = small_swin();
  options.image_size = 9;
  models::Swin without(options);
  options.absolute_positions = true;
  models::Swin with(options);
  nn::initialize(without, 1);
  nn::initialize(with, 1);
  const NamedTensor places = with.parameters().front();
  EXPECT_EQ(places.name, "absolute_pos_embed");
  ASSERT_EQ(places.tensor->shape(), Shape({1, 16, 4}));
  const std::vector<double> place = places.tensor->to_doubles(), found = tokens_of(with), plain = tokens_of(without);
  EXPECT_NE(place, std::vector<double>(64));
  ASSERT_EQ(found.size(), 128U);
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], plain[i] + place[i % 64], 1e-6) << i;
}

TEST(Swin, EveryParameterGetsAGradient) {
  models::SwinOptions options = small_swin();
  options.absolute_positions = true;
  options.image_size = 13;
  models::Swin swin(options);
  nn::initialize(swin, 3);
  FlatParameters flat(swin.parameters());
  const Tensor labels = Tensor::of<std::int64_t>({4}, {0, 1, 2, 3});
  backward(cross_entropy(swin(random_images({4, 13, 13, 1}, 2)), labels));
  for (const auto& entry : flat.entries()) {
    const std::vector<double> gradient = grad_of(entry.value).to_doubles();
    EXPECT_TRUE(std::any_of(gradient.begin(), gradient.end(), [](double g) { return g != 0; })) << entry.name;
  }
}

TEST(Swin, DropsInTrainingOnly) {
  const Tensor x = random_images({2, 12, 12, 1}, 1);
  for (const bool of_attention : {false, true}) {
    models::SwinOptions options = small_swin();
    (of_attention ? options.attention_dropout : options.dropout) = 0.5;
    models::Swin swin(options);
    nn::initialize(swin, 1);
    EXPECT_NE(swin(x).to_doubles(), swin(x).to_doubles()) << of_attention;
    swin.eval();
    EXPECT_EQ(swin(x).to_doubles(), swin(x).to_doubles()) << of_attention;
  }
}

TEST(Swin, LaterBlocksAreLeftOutMoreOften) {
  // A sample for which both parts of a block are left out leaves it as it came.
  models::SwinOptions options = small_swin();
  options.drop_path = 0.99;
  models::Swin swin(options);
  nn::initialize(swin, 1);
  struct Counter : nn::CallObserver {
    std::vector<std::pair<std::string, Tensor>> seen = {};
    void before(const nn::Module&) override {}
    void after(const nn::Module& module, const Tensor& y) override { seen.emplace_back(module.path(), y); }
  } counter;
  {
    const nn::ObserverScope scope(counter);
    (void)swin(random_images({64, 8, 8, 1}, 2));
  }
  const auto output = [&](const std::string& path) {
    const auto found =
        std::find_if(counter.seen.begin(), counter.seen.end(), [&](const auto& s) { return s.first == path; });
    return found == counter.seen.end() ? std::vector<double>() : found->second.to_doubles();
  };
  const auto changed = [&](const std::string& before, const std::string& after) {
    const std::vector<double> x = output(before), y = output(after);
    const std::size_t size = x.size() / 64;
    int count = 0;
    for (std::size_t n = 0; n < 64 && x.size() == y.size(); ++n)
      count += std::equal(x.begin() + static_cast<std::ptrdiff_t>(n * size),
                          x.begin() + static_cast<std::ptrdiff_t>((n + 1) * size),
                          y.begin() + static_cast<std::ptrdiff_t>(n * size))
                   ? 0
                   : 1;
    return count;
  };
  // Rates 0, 0.33, 0.66 and 0.99; a block has two parts.
  EXPECT_EQ(changed("features.0", "features.1.0"), 64);
  const int second = changed("features.1.0", "features.1.1"), third = changed("features.2", "features.3.0");
  const int last = changed("features.3.0", "features.3.1");
  EXPECT_GT(second, 48);
  EXPECT_TRUE(third > 20 && third < 50) << third;
  EXPECT_LT(last, 8);
}

TEST(Swin, BadOptionsAreRefused) {
  const auto made = [](auto change) {
    models::SwinOptions options = small_swin();
    change(options);
    models::Swin{options};
  };
  EXPECT_NO_THROW(made([](models::SwinOptions&) {}));
  EXPECT_THROW(made([](models::SwinOptions& o) { o.heads = {1, 3}; }), ShapeError);
  EXPECT_THROW(made([](models::SwinOptions& o) { o.heads = {1}; }), ShapeError);
  EXPECT_THROW(made([](models::SwinOptions& o) { o.depths = {2, 0}; }), ShapeError);
  EXPECT_THROW(made([](models::SwinOptions& o) { o.depths = o.heads = {1, 1, 1, 1, 1, 1, 1}; }), ShapeError);
  EXPECT_THROW(made([](models::SwinOptions& o) { o.window = 13; }), ShapeError);
  EXPECT_THROW(made([](models::SwinOptions& o) { o.patch = 0; }), ShapeError);
  EXPECT_THROW(made([](models::SwinOptions& o) { o.width = 65; }), ShapeError);
  EXPECT_THROW(made([](models::SwinOptions& o) { o.mlp_ratio = 0.1; }), ShapeError);
  EXPECT_THROW(made([](models::SwinOptions& o) { o.drop_path = 1; }), ShapeError);
  EXPECT_THROW(made([](models::SwinOptions& o) { o.classes = 0; }), ShapeError);
  EXPECT_THROW(made([](models::SwinOptions& o) { o.absolute_positions = true; }), ShapeError);
  EXPECT_THROW(made([](models::SwinOptions& o) { o.image_size = 5; }), ShapeError);
}

TEST(Mlp, FlattensAndChecksItsInput) {
  auto mlp = model(R"({"type": "mlp", "hidden": [16, 8], "activation": "gelu", "dropout": 0.5})");
  nn::initialize(*mlp, 1);
  EXPECT_EQ(names_of(mlp->parameters()).front(), "layers.0.weight");
  EXPECT_EQ(mlp->parameter_count(), 64 * 16 + 16 + 16 * 8 + 8 + 8 * 5 + 5);
  EXPECT_EQ((*mlp)(random_images({3, 8, 8, 1}, 1)).shape(), Shape({3, 5}));
  EXPECT_EQ((*mlp)(random_images({3, 64}, 1)).shape(), Shape({3, 5}));
  EXPECT_THROW((*mlp)(random_images({3, 63}, 1)), ShapeError);
  EXPECT_THROW((*mlp)(random_images({64}, 1)), ShapeError);
  const Tensor x = random_images({3, 64}, 1);
  EXPECT_NE((*mlp)(x).to_doubles(), (*mlp)(x).to_doubles()) << "dropout in training";
  mlp->eval();
  EXPECT_EQ((*mlp)(x).to_doubles(), (*mlp)(x).to_doubles()) << "no dropout in evaluation";
}

TEST(ModelRegistry, SizesComeFromTheDataUnlessGiven) {
  EXPECT_EQ(model(R"({"type": "mlp", "hidden": []})")->parameter_count(), 64 * 5 + 5);
  EXPECT_EQ(model(R"({"type": "mlp", "hidden": [], "classes": 3})")->parameter_count(), 64 * 3 + 3);
  EXPECT_THROW(model(R"({"type": "resnet", "depth": 10, "width": 4})", {}), ConfigError);
  EXPECT_NO_THROW(model(R"({"type": "resnet", "depth": 10, "width": 4, "in_channels": 3, "classes": 2})", {}));
}

TEST(ModelRegistry, FaultsAreNamed) {
  const auto message = [](const char* text) -> std::string {
    try {
      model(text);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message(R"({"type": "resnet", "depht": 18})").find("\"depth\""), std::string::npos);
  EXPECT_NE(message(R"({"type": "resnet", "depth": 19})").find("10, 18, 34"), std::string::npos);
  EXPECT_NE(message(R"({"type": "resnet", "stem": "tiny"})").find("small"), std::string::npos);
  EXPECT_NE(message(R"({"type": "vgg", "depth": 10})").find("11, 13, 16, 19"), std::string::npos);
  EXPECT_NE(message(R"({"type": "swin", "width": 100})")
                .find("100 channels of stage 1 do not divide into 3 heads; use a divisor such as 2"),
            std::string::npos);
  EXPECT_NE(message(R"({"type": "swin", "depths": [2, 2]})").find("2 stages (\"depths\") with \"heads\" for 4"),
            std::string::npos);
  EXPECT_NE(message(R"({"type": "swin", "window": 13})").find("window"), std::string::npos);
  EXPECT_NE(message(R"({"type": "swin", "width": 384})").find("use more heads, such as 6"), std::string::npos);
  EXPECT_NE(message(R"({"type": "mlp", "hidden": [0]})"), "");
  EXPECT_NE(message(R"({"type": "mpl"})").find("\"mlp\""), std::string::npos);
}

TEST(ModelRegistry, SwinsThatDoNotFitTheDataAreExplained) {
  // On images of 8 x 8.
  const auto message = [](const std::string& options) {
    return test::error_message<ConfigError>([&] { (void)model(R"({"type": "swin", )" + options + "}"); });
  };
  const std::string two = R"("patch": 2, "window": 4, "width": 12, "heads": [1, 1], "depths": [1, 1])";
  EXPECT_NO_THROW(model(R"({"type": "swin", )" + two + R"(, "absolute_positions": true})")) << "the data's size";
  EXPECT_PRED2(test::contains, message(R"("patch": 4)"),
               "7 x 7 tokens is larger than the 2 x 2 tokens of an image of 8 x 8 pixels; use a window of at most 2");
  EXPECT_PRED2(test::contains, message(R"("patch": 16)"), "smaller than a patch of 16");
  EXPECT_PRED2(test::contains, message(R"("patch": 2, "window": 4)"), "single token before stage 4");
  EXPECT_PRED2(test::contains, message(R"("image_size": 16)"), "larger than the 4 x 4 tokens");
  EXPECT_PRED2(test::contains, message(two + R"(, "image_size": 10)"), "8 x 8 pixels where \"image_size\" is 10");
  EXPECT_PRED2(test::contains, test::error_message<ConfigError>([&] {
                 (void)model(R"({"type": "swin", "absolute_positions": true, )" + two + "}",
                             {.height = 16, .width = 24, .channels = 1, .classes = 2});
               }),
               "square images, and the data's have 16 x 24 pixels; make squares of them");
  EXPECT_THROW(model(R"({"type": "swin", "absolute_positions": true, "in_channels": 1, "classes": 2})", {}),
               ConfigError);
}

struct OwnOptions {
  std::int64_t width = 3;
};
void describe(Fields<OwnOptions>& f) { f.integer("width", &OwnOptions::width, {.min = 1}, "Width."); }

struct Own : nn::Module {
  nn::Linear in, out;
  Own(std::int64_t features, std::int64_t width, std::int64_t classes) : in(features, width), out(width, classes) {
    register_module("in", in);
    register_module("out", out);
  }
  Tensor forward(const Tensor& x) override { return out(gelu(in(flatten(x, 1)))); }
};

TEST(ModelRegistry, ProgramsAddTheirOwn) {
  models::add<OwnOptions>("own", [](const OwnOptions& o, const models::InputInfo& input) {
    return std::make_unique<Own>(input.features(), o.width, input.classes);
  });
  models::add("own_fixed",
              [](const models::InputInfo& input) { return std::make_unique<Own>(input.features(), 2, input.classes); });
  auto own = model(R"({"type": "own", "width": 4})");
  nn::initialize(*own, 1);
  EXPECT_EQ(own->parameter_count(), 64 * 4 + 4 + 4 * 5 + 5);
  EXPECT_EQ((*own)(random_images({2, 8, 8, 1}, 1)).shape(), Shape({2, 5}));
  EXPECT_EQ(model(R"({"type": "own_fixed"})")->parameter_count(), 64 * 2 + 2 + 2 * 5 + 5);
  EXPECT_THROW(model(R"({"type": "own", "width": 0})"), ConfigError);
  EXPECT_THROW(models::add("own", [](const models::InputInfo&) { return nullptr; }), UsageError);
}

TEST(TorchLayout, FiltersAreReorderedAndNothingElse) {
  Tensor filter = Tensor::empty({2, 3, 4, 5});  // [K, R, S, C]
  for (std::int64_t i = 0; i < filter.size(); ++i) filter.data<float>()[i] = static_cast<float>(i);
  const Tensor torch = models::to_torch_layout("conv1.weight", filter);
  EXPECT_EQ(torch.shape(), Shape({2, 5, 3, 4}));
  const auto at = [](std::int64_t k, std::int64_t r, std::int64_t s, std::int64_t c) {
    return ((k * 3 + r) * 4 + s) * 5 + c;
  };
  EXPECT_EQ(torch.data<float>()[((1 * 5 + 4) * 3 + 2) * 4 + 3], static_cast<float>(at(1, 2, 3, 4)));
  EXPECT_EQ(torch.data<float>()[((0 * 5 + 3) * 3 + 1) * 4 + 2], static_cast<float>(at(0, 1, 2, 3)));
  EXPECT_EQ(models::from_torch_layout("conv1.weight", torch).to_doubles(), filter.to_doubles());
  EXPECT_EQ(models::to_torch_layout("position", filter).shape(), filter.shape());
  const Tensor matrix = Tensor::of<float>({2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(models::from_torch_layout("fc.weight", matrix).to_doubles(), matrix.to_doubles());
}

}  // namespace
}  // namespace hearth::networks_test
