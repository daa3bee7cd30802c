// SPDX-License-Identifier: Apache-2.0
// Features of boxes: finite differences, a loop over samples, and values and gradients as torchvision's.
#include "ops/boxes/roi_align.h"

#include <cmath>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/cuda/counters.h"
#include "tests/ops/boxes_golden.h"
#include "tests/support/op_test.h"

namespace hearth::test::roi_align_test {
namespace {

using namespace boxes_golden;
using Values = std::vector<double>;

// In, across the edge, larger than the map, a point, upside down, outside, and long.
const Values some_boxes{1.25, 0.5, 6.5, 5.75, -3, -2, 4,  3,  -1, -1,   30, 20,  3.5, 3.5,
                        3.5,  3.5, 4,   2,    3,  1,  40, 40, 60, 60.5, 0,  2.5, 9,   3};
const Values some_images{0, 1, 1, 0, 1, 0, 0};

/// Sample by sample.
Values looped(const Values& x, const Shape& shape, const RoiAlignOptions& options) {
  Values y;
  const std::int64_t height = shape[1], width = shape[2], channels = shape[3];
  for (std::size_t k = 0; k < some_images.size(); ++k) {
    const double offset = options.aligned ? 0.5 : 0, *box = &some_boxes[4 * k];
    const double left = box[0] * options.scale - offset, top = box[1] * options.scale - offset;
    double w = box[2] * options.scale - offset - left, h = box[3] * options.scale - offset - top;
    if (!options.aligned) w = std::max(w, 1.0), h = std::max(h, 1.0);
    const double bin_h = h / static_cast<double>(options.size.h), bin_w = w / static_cast<double>(options.size.w);
    const auto count = [&](double bin) {
      return options.samples > 0 ? static_cast<double>(options.samples) : std::ceil(bin);
    };
    const double down = count(bin_h), across = count(bin_w);
    for (std::int64_t p = 0; p < options.size.h; ++p)
      for (std::int64_t q = 0; q < options.size.w; ++q)
        for (std::int64_t c = 0; c < channels; ++c) {
          double sum = 0;
          for (double i = 0; i < down; ++i)
            for (double j = 0; j < across; ++j) {
              double v = top + static_cast<double>(p) * bin_h + (i + 0.5) * bin_h / down;
              double u = left + static_cast<double>(q) * bin_w + (j + 0.5) * bin_w / across;
              if (v < -1 || v > static_cast<double>(height) || u < -1 || u > static_cast<double>(width)) continue;
              v = std::min(std::max(v, 0.0), static_cast<double>(height - 1));
              u = std::min(std::max(u, 0.0), static_cast<double>(width - 1));
              for (const std::int64_t dv : {0, 1})
                for (const std::int64_t du : {0, 1}) {
                  const std::int64_t row = static_cast<std::int64_t>(v) + dv,
                                     column = static_cast<std::int64_t>(u) + du;
                  if (row >= height || column >= width) continue;
                  const double weight =
                      (1 - std::abs(v - static_cast<double>(row))) * (1 - std::abs(u - static_cast<double>(column)));
                  const auto image = static_cast<std::int64_t>(some_images[k]);
                  sum += weight * x[static_cast<std::size_t>(((image * height + row) * width + column) * channels + c)];
                }
            }
          y.push_back(sum / std::max(down * across, 1.0));
        }
  }
  return y;
}

OP_TEST(RoiAlign) {
  for (const Shape& shape : {Shape{2, 6, 8, 3}, {2, 1, 7, 16}, {2, 5, 1, 1}})
    for (const bool aligned : {false, true})
      for (const std::int64_t samples : {0, 2}) {
        const RoiAlignOptions options{.size = {3, 2}, .scale = 0.75, .samples = samples, .aligned = aligned};
        check(
            [&](Draw& draw) {
              const Tensor x = draw.normal(shape), boxes = draw.constant({7, 4}, some_boxes, Width::wide);
              return roi_align(x, boxes, draw.indices({7}, some_images), options);
            },
            [&](Draw& draw) { return looped(draw.normal(shape).to_doubles(), shape, options); },
            {.tolerance_scale = 4.0});  // f32 rounds the places of samples
      }
  // One channel more than a block of anything, and i32 images.
  check([](Draw& draw) {
    const Tensor x = draw.normal({2, 4, 4, 257}), boxes = draw.constant({7, 4}, some_boxes, Width::wide);
    return roi_align(x, boxes, draw.indices({7}, some_images, DType::i32), {.size = 2, .scale = 0.5, .samples = 1});
  });
}

class RoiAlignGolden : public testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    if (device_count(GetParam()) == 0) GTEST_SKIP() << "there is no CUDA device";
  }
  Device device() const { return Device{GetParam()}; }
};

TEST_P(RoiAlignGolden, ValuesAndGradients) {
  const Json& cases = golden("roi_align");
  ASSERT_GE(cases.size(), 5u);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    const Json& wanted = cases.at(i);
    const auto size = [&](std::size_t axis) { return wanted.at("size").at(axis).as_integer(); };
    const auto extent = [&](std::size_t axis) { return wanted.at("x").at(axis).as_integer(); };
    const Tensor x = requires_grad(drawn({extent(0), extent(1), extent(2), extent(3)}, 7, 3, device()));
    const Tensor boxes = boxes_of(wanted.at("boxes"), device());
    const Tensor images = Tensor::of({boxes.dim(0)}, numbers_of(wanted.at("images"))).to(DType::i64).to(device());
    const RoiAlignOptions options{.size = {size(0), size(1)},
                                  .scale = wanted.at("scale").as_number(),
                                  .samples = std::max<std::int64_t>(wanted.at("ratio").as_integer(), 0),
                                  .aligned = wanted.at("aligned").as_boolean()};
    const Tensor y = roi_align(x, boxes, images, options);
    expect_values("y", y, wanted.at("y"));
    backward(y, arriving(y));
    expect_values("dx", grad_of(x), wanted.at("dx"));
  }
}

TEST_P(RoiAlignGolden, OddBoxesGiveFiniteFeatures) {
  const float huge = 1e30f;
  const Tensor boxes =
      Tensor::of<float>({4, 4}, {NAN, 0, 4, 4, 0, 0, INFINITY, 4, -huge, -huge, huge, huge, 2, 2, 1, huge});
  const Tensor x = requires_grad(Tensor::full({1, 4, 4, 1}, 1.0, DType::f32, device()));
  const Tensor images = Tensor::zeros({4}, DType::i64, device());
  const Tensor y = roi_align(x, boxes.to(device()), images, {.size = 2});
  backward(y, Tensor::full(y.shape(), 1.0, DType::f32, device()));
  for (const Tensor& found : {y, grad_of(x)})
    for (const double value : found.to_doubles()) EXPECT_TRUE(std::isfinite(value));
}

TEST_P(RoiAlignGolden, NoBoxesHaveNoFeaturesAndNoGradient) {
  const Tensor x = requires_grad(Tensor::full({1, 4, 4, 2}, 1.0, DType::f32, device()));
  const Tensor y = roi_align(x, Tensor::zeros({0, 4}, DType::f32, device()), Tensor::zeros({0}, DType::i64, device()));
  EXPECT_EQ(y.shape(), (Shape{0, 7, 7, 2}));
  backward(y, Tensor::zeros(y.shape(), DType::f32, device()));
  EXPECT_EQ(grad_of(x).to_doubles(), Values(32, 0));
}

TEST_P(RoiAlignGolden, AnImageThatIsNotThereIsRefused) {
  const Tensor x = Tensor::zeros({2, 4, 4, 2}, DType::f32, device()),
               boxes = Tensor::zeros({1, 4}, DType::f32, device());
  EXPECT_THROW(
      {
        const Tensor y = roi_align(x, boxes, Tensor::full({1}, 2, DType::i64, device()));
        (void)y.to_doubles();
      },
      IndexError);
}

INSTANTIATE_TEST_SUITE_P(Devices, RoiAlignGolden, testing::Values(DeviceType::cpu, DeviceType::cuda),
                         [](const auto& tried) { return tried.param == DeviceType::cpu ? "cpu" : "cuda"; });

TEST(CudaRoiAlign, IsOneLaunchEachWay) {
  if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  const Device gpu{DeviceType::cuda, 0};
  const Tensor x = requires_grad(Tensor::full({1, 8, 8, 8}, 1.0, DType::bf16, gpu));
  const Tensor boxes = Tensor::zeros({3, 4}, DType::f32, gpu), images = Tensor::zeros({3}, DType::i64, gpu);
  (void)grad_of(x), zero_grad(x);  // so that it is written in place, as by a trainer
  const cuda::Counters start = cuda::counters();
  const Tensor y = roi_align(x, boxes, images);
  const cuda::Counters middle = cuda::counters();
  EXPECT_EQ((middle - start).launches, 1);
  backward(y, y.detach());
  EXPECT_EQ((cuda::counters() - middle).launches, 1);
}

TEST(RoiAlignRefusal, Arguments) {
  const Tensor x = Tensor::zeros({1, 4, 4, 2}), boxes = Tensor::zeros({3, 4}), images = Tensor::zeros({3}, DType::i64);
  refuses<UsageError>("roi_align", [&] { return roi_align(Tensor(), boxes, images); });
  refuses<UsageError>("roi_align", [&] { return roi_align(x, Tensor(), images); });
  refuses<UsageError>("roi_align", [&] { return roi_align(x, boxes, Tensor()); });
  refuses<ShapeError>("roi_align", [&] { return roi_align(Tensor::zeros({4, 4, 2}), boxes, images); });
  refuses<ShapeError>("roi_align", [&] { return roi_align(Tensor::zeros({1, 0, 4, 2}), boxes, images); });
  refuses<ShapeError>("roi_align", [&] { return roi_align(x, Tensor::zeros({3, 5}), images); });
  refuses<ShapeError>("roi_align", [&] { return roi_align(x, boxes, Tensor::zeros({2}, DType::i64)); });
  refuses<DTypeError>("roi_align", [&] { return roi_align(x, boxes, Tensor::zeros({3})); });
  refuses<DTypeError>("roi_align", [&] { return roi_align(x.to(DType::u8), boxes, images); });
  refuses<UsageError>("roi_align", [&] { return roi_align(x, boxes, images, {.size = 0}); });
  refuses<UsageError>("roi_align", [&] { return roi_align(x, boxes, images, {.scale = 0}); });
  refuses<UsageError>("roi_align", [&] { return roi_align(x, boxes, images, {.samples = -1}); });
  refuses<IndexError>("roi_align", [&] { return roi_align(x, boxes, Tensor::full({3}, 1, DType::i64)); });
}

}  // namespace
}  // namespace hearth::test::roi_align_test
