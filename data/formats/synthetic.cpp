// SPDX-License-Identifier: Apache-2.0
// Class patterns are coarse grids of random levels, interpolated; samples add noise.
#include "data/formats/synthetic.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "data/images/transforms/resize.h"
#include "data/loading/order.h"

namespace hearth::data {
namespace {

constexpr int grid = 4;

class Synthetic : public ImageDataset {
 public:
  Synthetic(const SyntheticOptions& options, std::int64_t size, std::uint64_t split)
      : options_(options), size_(size), split_(split), names_(numbered_classes(options.classes)) {
    for (std::int64_t label = 0; label < options.classes; ++label) {
      Random random = random_of(options.seed, Purpose::pixels, 0, static_cast<std::uint32_t>(label));
      Image coarse;
      coarse.reshape(grid, grid, options.channels);
      for (auto& value : coarse.pixels) value = static_cast<std::uint8_t>(32 + random.below(192));
      resize(coarse, {0, 0, grid, grid}, options.height, options.width, patterns_.emplace_back());
    }
  }
  std::int64_t size() const override { return size_; }
  ImageShape image_shape() const override { return {options_.height, options_.width, options_.channels}; }
  const std::vector<std::string>& class_names() const override { return names_; }
  std::int64_t label(std::int64_t index) const override {
    check_index(index);
    return index % options_.classes;
  }
  std::int64_t read(std::int64_t index, Image& image) const override {
    const std::int64_t own = label(index);
    image = patterns_[static_cast<std::size_t>(own)];
    if (options_.noise == 0) return own;
    Random random = random_of(options_.seed, Purpose::pixels, split_, static_cast<std::uint32_t>(index));
    // Four bytes a word, each uniform in [-1, 1) times the width that gives the wanted deviation.
    const auto width = static_cast<int>(std::lround(options_.noise * std::sqrt(3.0)));
    std::uint32_t word = 0;
    for (std::size_t i = 0; i < image.pixels.size(); ++i) {
      word = i % 4 == 0 ? random.next_u32() : word >> 8;
      const int offset = (static_cast<int>(word & 255u) * 2 - 255) * width / 256;
      image.pixels[i] = static_cast<std::uint8_t>(std::clamp(image.pixels[i] + offset, 0, 255));
    }
    return own;
  }
  const std::string& source() const override { return source_; }

 private:
  SyntheticOptions options_;
  std::int64_t size_;
  std::uint64_t split_;
  std::vector<std::string> names_;
  std::vector<Image> patterns_;
  std::string source_ = "synthetic";
};

}  // namespace

ImageSplits synthetic(const SyntheticOptions& options) {
  HEARTH_CHECK(ConfigError, options.train_size >= 1 && options.test_size >= 1, "synthetic: ", options.train_size,
               " and ", options.test_size, " samples; each split needs one");
  HEARTH_CHECK(ConfigError, options.classes >= 1 && options.classes <= 100'000, "synthetic: ", options.classes,
               " classes; 1..100000 are possible");
  HEARTH_CHECK(ConfigError,
               options.height >= 1 && options.width >= 1 && options.height <= 8192 && options.width <= 8192 &&
                   options.channels >= 1 && options.channels <= 64,
               "synthetic: images of ", options.height, " x ", options.width, " x ", options.channels);
  HEARTH_CHECK(ConfigError, options.noise >= 0 && options.noise <= 1000, "synthetic: noise ", options.noise,
               " is outside 0..1000");
  return {std::make_shared<Synthetic>(options, options.train_size, 1), nullptr,
          std::make_shared<Synthetic>(options, options.test_size, 2)};
}

}  // namespace hearth::data
