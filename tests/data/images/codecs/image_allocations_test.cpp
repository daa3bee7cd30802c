// SPDX-License-Identifier: Apache-2.0
// Memory that decoding and transforms ask for in steady state: none. What libjpeg-turbo, libpng and libwebp take by
// malloc() for each image is theirs.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "core/build.h"
#include "data/images/codecs/decode.h"
#include "data/images/transforms/transforms.h"
#include "data/libraries.h"
#include "data/loading/order.h"
#include "data/source/source_bytes.h"
#include "tests/data/memory_requests.h"
#include "tests/support/places.h"

namespace hearth::data {
namespace {

bool reads_webp() {
  for (const FileLibrary& library : file_libraries())
    if (library.name == "WebP") return !library.version.empty();
  return false;
}

/// One thread of a loader at one file.
class Worker {
 public:
  Worker(const std::string& name, bool training)
      : name_(name),
        transforms_({0, 0, 3},
                    {.image_size = 24,
                     .eval_crop = 0.8,
                     .random_resized_crop = true,
                     .horizontal_flip = true,
                     .color_jitter = {.brightness = 0.2, .contrast = 0.2, .saturation = 0.2, .hue = 0.1},
                     .erasing = {.probability = 0.5}},
                    training),
        target_(std::size_t{24} * 24 * 3) {
    read_bytes(test::source_dir() + "/tests/golden/regions/" + name, file_, small_file);
    // As large as anything that comes: which of the two holds what changes from sample to sample.
    image_.reshape(400, 400, 3);
    scratch_.reshape(400, 400, 3);
    decoded_.reshape(400, 400, 3);
  }
  void prepare(std::uint32_t sample) {
    Random random = random_of(0, Purpose::augment, 0, sample);
    const auto choose = [&](int height, int width) { return transforms_.sizing(height, width, random); };
    const Region region = decode_region(file_, name_, std::ref(choose), decoded_);
    transforms_.augment(decoded_, region, image_, scratch_, random);
    transforms_.finish(image_, random, DType::f32, reinterpret_cast<std::byte*>(target_.data()));
  }

 private:
  std::string name_;
  Transforms transforms_;
  std::vector<std::uint8_t> file_;
  Image decoded_, image_, scratch_;
  std::vector<float> target_;
};

TEST(ImageAllocations, NoneForASampleAfterTheFirstOnes) {
  if (!test::counts_memory_requests) GTEST_SKIP() << "a sanitizer has an allocator of its own";
  if (!HEARTH_HAS_JPEG || !HEARTH_HAS_PNG) GTEST_SKIP() << "this build lacks libjpeg-turbo or libpng";
  for (const std::string name : {"420.jpg", "progressive.jpg", "cmyk.jpg", "orientation_6.jpg", "rgb.png", "alpha.png",
                                 "rgb.bmp", "lossy.webp", "lossy_alpha.webp"}) {
    if (name.ends_with(".webp") && !reads_webp()) continue;
    for (const bool training : {true, false}) {
      Worker worker(name, training);
      for (std::uint32_t sample = 0; sample < 200; ++sample) worker.prepare(sample);
      const long before = test::memory_requests();
      for (std::uint32_t sample = 0; sample < 200; ++sample) worker.prepare(sample);
      EXPECT_EQ(test::memory_requests() - before, 0) << name;
    }
  }
  const long before = test::memory_requests();
  const std::vector<int> counted(100);
  EXPECT_EQ(test::memory_requests() - before, 1) << "the counter counts";
}

}  // namespace
}  // namespace hearth::data
