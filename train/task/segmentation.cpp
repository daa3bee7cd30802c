// SPDX-License-Identifier: Apache-2.0
#include "train/task/segmentation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <iomanip>

#include "autograd/grad_mode.h"
#include "core/cpu/parallel.h"
#include "core/text_stream.h"
#include "data/images/codecs/decode.h"
#include "data/masks/draw_masks.h"
#include "data/masks/mask_dataset.h"
#include "data/sample_dataset.h"
#include "data/source/source_bytes.h"
#include "ops/ops.h"
#include "train/model/trained_model.h"
#include "train/task/fitting_model.h"
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
  return drawn(height, width,
               [&](std::int64_t y, std::int64_t x) { return data::mask_colour(classes[y * width + x]); });
}

/// Of a sample: its image, what the model makes of it, and the truth.
struct Example {
  std::int64_t sample = 0;
  double accuracy = 0;  ///< of the pixels that count
  Figure figure{};
};

Example example_of(const data::Dataset& part, const data::Batch& batch, const Tensor& images, const Tensor& predicted,
                   const Tensor& labels, std::int64_t row) {
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
  const std::string name = part.sample_name(example.sample);
  example.figure.caption = join_text(name.empty() ? join_text("sample ", example.sample) : name, ": ",
                                     percent_text(example.accuracy), " of the pixels are correct");
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
    colours.push_back(hex_of(data::mask_colour(static_cast<std::int64_t>(label))));
  sections.heading(heading);
  sections.paragraph("Input, predicted mask, true mask; black does not count.");
  if (names.size() <= 30) sections.legend(names, colours);
  sections.figures(figures);
}

/// The class of each pixel of an image [height, width] by scores [1, S, S, classes], f32, of the input that it became:
/// scores are interpolated between the input's pixels.
void classes_of_pixels(const Tensor& scores, const data::Sizing& sizing, int height, int width, data::Image& mask) {
  const std::int64_t columns = scores.dim(2), classes = scores.dim(3);
  const float* const all = scores.data<const float>();
  // Where the image lies in the input, between even margins.
  const std::int64_t top = (scores.dim(1) - sizing.height) / 2, left = (columns - sizing.width) / 2;
  struct Place {
    std::int64_t near, far;
    float share;  // of `far`
  };
  const auto place = [](int pixel, int extent, int size, std::int64_t margin) {
    const double at = std::clamp((pixel + 0.5) * size / extent - 0.5, 0.0, size - 1.0);
    const auto near = static_cast<std::int64_t>(at);
    return Place{margin + near, margin + std::min<std::int64_t>(near + 1, size - 1),
                 static_cast<float>(at - static_cast<double>(near))};
  };
  mask.reshape(height, width, 1);
  cpu::parallel_chunks(height, [&](std::int64_t y) {
    const Place row = place(static_cast<int>(y), height, sizing.height, top);
    for (int x = 0; x < width; ++x) {
      const Place column = place(x, width, sizing.width, left);
      const auto at = [&](std::int64_t r, std::int64_t c) { return all + (r * columns + c) * classes; };
      const float *const a = at(row.near, column.near), *const b = at(row.near, column.far),
                         *const c = at(row.far, column.near), *const d = at(row.far, column.far);
      std::int64_t best = 0;
      float highest = 0;
      for (std::int64_t k = 0; k < classes; ++k) {
        const float upper = a[k] + column.share * (b[k] - a[k]), lower = c[k] + column.share * (d[k] - c[k]);
        const float score = upper + row.share * (lower - upper);
        if (k == 0 || score > highest) best = k, highest = score;
      }
      mask.row(static_cast<int>(y))[x] = static_cast<std::uint8_t>(best);
    }
  });
}

}  // namespace

SegmentationTask::SegmentationTask(const data::DataSplits& data) : data_(data) {
  if (data.train->masks() != nullptr) {
    const data::ImageShape shape = data.input_shape();
    info_ = {.height = shape.height,
             .width = shape.width,
             .channels = shape.channels,
             .classes = data.classes(),
             .labelled = true};
    return;
  }
  const auto* const samples = dynamic_cast<const data::SampleDataset*>(data.train.get());
  HEARTH_CHECK(
      ConfigError, samples != nullptr && samples->size() > 0 && samples->classes() > 0,
      "/task/type: segmentation is of images with masks (data type \"masks\"), or of a data::SampleDataset with "
      "class_names(), which the data are not; name another task");
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

void SegmentationTask::prepare(const TrainedModel& trained, const ChosenComponents& chosen) {
  require_model_among(chosen, {"deeplabv3", "fcn", "unet"});
  if (data_.train->masks() != nullptr) pixels_.prepare(trained, data_);
}

nn::Inputs SegmentationTask::inputs(const TrainedModel& trained, const data::Batch& batch) const {
  if (data_.train->masks() != nullptr) return pixels_.of(trained, batch);
  return {batch["images"]};
}

std::unique_ptr<Metrics> SegmentationTask::metrics() const {
  return std::make_unique<SegmentationMetrics>(data_.train->class_names());
}

Json SegmentationTask::predict(const TrainedModel& trained, const std::string& path, const std::string& folder) const {
  if (data_.train->masks() == nullptr) return Task::predict(trained, path, folder);
  const NoGrad no_grad;
  std::vector<std::uint8_t> bytes;
  data::read_bytes(path, bytes, data::image_limit);
  data::Image whole, decoded, input, scratch;
  data::decode_image(bytes, path, whole);
  Random random(0, 0);
  const data::Transforms& transforms = data_.eval_transforms;
  const auto choose = [&](int height, int width) { return transforms.sizing(height, width, random); };
  const data::Region region = data::decode_region(bytes, path, choose, decoded);
  transforms.augment(decoded, region, input, scratch, random);
  data::Batch batch;
  batch.set("images", Tensor::of<std::uint8_t>({1, input.height, input.width, input.channels}, input.pixels));
  batch.samples = {0};
  const Tensor scores = [&] {
    const AutocastScope autocast(trained.autocast());
    return (*trained.model)(inputs(trained, batch.to(trained.device())));
  }();
  data::Image mask;
  classes_of_pixels(scores.to(DType::f32).to(Device{}).contiguous(), region.sizing, whole.height, whole.width, mask);
  const std::filesystem::path stem = std::filesystem::path(path).stem();
  std::filesystem::create_directories(folder);
  const std::string mask_path = std::filesystem::path(folder) / (stem.string() + ".mask.png");
  const std::string picture = std::filesystem::path(folder) / (stem.string() + ".overlay.png");
  data::write_png(mask_path, mask);
  data::draw_mask(whole, mask);
  data::write_png(picture, whole);
  std::array<std::int64_t, 256> counts{};
  for (const std::uint8_t label : mask.pixels) ++counts[label];
  Json shares = Json::object();
  const std::vector<std::string>& names = data_.train->class_names();
  for (std::size_t label = 0; label < names.size(); ++label)
    shares.set(names[label], static_cast<double>(counts[label]) / static_cast<double>(mask.pixels.size()));
  return Json::object()
      .set("file", path)
      .set("mask", mask_path)
      .set("picture", picture)
      .set("shares", std::move(shares));
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
      Example example = example_of(*part, batch, images, predicted, labels, row);
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
