// SPDX-License-Identifier: Apache-2.0
// Batches with many bad samples: what is read of them, and how often.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "data/images/image_dataset.h"
#include "data/loading/loader.h"
#include "data/loading/quarantine.h"
#include "data/sample_dataset.h"

namespace hearth::data::bad_batches_test {
namespace {

/// How often each sample was read, of which those in [begin, end) are bad.
struct Reads {
  std::int64_t begin, end;
  mutable std::vector<int> counts = std::vector<int>(200);
  void count(std::int64_t sample) const {
    ++counts[static_cast<std::size_t>(sample)];
    HEARTH_CHECK(DataError, sample < begin || sample >= end, "sample ", sample, " is broken");
  }
};

class TornImages : public ImageDataset {
 public:
  explicit TornImages(Reads of) : reads_of(std::move(of)) {}
  std::int64_t size() const override { return 200; }
  ImageShape image_shape() const override { return {6, 5, 3}; }
  const std::vector<std::string>& class_names() const override { return names_; }
  const std::string& source() const override { return names_[0]; }
  std::int64_t label(std::int64_t index) const override { return index % 4; }
  std::int64_t read(std::int64_t index, Image& image) const override {
    reads_of.count(index);
    image.reshape(6, 5, 3);
    Random random(17, static_cast<std::uint64_t>(index));
    for (auto& value : image.pixels) value = static_cast<std::uint8_t>(random.below(256));
    return index % 4;
  }
  Reads reads_of;

 private:
  std::vector<std::string> names_ = numbered_classes(4);
};

class TornTensors : public SampleDataset {
 public:
  explicit TornTensors(Reads of) : reads_of(std::move(of)) {}
  std::int64_t size() const override { return 200; }
  const std::string& source() const override { return source_; }
  TensorSample read(std::int64_t index, Random& random) const override {
    reads_of.count(index);
    return {{"x", Tensor::of<double>({2}, {1.0 * static_cast<double>(index), 1.0 * random.below(1000)})}};
  }
  Reads reads_of;

 private:
  std::string source_ = "tensors";
};

std::string all_bytes(const Batch& batch) {
  std::string all;
  for (const Batch::Named& named : batch.tensors())
    all.append(named.name).append(reinterpret_cast<const char*>(named.tensor.bytes()), named.tensor.byte_size());
  for (const std::int64_t sample : batch.samples) all += join_text(' ', sample);
  return all;
}

Loader loader_of(std::shared_ptr<TornImages> set, const Transforms& transforms, const LoaderOptions& options) {
  return Loader(std::move(set), transforms, options);
}
Loader loader_of(std::shared_ptr<TornTensors> set, const Transforms&, const LoaderOptions& options) {
  return Loader(std::move(set), options);
}

template <class Set>
void expect_read_once(const LoaderOptions& given, const Transforms& transforms) {
  const Reads reads{50, 130};
  LoaderOptions options = given;
  options.batch_size = 40;
  options.quarantine = std::make_shared<Quarantine>("train", "torn", 200, 200);
  const auto set = std::make_shared<Set>(reads), other = std::make_shared<Set>(reads);
  Loader loader = loader_of(set, transforms, options);
  LoaderOptions known = options;
  known.quarantine = std::make_shared<Quarantine>("train", "torn", 200, 200);
  for (std::int64_t sample = 50; sample < 130; ++sample) known.quarantine->find(sample, "is known to be bad");
  Loader reference = loader_of(other, transforms, known);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(all_bytes(loader.next()), all_bytes(reference.next())) << i;
  EXPECT_EQ(options.quarantine->count(), 80);
  const std::vector<int>& counts = set->reads_of.counts;
  for (std::size_t sample = 0; sample < 200; ++sample)
    EXPECT_EQ(counts[sample], sample == 130 ? 81 : 1) << sample << ", or once for each row in which it stands in";
}

TEST(BadBatchesTest, BadSamplesAreTriedOnceAndNoRowIsReadAgain) {
  TransformOptions augment{.padded_crop = 1, .horizontal_flip = true};
  augment.erasing.probability = 0.5;
  const Transforms transforms({6, 5, 3}, augment, true);
  for (const DType dtype : {DType::f32, DType::u8})
    expect_read_once<TornImages>({.workers = 0, .mixup_alpha = 0.2, .dtype = dtype}, transforms);
  expect_read_once<TornTensors>({.workers = 0}, transforms);
}

}  // namespace
}  // namespace hearth::data::bad_batches_test
