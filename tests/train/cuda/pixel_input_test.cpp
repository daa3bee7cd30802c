// SPDX-License-Identifier: Apache-2.0
// Images that cross the bus as pixels: the model reads the bits that the CPU's loader makes, at a quarter of the
// bytes and for one launch.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <utility>

#include "core/cuda/counters.h"
#include "data/images/memory_images.h"
#include "data/loading/loader.h"
#include "ops/ops.h"
#include "tests/support/temp_dir.h"
#include "train/step/step.h"

namespace hearth::train::pixel_input_test {
namespace {

data::ImageDatasetPointer noise(std::int64_t count, data::ImageShape shape) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(count * shape.height * shape.width * shape.channels));
  Random random(5, 0);
  for (std::uint8_t& pixel : pixels) pixel = static_cast<std::uint8_t>(random.below(256));
  std::vector<std::int32_t> labels(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(i % 3);
  return std::make_shared<data::MemoryImages>("noise", shape, std::move(pixels), std::move(labels),
                                              data::numbered_classes(3));
}

const std::string narrow = R"(, "precision": {"level": "O1", "dtype": "bf16"})";

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = a.to(Device{}), y = b.to(Device{});
  return x.dtype() == y.dtype() && x.shape() == y.shape() &&
         std::memcmp(x.contiguous().bytes(), y.contiguous().bytes(), x.byte_size()) == 0;
}

void expect_the_loaders_bits(Device device) {
  for (const data::ImageShape shape : {data::ImageShape{8, 8, 1}, data::ImageShape{9, 7, 3}})
    for (const double erasing : {0.0, 0.6})
      for (const auto& mix : {std::pair{0.0, 0.0}, {0.5, 0.0}, {0.0, 1.0}, {0.5, 1.0}}) {
        data::TransformOptions steps{.padded_crop = 1, .horizontal_flip = true, .color_jitter = {0.4, 0.4, 0.4, 0.1}};
        steps.mean = {0.45};
        steps.std = {0.27};
        steps.erasing.probability = erasing;
        const data::ImageDatasetPointer set = noise(13, shape);
        const data::Transforms transforms(shape, steps, true);
        const auto loader = [&](DType dtype) {
          return data::Loader(set, transforms,
                              {.batch_size = 5,
                               .shuffle = true,
                               .seed = 8,
                               .mixup_alpha = mix.first,
                               .cutmix_alpha = mix.second,
                               .dtype = dtype});
        };
        const Tensor values = Tensor::of({shape.channels, 256}, transforms.normalizer().values()).to(device);
        data::Loader pixels = loader(DType::u8), floats = loader(DType::f32), halves = loader(DType::bf16);
        for (int i = 0; i < 3; ++i) {
          const data::Batch batch = pixels.next();
          const auto there = [&](const Tensor& t) { return t.defined() ? t.to(device) : t; };
          const auto images = [&](DType dtype) {
            return normalize_images(
                there(batch["images"]), values,
                {.dtype = dtype, .erased = there(batch.find("erased")), .lambda = there(batch.find("mix"))});
          };
          const Tensor expected = floats.next()["images"], halved = halves.next()["images"];
          EXPECT_TRUE(same_bits(images(DType::f32), expected))
              << "batch " << i << ", erasing " << erasing << ", mixup " << mix.first << ", cutmix " << mix.second
              << ", " << shape.channels << " channels";
          EXPECT_TRUE(same_bits(images(DType::f16), expected.to(DType::f16)));
          EXPECT_TRUE(same_bits(images(DType::bf16), expected.to(DType::bf16)));
          EXPECT_TRUE(mix.first > 0 || same_bits(images(DType::bf16), halved));
        }
      }
}

TEST(PixelInput, IsTheLoadersToTheBit) { expect_the_loaders_bits({}); }

class CudaPixelInput : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  }
  std::unique_ptr<Session> session(const std::string& top_level = "") {
    const std::string path = folder_ / "run.json";
    std::ofstream(path) << R"({"seed": 3, "device": "cuda", "model": {"type": "resnet", "blocks": [1], "stem": "small",
      "width": 8}, "data": {"type": "synthetic", "classes": 4, "height": 8, "width": 8, "channels": 3,
      "train_size": 64, "test_size": 8}, "optimizer": {"type": "sgd", "lr": 0.05},
      "train": {"batch_size": 8, "steps": 4})"
                        << top_level << "}";
    return std::make_unique<Session>(load_config(path, {}));
  }
  test::TempDir folder_;
};

TEST_F(CudaPixelInput, IsTheLoadersToTheBit) { expect_the_loaders_bits({DeviceType::cuda, 0}); }

cuda::Counters spent_on(Session& session, const data::Batch& batch) {
  const cuda::Counters before = cuda::counters();
  (void)training_step(session, std::span(&batch, 1));
  ++session.position.step;
  return cuda::counters() - before;
}

TEST_F(CudaPixelInput, CostsOneLaunchForAQuarterOfTheBytes) {
  const auto run = session();
  const data::Batch pixels = run->make_train_loader().next();
  ASSERT_EQ(pixels["images"].dtype(), DType::u8);
  const data::Batch floats = run->data.train_loader(8, run->config().seed).next();
  ASSERT_EQ(floats["images"].dtype(), DType::f32);
  for (int i = 0; i < 2; ++i)
    for (const data::Batch* batch : {&pixels, &floats}) (void)spent_on(*run, *batch);
  const cuda::Counters with_pixels = spent_on(*run, pixels), with_floats = spent_on(*run, floats);
  EXPECT_EQ(with_pixels.launches - with_floats.launches, 1);
  EXPECT_EQ(with_pixels.library_calls, with_floats.library_calls);
  EXPECT_EQ(with_pixels.copies_in, with_floats.copies_in);
  EXPECT_EQ(with_pixels.layout_changes, 0);
  EXPECT_EQ(with_pixels.waits, 0);
  // To the device, and there to its place.
  EXPECT_EQ(with_floats.bytes_copied - with_pixels.bytes_copied,
            static_cast<std::int64_t>(2 * (floats["images"].byte_size() - pixels["images"].byte_size())));
  EXPECT_EQ(floats["images"].byte_size(), 4 * pixels["images"].byte_size());
}

// One launch where floats take two: to the type that the model computes in, and to pixels of 8 channels.
TEST_F(CudaPixelInput, ComesPaddedForTensorCores) {
  const auto run = session(narrow);
  const data::Batch pixels = run->make_train_loader().next(), floats = run->data.train_loader(8, 3).next();
  for (int i = 0; i < 2; ++i) (void)spent_on(*run, pixels), (void)spent_on(*run, floats);
  const cuda::Counters with_pixels = spent_on(*run, pixels), with_floats = spent_on(*run, floats);
  EXPECT_EQ(with_floats.launches - with_pixels.launches, 1);
  EXPECT_EQ(with_pixels.layout_changes, 0);
  EXPECT_EQ(with_floats.layout_changes, 0);
}

TEST_F(CudaPixelInput, TrainsAndEvaluatesTheSameEitherWay) {
  for (const std::string& precision : {std::string(), narrow}) {
    const auto a = session(precision), b = session(precision);
    data::Loader pixels = a->make_train_loader(), floats = b->data.train_loader(8, b->config().seed);
    for (int i = 0; i < 3; ++i) {
      (void)spent_on(*a, pixels.next());
      (void)spent_on(*b, floats.next());
    }
    EXPECT_EQ(a->model_state.hash(), b->model_state.hash()) << precision;
  }
}

TEST_F(CudaPixelInput, EvaluatesTheSameEitherWay) {
  const auto a = session(), b = session();
  const Meter meter = evaluate(*a, a->data.test);
  Sums sums(b->device());
  b->model->train(false);
  evaluation_step(*b, b->data.eval_loader(b->data.test, 8).next().to(b->device()), sums);
  EXPECT_EQ(meter.loss_sum, sums.loss.item());
}

}  // namespace
}  // namespace hearth::train::pixel_input_test
