// SPDX-License-Identifier: Apache-2.0
#include "train/task/segmentation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iomanip>

#include "core/text_stream.h"
#include "data/sample_dataset.h"
#include "ops/ops.h"
#include "train/model/trained_model.h"
#include "train/task/report/class_report.h"

namespace hearth::train {
namespace {

class SegmentationMetrics : public Metrics {
 public:
  explicit SegmentationMetrics(const std::vector<std::string>& names)
      : names_(names), matrix_(static_cast<std::int64_t>(names.size())) {}
  void add(const Tensor& outputs, const data::Batch& batch) override {
    matrix_.add(argmax(outputs, -1), batch["labels"], data::ignored_label);
  }
  bool is_reducible() const override { return true; }
  void reduce(Collective& group) override { matrix_.reduce(group); }
  void report(Json& record) const override {
    Json classes = Json::object();
    for (std::size_t label = 0; label < names_.size(); ++label)
      classes.set(names_[label], matrix_.iou(static_cast<std::int64_t>(label)));
    record.set("mean_iou", matrix_.mean_iou()).set("iou", std::move(classes));
  }

 private:
  const std::vector<std::string>& names_;
  ConfusionMatrix matrix_;
};

constexpr std::size_t shown_masks = 4;
constexpr std::int64_t max_picture_side = 128;

using Colour = std::array<std::uint8_t, 3>;

/// Grey for class 0, mostly the background; for others hues that lie apart by the golden angle.
Colour colour_of(std::int64_t label) {
  if (label < 0) return {0, 0, 0};
  if (label == 0) return {110, 110, 110};
  Colour colour{};
  const double hue = std::fmod(static_cast<double>(label - 1) * 137.508, 360) / 60;
  for (std::size_t c = 0; c < 3; ++c) {
    const double from = std::fmod(hue + 6 - 2 * static_cast<double>(c), 6.0);
    const double strength = std::clamp(std::abs(from - 3) - 1, 0.0, 1.0);
    colour[c] = static_cast<std::uint8_t>(60 + 180 * strength);
  }
  return colour;
}

std::string hex_of(const Colour& colour) {
  TextStream out;
  out << '#' << std::hex << std::setfill('0');
  for (const std::uint8_t part : colour) out << std::setw(2) << static_cast<int>(part);
  return out.str();
}

/// An image of every n-th pixel of [H, W], of which `pixel(row, column)` gives the colour.
template <class Pixel>
data::Image drawn(std::int64_t height, std::int64_t width, const Pixel& pixel) {
  const std::int64_t every = (std::max(height, width) + max_picture_side - 1) / max_picture_side;
  data::Image image;
  image.reshape(static_cast<int>((height + every - 1) / every), static_cast<int>((width + every - 1) / every), 3);
  std::uint8_t* to = image.pixels.data();
  for (std::int64_t y = 0; y < height; y += every)
    for (std::int64_t x = 0; x < width; x += every) to = std::copy_n(pixel(y, x).data(), 3, to);
  return image;
}

/// Values [H, W, C] of any scale: the least becomes black, the largest white.
data::Image image_of(const float* values, std::int64_t height, std::int64_t width, std::int64_t channels) {
  const auto [low, high] = std::minmax_element(values, values + height * width * channels);
  const float least = *low, range = std::max(*high - *low, 1e-12F);
  return drawn(height, width, [&](std::int64_t y, std::int64_t x) {
    Colour colour{};
    for (std::size_t c = 0; c < 3; ++c) {
      const float value = values[(y * width + x) * channels + (channels >= 3 ? static_cast<std::int64_t>(c) : 0)];
      const float scaled = 255 * (value - least) / range;
      colour[c] = std::isfinite(scaled) ? static_cast<std::uint8_t>(scaled) : std::uint8_t{0};
    }
    return colour;
  });
}

data::Image mask_of(const std::int64_t* classes, std::int64_t height, std::int64_t width) {
  return drawn(height, width, [&](std::int64_t y, std::int64_t x) { return colour_of(classes[y * width + x]); });
}

/// Of a sample: its image, what the model makes of it, and the truth.
struct Example {
  std::int64_t sample = 0;
  double accuracy = 0;  ///< of the pixels that count
  Figure figure{};
};

Example example_of(const data::Batch& batch, const Tensor& images, const Tensor& predicted, const Tensor& labels,
                   std::int64_t row) {
  const std::int64_t height = labels.dim(1), width = labels.dim(2), pixels = height * width;
  const std::int64_t* const guess = predicted.data<const std::int64_t>() + row * pixels;
  const std::int64_t* const truth = labels.data<const std::int64_t>() + row * pixels;
  std::int64_t correct = 0, all = 0;
  for (std::int64_t i = 0; i < pixels; ++i) {
    correct += truth[i] != data::ignored_label && guess[i] == truth[i] ? 1 : 0;
    all += truth[i] != data::ignored_label ? 1 : 0;
  }
  Example example{.sample = batch.samples.at(static_cast<std::size_t>(row))};
  example.accuracy = all > 0 ? static_cast<double>(correct) / static_cast<double>(all) : 1.0;
  const float* const values = images.data<const float>() + row * pixels * images.dim(3);
  example.figure.images = {image_of(values, height, width, images.dim(3)), mask_of(guess, height, width),
                           mask_of(truth, height, width)};
  example.figure.caption =
      join_text("sample ", example.sample, ": ", percent_text(example.accuracy), " of the pixels are correct");
  return example;
}

bool is_worse_example(const Example& a, const Example& b) {
  return a.accuracy != b.accuracy ? a.accuracy < b.accuracy : a.sample < b.sample;
}

void add_examples(ReportSections& sections, const std::vector<Example>& examples, const char* heading,
                  const std::vector<std::string>& names) {
  std::vector<Figure> figures;
  for (const Example& example : examples) figures.push_back(example.figure);
  std::vector<std::string> colours;
  for (std::size_t label = 0; label < names.size(); ++label)
    colours.push_back(hex_of(colour_of(static_cast<std::int64_t>(label))));
  sections.heading(heading);
  sections.paragraph("Input, predicted mask, true mask; black does not count.");
  if (names.size() <= 30) sections.legend(names, colours);
  sections.figures(figures);
}

}  // namespace

SegmentationTask::SegmentationTask(const data::DataSplits& data) : data_(data) {
  const auto* const samples = dynamic_cast<const data::SampleDataset*>(data.train.get());
  HEARTH_CHECK(ConfigError, samples != nullptr && samples->size() > 0 && samples->classes() > 0,
               "/task/type: segmentation is of a data::SampleDataset with class_names(), which the data are not; name "
               "another task");
  Random random(0, 0);
  const data::Batch first = samples->collate({samples->read(0, random)});
  const Tensor &images = first["images"], &labels = first["labels"];
  HEARTH_CHECK(
      ConfigError, images.rank() == 4 && labels.rank() == 3 && labels.dtype() == DType::i64,
      "/task/type: segmentation is of samples with \"images\" [H, W, C] and \"labels\", i64 [H, W]; a batch of "
      "the data has ",
      hearth::describe(images), " and ", hearth::describe(labels));
  info_ = {.height = images.dim(1), .width = images.dim(2), .channels = images.dim(3), .classes = samples->classes()};
}

nn::Inputs SegmentationTask::inputs(const TrainedModel&, const data::Batch& batch) const { return {batch["images"]}; }

std::unique_ptr<Metrics> SegmentationTask::metrics() const {
  return std::make_unique<SegmentationMetrics>(data_.train->class_names());
}

void SegmentationTask::report(const TrainedModel& trained, const data::DatasetPointer& part, const VisitBatches& visit,
                              ReportSections& sections) const {
  const std::vector<std::string>& names = part->class_names();
  ConfusionMatrix matrix(part->classes());
  std::vector<Example> first, worst;
  visit([&](const data::Batch& batch) {
    const Tensor predicted = argmax((*trained.model)(inputs(trained, batch)), -1).to(Device{}).contiguous();
    const Tensor labels = batch["labels"].to(Device{}).contiguous();
    const Tensor images = batch["images"].to(DType::f32).to(Device{}).contiguous();
    matrix.add(predicted, labels, data::ignored_label);
    for (std::int64_t row = 0; row < batch.size(); ++row) {
      Example example = example_of(batch, images, predicted, labels, row);
      if (first.size() < shown_masks) first.push_back(example);
      worst.push_back(std::move(example));
    }
    std::sort(worst.begin(), worst.end(), is_worse_example);
    if (worst.size() > shown_masks) worst.resize(shown_masks);
  });
  sections.heading("Confusion matrix of pixels");
  sections.confusion(matrix, names);
  sections.heading("Classes");
  report_each_class(matrix, names, sections);
  add_examples(sections, first, "Masks", names);
  add_examples(sections, worst, "Worst masks", names);
}

std::string SegmentationTask::describe() const {
  return join_text("images, ", info_.classes, " classes of pixels, input ", info_.height, "x", info_.width, "x",
                   info_.channels);
}

}  // namespace hearth::train
