// SPDX-License-Identifier: Apache-2.0
#include "data/boxes/inspect_boxes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iomanip>
#include <utility>

#include "core/error.h"
#include "core/io/printable.h"
#include "core/text_stream.h"
#include "data/boxes/draw_boxes.h"
#include "data/images/contact_sheet.h"
#include "data/images/transforms/resize.h"
#include "data/images/transforms/transforms.h"

namespace hearth::data {
namespace {

struct Extent {
  double least = 0, greatest = 0;
  bool is_empty = true;
  void add(double value) {
    least = is_empty ? value : std::min(least, value);
    greatest = is_empty ? value : std::max(greatest, value);
    is_empty = false;
  }
  Json json() const { return Json::array().push_back(least).push_back(greatest); }
};

struct BoxCounts {
  std::int64_t images = 0, background = 0, boxes = 0, crowds = 0, ignored = 0, empty = 0, most = 0;
  std::vector<std::int64_t> by_class, images_of_class;
  std::array<std::int64_t, 3> by_size{};  // small, medium, large
  std::int64_t sized = 0;                 // boxes whose size is known
  Extent height, width;                   // of images
  std::int64_t decoded = 0;
};
constexpr const char* size_names[] = {"small", "medium", "large"};

void count_size(const BoxAnnotation& box, BoxCounts& counts) {
  constexpr double small = 32 * 32, large = 96 * 96;
  ++counts.by_size[box.area < small ? 0u : box.area <= large ? 1u : 2u];
  ++counts.sized;
}

void count_labels(const BoxDataset& dataset, BoxCounts& counts) {
  const AnnotatedImages& annotated = dataset.annotated();
  counts.images = dataset.size();
  counts.by_class.resize(static_cast<std::size_t>(dataset.classes()));
  counts.images_of_class.resize(counts.by_class.size());
  std::vector<std::int64_t> last_image(counts.by_class.size(), -1);
  for (std::int64_t i = 0; i < dataset.size(); ++i) {
    const auto boxes = annotated.boxes_of(static_cast<std::size_t>(i));
    counts.background += boxes.empty() ? 1 : 0;
    counts.most = std::max(counts.most, static_cast<std::int64_t>(boxes.size()));
    for (const BoxAnnotation& box : boxes) {
      const auto label = static_cast<std::size_t>(box.label);
      ++counts.boxes, ++counts.by_class[label];
      if (std::exchange(last_image[label], i) != i) ++counts.images_of_class[label];
      counts.crowds += box.crowd, counts.ignored += box.ignored, counts.empty += !box.has_area();
      if (!annotated.normalized) count_size(box, counts);
    }
  }
}

Warnings read_some(const BoxDataset& dataset, std::int64_t most, BoxCounts& counts) {
  const std::int64_t count = most < 0 ? dataset.size() : std::min(most, dataset.size());
  Warnings problems;
  for (const auto& [index, fault] : dataset.annotated().faults) problems.add(fault);
  Image image;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t index = i * dataset.size() / count;
    if (dataset.annotated().faults.contains(index)) continue;
    try {
      dataset.read(index, image);
    } catch (const OutOfMemory&) {
      throw;
    } catch (const Error& error) {
      problems.add(error.what());
      continue;
    }
    ++counts.decoded;
    counts.height.add(image.height), counts.width.add(image.width);
    if (!dataset.annotated().normalized) continue;
    for (const BoxAnnotation& box : dataset.boxes_in_pixels(index, image.height, image.width)) count_size(box, counts);
  }
  return problems;
}

Warnings warnings_of(const BoxDataset& dataset, const BoxCounts& counts) {
  Warnings warnings;
  for (std::size_t label = 0; label < counts.by_class.size(); ++label)
    if (counts.by_class[label] == 0) warnings.add("class '" + dataset.class_names()[label] + "' has no box");
  warnings.add(dataset.warnings());
  return warnings;
}

Json json_of(const BoxDataset& dataset, const BoxCounts& counts, const Warnings& problems, const Warnings& warnings) {
  Json classes = Json::array();
  for (std::size_t label = 0; label < counts.by_class.size(); ++label)
    classes.push_back(Json::object()
                          .set("name", dataset.class_names()[label])
                          .set("category_id", dataset.annotated().category_ids[label])
                          .set("boxes", counts.by_class[label])
                          .set("images", counts.images_of_class[label]));
  Json sizes = Json::object();
  for (std::size_t i = 0; i < counts.by_size.size(); ++i) sizes.set(size_names[i], counts.by_size[i]);
  return Json::object()
      .set("source", dataset.source())
      .set("images", counts.images)
      .set("background", counts.background)
      .set("boxes", counts.boxes)
      .set("most_boxes", counts.most)
      .set("crowds", counts.crowds)
      .set("ignored", counts.ignored)
      .set("without_area", counts.empty)
      .set("classes", std::move(classes))
      .set("sizes", std::move(sizes))
      .set("decoded", counts.decoded)
      .set("height", counts.height.json())
      .set("width", counts.width.json())
      .set("problems", problems.count)
      .set("first_problems", Json::array_of(problems.first))
      .set("warnings", warnings.count)
      .set("first_warnings", Json::array_of(warnings.first));
}

std::string text_of(const BoxDataset& dataset, const BoxCounts& counts, const Warnings& problems,
                    const Warnings& warnings) {
  TextStream out;
  out << printable(dataset.source()) << ": " << counts.images << " images, of which " << counts.background
      << " without boxes, " << counts.boxes << " boxes, " << dataset.classes() << " classes\n";
  out << "  boxes an image: at most " << counts.most << ", on average " << std::fixed << std::setprecision(2)
      << (counts.images > 0 ? static_cast<double>(counts.boxes) / static_cast<double>(counts.images) : 0.0) << '\n';
  out << "  crowds " << counts.crowds << ", ignored " << counts.ignored << ", without area " << counts.empty << '\n';
  out << "  of " << counts.sized << " boxes: ";
  for (std::size_t i = 0; i < counts.by_size.size(); ++i)
    out << (i == 0 ? "" : ", ") << counts.by_size[i] << ' ' << size_names[i];
  out << '\n' << std::setprecision(0);
  out << "  decoded " << counts.decoded << ": height " << counts.height.least << " to " << counts.height.greatest
      << ", width " << counts.width.least << " to " << counts.width.greatest << '\n';
  for (std::size_t label = 0; label < counts.by_class.size(); ++label)
    out << "  " << printable(dataset.class_names()[label]) << ": " << counts.by_class[label] << " boxes in "
        << counts.images_of_class[label] << " images\n";
  out << "  problems: " << problems.count << '\n';
  for (const std::string& problem : problems.first) out << "    " << printable(problem) << '\n';
  out << "  warnings: " << warnings.count << '\n';
  for (const std::string& warning : warnings.first) out << "    " << printable(warning) << '\n';
  return out.str();
}

}  // namespace

BoxInspection inspect_boxes(const BoxDataset& dataset, std::int64_t most) {
  BoxCounts counts;
  count_labels(dataset, counts);
  const Warnings problems = read_some(dataset, most, counts);
  const Warnings warnings = warnings_of(dataset, counts);
  return {json_of(dataset, counts, problems, warnings), text_of(dataset, counts, problems, warnings), problems.count};
}

Image box_sheet(const BoxDataset& dataset, const std::vector<std::int64_t>& samples, int side) {
  return contact_sheet(samples, side, [&](std::int64_t sample, Image& fitted) {
    Image image;
    dataset.read(sample, image);
    const Sizing sizing = whole_within(image.height, image.width, side);
    resize(image, {0, 0, image.height, image.width}, sizing.height, sizing.width, fitted);
    const double sx = 1.0 * sizing.width / image.width, sy = 1.0 * sizing.height / image.height;
    for (const BoxAnnotation& box : dataset.boxes_in_pixels(sample, image.height, image.width)) {
      const auto& at = box.corners;
      draw_box(fitted, {at[0] * sx, at[1] * sy, at[2] * sx, at[3] * sy}, box.label, box.crowd);
    }
  });
}

}  // namespace hearth::data
