// SPDX-License-Identifier: Apache-2.0
#include "data/masks/inspect_masks.h"

#include <algorithm>
#include <array>
#include <iomanip>

#include "core/error.h"
#include "core/io/printable.h"
#include "core/text_stream.h"
#include "data/images/contact_sheet.h"
#include "data/images/transforms/resize.h"
#include "data/images/transforms/transforms.h"
#include "data/masks/draw_masks.h"

namespace hearth::data {
namespace {

struct PixelCounts {
  std::vector<std::int64_t> pixels, images;  // by label, those that do not count last
  std::array<int, 2> height{}, width{};      // least and greatest
  std::int64_t decoded = 0, all = 0;

  double share(std::size_t label) const {
    return all > 0 ? static_cast<double>(pixels[label]) / static_cast<double>(all) : 0;
  }
};

void widen(std::array<int, 2>& range, int value, bool is_first) {
  range[0] = is_first ? value : std::min(range[0], value);
  range[1] = is_first ? value : std::max(range[1], value);
}

void count_pixels(const Image& mask, PixelCounts& counts) {
  std::array<std::int64_t, 256> of_mask{};
  for (const std::uint8_t label : mask.pixels) ++of_mask[label];
  const std::size_t classes = counts.pixels.size() - 1;
  for (std::size_t label = 0; label <= classes; ++label) {
    const std::int64_t pixels = of_mask[label == classes ? ignored_pixel : label];
    counts.pixels[label] += pixels;
    counts.images[label] += pixels > 0 ? 1 : 0;
    counts.all += pixels;
  }
  const bool is_first = counts.decoded++ == 0;
  widen(counts.height, mask.height, is_first);
  widen(counts.width, mask.width, is_first);
}

Json inspection_json(const MaskDataset& dataset, const PixelCounts& counts, const Warnings& problems,
                     const Warnings& warnings) {
  Json classes = Json::array();
  const std::vector<std::string>& names = dataset.class_names();
  for (std::size_t label = 0; label < names.size(); ++label)
    classes.push_back(Json::object()
                          .set("name", names[label])
                          .set("pixels", counts.pixels[label])
                          .set("share", counts.share(label))
                          .set("images", counts.images[label]));
  const auto range = [](const std::array<int, 2>& values) {
    return Json::array().push_back(values[0]).push_back(values[1]);
  };
  return Json::object()
      .set("source", dataset.source())
      .set("images", dataset.size())
      .set("decoded", counts.decoded)
      .set("classes", std::move(classes))
      .set("ignored_pixels", counts.pixels.back())
      .set("height", range(counts.height))
      .set("width", range(counts.width))
      .set("problems", problems.count)
      .set("first_problems", Json::array_of(problems.first))
      .set("warnings", warnings.count)
      .set("first_warnings", Json::array_of(warnings.first));
}

std::string inspection_text(const MaskDataset& dataset, const PixelCounts& counts, const Warnings& problems,
                            const Warnings& warnings) {
  TextStream out;
  out << printable(dataset.source()) << ": " << dataset.size() << " images with masks, " << dataset.classes()
      << " classes\n  decoded " << counts.decoded << ": height " << counts.height[0] << " to " << counts.height[1]
      << ", width " << counts.width[0] << " to " << counts.width[1] << '\n';
  out << std::fixed << std::setprecision(2);
  const std::vector<std::string>& names = dataset.class_names();
  for (std::size_t label = 0; label <= names.size(); ++label)
    out << "  " << (label < names.size() ? printable(names[label]) : "(ignored)") << ": " << 100 * counts.share(label)
        << " % of the pixels, in " << counts.images[label] << " images\n";
  for (const auto& [what, list] : {std::pair{"problems", &problems}, std::pair{"warnings", &warnings}}) {
    out << "  " << what << ": " << list->count << '\n';
    for (const std::string& text : list->first) out << "    " << printable(text) << '\n';
  }
  return out.str();
}

}  // namespace

MaskInspection inspect_masks(const MaskDataset& dataset, std::int64_t most) {
  PixelCounts counts;
  counts.pixels.resize(static_cast<std::size_t>(dataset.classes()) + 1);
  counts.images.resize(counts.pixels.size());
  Warnings problems, warnings;
  Image image, mask;
  for (const std::int64_t index : spread_samples(dataset.size(), most < 0 ? dataset.size() : most)) {
    try {
      dataset.read(index, image, mask);
    } catch (const OutOfMemory&) {
      throw;
    } catch (const Error& error) {
      problems.add(error.what());
      continue;
    }
    count_pixels(mask, counts);
  }
  for (std::size_t label = 0; label + 1 < counts.pixels.size(); ++label)
    if (counts.pixels[label] == 0)
      warnings.add("class '" + dataset.class_names()[label] + "' has no pixel in the masks that were decoded");
  warnings.add(dataset.warnings());
  return {inspection_json(dataset, counts, problems, warnings), inspection_text(dataset, counts, problems, warnings),
          problems.count};
}

Image mask_sheet(const MaskDataset& dataset, const std::vector<std::int64_t>& samples, int side) {
  return contact_sheet(samples, side, [&](std::int64_t sample, Image& fitted) {
    Image image, mask, fitted_mask;
    dataset.read(sample, image, mask);
    const Sizing sizing = whole_within(image.height, image.width, side);
    resize(image, {0, 0, image.height, image.width}, sizing.height, sizing.width, fitted);
    resize_mask(mask, sizing, fitted_mask);
    draw_mask(fitted, fitted_mask);
  });
}

}  // namespace hearth::data
