// SPDX-License-Identifier: Apache-2.0
#include "train/task/report/training_inputs.h"

#include <algorithm>
#include <cmath>

#include "data/boxes/draw_boxes.h"
#include "data/images/image_dataset.h"
#include "data/loading/loader.h"

namespace hearth::train {
namespace {

constexpr std::int64_t images_shown = 8, most_bars = 30;

/// An image of a batch, f32 [H, W, C], by its pixels before they were normalized.
data::Image pixels_of(const Tensor& images, std::int64_t row, const data::Normalizer& normalizer) {
  const std::int64_t channels = images.dim(3), size = images.size() / images.dim(0);
  data::Image image;
  image.reshape(static_cast<int>(images.dim(1)), static_cast<int>(images.dim(2)), static_cast<int>(channels));
  const float* const from = images.data<const float>() + row * size;
  for (std::int64_t i = 0; i < size; ++i) {
    const auto values = normalizer.values().subspan(static_cast<std::size_t>(i % channels) * 256, 256);
    const float pixel = std::round(255 * (from[i] - values.front()) / (values.back() - values.front()));
    image.pixels[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(std::clamp(pixel, 0.0F, 255.0F));
  }
  return image;
}

/// "cat", or of a mixed sample "70.00 % cat, 30.00 % dog".
std::string label_text(const Tensor& labels, std::int64_t row, const std::vector<std::string>& names) {
  if (labels.rank() == 1) {
    const std::int64_t label = labels.data<const std::int64_t>()[row];
    return label >= 0 && label < static_cast<std::int64_t>(names.size()) ? names[static_cast<std::size_t>(label)] : "";
  }
  std::string text;
  const float* const shares = labels.data<const float>() + row * labels.dim(1);
  for (std::size_t label = 0; label < names.size(); ++label)
    if (shares[label] > 0)
      text +=
          join_text(text.empty() ? "" : ", ", shares[label] < 1 ? percent_text(shares[label]) + " " : "", names[label]);
  return text;
}

void add_images(const data::DataSplits& data, std::uint64_t seed, ReportSections& sections) {
  data::Loader loader(data.train, data.train_transforms,
                      {.batch_size = std::min(images_shown, data.train->size()),
                       .workers = 0,
                       .prefetch = 1,
                       .shuffle = true,
                       .seed = seed,
                       .mixup_alpha = data.image_options.augment.mixup,
                       .cutmix_alpha = data.image_options.augment.cutmix,
                       .dtype = DType::f32});
  const data::Batch batch = loader.next();
  std::vector<Figure> figures;
  std::int64_t first_box = 0;
  for (std::int64_t row = 0; row < batch.size(); ++row) {
    Figure& figure = figures.emplace_back();
    figure.images = {pixels_of(batch["images"], row, data.train_transforms.normalizer())};
    if (batch.has("labels")) {
      figure.caption = label_text(batch["labels"], row, data.train->class_names());
      continue;
    }
    const std::int64_t boxes = batch["box_counts"].data<const std::int64_t>()[row];
    for (std::int64_t i = first_box; i < first_box + boxes; ++i) {
      const float* const at = batch["boxes"].data<const float>() + 4 * i;
      data::draw_box(figure.images[0], {at[0], at[1], at[2], at[3]}, batch["classes"].data<const std::int64_t>()[i],
                     batch["box_flags"].data<const std::uint8_t>()[i] != 0);
    }
    figure.caption = join_text(boxes, boxes == 1 ? " box" : " boxes");
    first_box += boxes;
  }
  sections.heading("What the model is shown");
  sections.paragraph("Images of the training split after all augmentation, as another epoch would have them.");
  sections.figures(figures);
}

void add_classes(const data::ImageDataset& images, ReportSections& sections) {
  const std::vector<std::string>& names = images.class_names();
  if (names.empty() || static_cast<std::int64_t>(names.size()) > most_bars) return;
  std::vector<std::int64_t> counts(names.size());
  for (std::int64_t i = 0; i < images.size(); ++i) ++counts.at(static_cast<std::size_t>(images.label(i)));
  const auto most = static_cast<double>(*std::ranges::max_element(counts));
  std::vector<ReportSections::Bar> bars;
  for (std::size_t label = 0; label < names.size(); ++label)
    bars.push_back({names[label], join_text(counts[label]), static_cast<double>(counts[label]) / most});
  sections.heading("Classes of the training split");
  sections.bars(bars);
}

}  // namespace

void add_training_inputs(const data::DataSplits& data, std::uint64_t seed, ReportSections& sections) {
  const data::DatasetPointer& train = data.train;
  if (train == nullptr || train->size() == 0 || (train->images() == nullptr && train->boxes() == nullptr)) return;
  try {
    add_images(data, seed, sections);
  } catch (const Error& error) {
    sections.heading("What the model is shown");
    sections.paragraph(join_text("No images: ", error.what()));
  }
  if (train->images() != nullptr) add_classes(*train->images(), sections);
}

}  // namespace hearth::train
