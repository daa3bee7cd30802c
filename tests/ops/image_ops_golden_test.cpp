// SPDX-License-Identifier: Apache-2.0
// Values and gradients of the image ops against PyTorch in double precision (golden/make_image_ops.py).
#include <cmath>
#include <map>
#include <string>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/io/json_text.h"
#include "ops/conv/conv_transpose2d.h"
#include "ops/interpolate/interpolate.h"
#include "ops/norm/group_norm.h"
#include "tests/support/op_test.h"
#include "tests/support/places.h"

namespace hearth::test::image_ops_golden_test {
namespace {

const Json& golden(const char* op) {
  static const Json document = read_json(source_dir() + "/tests/golden/image_ops.json");
  return document.at(op);
}

Shape shape_of(const Json& extents) {
  std::vector<std::int64_t> values;
  for (std::size_t i = 0; i < extents.size(); ++i) values.push_back(extents.at(i).as_integer());
  return Shape(values);
}

/// Element i is ((a i + b) % 23 - 11) / 8.
Tensor drawn(const Shape& shape, std::int64_t a, std::int64_t b, Device device) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < shape.size(); ++i) values.push_back(static_cast<double>((a * i + b) % 23 - 11) / 8);
  return Tensor::of(shape, values).to(device);
}
Tensor images(const Json& wanted, Device device) {
  return requires_grad(drawn(shape_of(wanted.at("x")), 7, 3, device));
}

void expect_values(const char* what, const Tensor& found, const Json& wanted) {
  const std::vector<double> values = found.to_doubles();
  ASSERT_EQ(values.size(), wanted.size()) << what;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = wanted.at(i).as_number();
    ASSERT_NEAR(values[i], value, 1e-12 * std::max(1.0, std::abs(value))) << what << ", element " << i;
  }
}

void expect_golden(const Json& wanted, const Tensor& y, const std::map<std::string, Tensor>& inputs) {
  ASSERT_EQ(y.shape(), shape_of(wanted.at("shape")));
  expect_values("y", y, wanted.at("y"));
  backward(y, drawn(y.shape(), 9, 4, y.device()));
  for (const auto& [name, input] : inputs) expect_values(name.c_str(), grad_of(input), wanted.at("d_" + name));
}

class ImageOpsGolden : public testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (device_count(GetParam().type) == 0) GTEST_SKIP() << "there is no device " << GetParam();
  }
};

Pair pair_of(const Json& numbers) { return {numbers.at(0).as_integer(), numbers.at(1).as_integer()}; }

TEST_P(ImageOpsGolden, Interpolate) {
  const Json& cases = golden("interpolate");
  ASSERT_GE(cases.size(), 50u);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Json& wanted = cases.at(i);
    SCOPED_TRACE("case " + std::to_string(i));
    InterpolateOptions options;
    if (const Json& size = wanted.at("size"); !size.is_null()) options.size = pair_of(size);
    if (const Json& scale = wanted.at("scale"); !scale.is_null())
      options.scale = ImageScale(scale.at(0).as_number(), scale.at(1).as_number());
    if (wanted.at("mode").as_string() == "bilinear") options.mode = Interpolation::bilinear;
    options.align_corners = wanted.at("align_corners").as_boolean();
    options.antialias = wanted.at("antialias").as_boolean();
    const Tensor x = images(wanted, GetParam());
    expect_golden(wanted, interpolate(x, options), {{"x", x}});
  }
}

TEST_P(ImageOpsGolden, ConvTranspose2d) {
  const Json& cases = golden("conv_transpose2d");
  ASSERT_GE(cases.size(), 5u);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Json& wanted = cases.at(i);
    SCOPED_TRACE("case " + std::to_string(i));
    const Tensor x = images(wanted, GetParam());
    const Tensor w = requires_grad(drawn(shape_of(wanted.at("w")), 5, 1, GetParam()));
    const std::int64_t groups = wanted.at("groups").as_integer();
    const Tensor b = requires_grad(drawn({w.dim(3) * groups}, 3, 2, GetParam()));
    const Tensor y = conv_transpose2d(x, w, b,
                                      {.stride = pair_of(wanted.at("stride")),
                                       .padding = pair_of(wanted.at("padding")),
                                       .output_padding = pair_of(wanted.at("output_padding")),
                                       .dilation = pair_of(wanted.at("dilation")),
                                       .groups = groups});
    expect_golden(wanted, y, {{"x", x}, {"w", w}, {"b", b}});
  }
}

TEST_P(ImageOpsGolden, GroupNorm) {
  const Json& cases = golden("group_norm");
  ASSERT_GE(cases.size(), 4u);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Json& wanted = cases.at(i);
    SCOPED_TRACE("case " + std::to_string(i));
    const Tensor x = images(wanted, GetParam());
    const Tensor gamma = requires_grad(drawn({x.dim(3)}, 5, 1, GetParam()));
    const Tensor beta = requires_grad(drawn({x.dim(3)}, 3, 2, GetParam()));
    const Tensor y = group_norm(x, gamma, beta, wanted.at("groups").as_integer(), wanted.at("eps").as_number());
    expect_golden(wanted, y, {{"x", x}, {"gamma", gamma}, {"beta", beta}});
  }
}

INSTANTIATE_TEST_SUITE_P(Torch, ImageOpsGolden, testing::Values(Device{}, Device{DeviceType::cuda, 0}),
                         [](const auto& at) { return std::string(at.param.is_cpu() ? "cpu" : "cuda"); });

}  // namespace
}  // namespace hearth::test::image_ops_golden_test
