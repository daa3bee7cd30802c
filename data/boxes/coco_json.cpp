// SPDX-License-Identifier: Apache-2.0
#include "data/boxes/coco_json.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/io/printable.h"
#include "data/boxes/coco_text.h"

namespace hearth::data {
namespace {

/// Images of fewer rows or columns may show objects of one pixel.
constexpr std::int32_t least_side_of_large_images = 16;

/// Numbers by id.
class IdTable {
 public:
  template <class Items>
  explicit IdTable(const Items& items) {
    ids_.reserve(items.size());
    for (const auto& item : items) ids_.emplace_back(item.id, static_cast<std::int64_t>(ids_.size()));
    if (!std::is_sorted(ids_.begin(), ids_.end())) std::sort(ids_.begin(), ids_.end());
  }
  /// The first id that is there twice, with the two numbers.
  struct Repeat {
    std::int64_t id, first, second;
  };
  std::optional<Repeat> repeat() const {
    for (std::size_t i = 1; i < ids_.size(); ++i)
      if (ids_[i - 1].first == ids_[i].first) return Repeat{ids_[i].first, ids_[i - 1].second, ids_[i].second};
    return std::nullopt;
  }
  std::optional<std::int64_t> find(std::int64_t id) const {
    const auto place = std::lower_bound(ids_.begin(), ids_.end(), std::pair(id, std::int64_t{-1}));
    if (place == ids_.end() || place->first != id) return std::nullopt;
    return place->second;
  }

 private:
  std::vector<std::pair<std::int64_t, std::int64_t>> ids_;
};

/// The first of the names that is there twice.
template <class Items, class Name>
std::string repeated_name(const Items& items, const Name& name_of_item) {
  std::vector<std::string_view> names;
  for (const auto& item : items) names.push_back(name_of_item(item));
  std::sort(names.begin(), names.end());
  const auto repeat = std::adjacent_find(names.begin(), names.end());
  return repeat == names.end() ? "" : std::string(*repeat);
}

void check_records(const CocoText& text, const IdTable& images, const std::string& path) {
  HEARTH_CHECK(DataError, !text.images.empty(), path, ": lists no images");
  HEARTH_CHECK(DataError, !text.categories.empty(), path, ": lists no categories");
  if (const auto repeat = images.repeat())
    throw DataError(join_text(path, ": the image id ", repeat->id, " is there twice, images[", repeat->first, "] and [",
                              repeat->second, "]; give each image an id of its own"));
  const std::string file =
      repeated_name(text.images, [](const AnnotatedImage& image) -> std::string_view { return image.file; });
  HEARTH_CHECK(DataError, file.empty(), path, ": two images have the file_name ", file,
               ", each with some of its boxes; make them one");
  for (const AnnotatedImage& image : text.images)
    HEARTH_CHECK(DataError,
                 !image.file.empty() && image.file.front() != '/' && !image.file.starts_with("../") &&
                     image.file.find("/../") == image.file.npos && image.file.find('\\') == image.file.npos,
                 path, ": image ", image.id, ": the file_name \"", printable(image.file),
                 "\" is not below the folder of images; write it from there on, with '/' between folders");
  if (const auto repeat = IdTable(text.annotations).repeat())
    throw DataError(join_text(path, ": the annotation id ", repeat->id, " is there twice, annotations[", repeat->first,
                              "] and [", repeat->second, "]; give each annotation an id of its own"));
}

/// DataError where there are no boxes, or where the numbers of all can be shares of the sides only.
void check_boxes(const CocoText& text, const std::string& path) {
  HEARTH_CHECK(DataError, !text.annotations.empty(), path,
               ": lists no annotations, as files of images to be predicted do; give labels with boxes, or leave the "
               "split out");
  for (const CocoRecord& record : text.annotations)
    for (const double number : record.box)
      if (!(number >= 0 && number <= 1)) return;
  if (std::none_of(text.images.begin(), text.images.end(), [](const AnnotatedImage& image) {
        return std::min(image.width, image.height) >= least_side_of_large_images;
      }))
    return;
  throw DataError(join_text(path, ": the numbers of all ", text.annotations.size(),
                            " boxes are between 0 and 1, as shares of the sides, and COCO's are pixels; multiply x and "
                            "width by the image's width, and y and height by its height"));
}

/// Sets the classes, and returns the label of each category id.
std::vector<std::pair<std::int64_t, std::int32_t>> set_classes(CocoText& text, const std::string& path,
                                                               AnnotatedImages& result) {
  std::sort(text.categories.begin(), text.categories.end(),
            [](const CocoCategory& a, const CocoCategory& b) { return a.id < b.id; });
  std::vector<std::pair<std::int64_t, std::int32_t>> labels;
  for (const CocoCategory& category : text.categories) {
    HEARTH_CHECK(DataError, labels.empty() || labels.back().first != category.id, path, ": the category id ",
                 category.id, " is there twice; give each category an id of its own");
    HEARTH_CHECK(DataError, !category.name.empty(), path, ": category ", category.id, " has an empty name");
    labels.emplace_back(category.id, static_cast<std::int32_t>(labels.size()));
    result.class_names.push_back(category.name);
    result.category_ids.push_back(category.id);
  }
  const std::string name =
      repeated_name(text.categories, [](const CocoCategory& category) -> std::string_view { return category.name; });
  HEARTH_CHECK(DataError, name.empty(), path, ": two categories have the name \"", name,
               "\"; make them one, or give them different names");
  return labels;
}

/// The annotations in the order of their images, and where those of each image begin.
struct ByImage {
  std::vector<std::uint32_t> order;
  std::vector<std::size_t> begin;
};
ByImage sort_by_image(const CocoText& text, const IdTable& images, const std::string& path) {
  ByImage sorted{std::vector<std::uint32_t>(text.annotations.size()), std::vector<std::size_t>(text.images.size() + 1)};
  std::vector<std::uint32_t> image_of;
  image_of.reserve(text.annotations.size());
  for (const CocoRecord& record : text.annotations) {
    const std::optional<std::int64_t> image = images.find(record.image);
    HEARTH_CHECK(DataError, image.has_value(), path, ": annotation ", record.id, " is of the image ", record.image,
                 ", which \"images\" does not list; add the image, or take the annotation out");
    image_of.push_back(static_cast<std::uint32_t>(*image));
    ++sorted.begin[static_cast<std::size_t>(*image) + 1];
  }
  for (std::size_t i = 1; i < sorted.begin.size(); ++i) sorted.begin[i] += sorted.begin[i - 1];
  std::vector<std::size_t> next(sorted.begin.begin(), sorted.begin.end() - 1);
  for (std::size_t i = 0; i < image_of.size(); ++i) sorted.order[next[image_of[i]]++] = static_cast<std::uint32_t>(i);
  return sorted;
}

/// Whether the numbers are no box of the image, and would be as two corners.
bool are_corners(const std::array<double, 4>& box, const AnnotatedImage& image) {
  const auto& [x, y, right, bottom] = box;
  return (x + right > image.width + max_clipped_pixels || y + bottom > image.height + max_clipped_pixels) && x >= 0 &&
         y >= 0 && right > x && bottom > y && right <= image.width && bottom <= image.height;
}

}  // namespace

AnnotatedImages read_coco(const std::string& json, const std::string& images, OnFault on_fault) {
  CocoText text = read_coco_text(json);
  HEARTH_CHECK(DataError, text.annotations.size() >> 32 == 0, json, ": has ", text.annotations.size(),
               " annotations; 2^32 - 1 is the most");
  const IdTable image_ids(text.images);
  check_records(text, image_ids, json);
  AnnotatedImages result{.source = json, .folder = images};
  const auto labels = set_classes(text, json, result);
  check_boxes(text, json);
  const ByImage sorted = sort_by_image(text, image_ids, json);
  result.images.reserve(text.images.size());
  result.boxes.reserve(text.annotations.size());
  AnnotationBuilder builder(result, on_fault);
  for (std::size_t i = 0; i < text.images.size(); ++i) {
    builder.begin_image(std::move(text.images[i]));
    for (std::size_t at = sorted.begin[i]; at < sorted.begin[i + 1]; ++at) {
      const std::size_t number = sorted.order[at];
      const CocoRecord& record = text.annotations[number];
      const auto place = [&] {
        return join_text(json, ": annotation ", record.id, " of ", printable(result.images.back().file));
      };
      const auto label = std::lower_bound(labels.begin(), labels.end(), std::pair(record.category, std::int32_t{-1}));
      if (label == labels.end() || label->first != record.category) {
        builder.fault(join_text(place(), ": the category ", record.category, " is none of \"categories\""));
        continue;
      }
      if (const auto fault = text.mask_faults.find(number); fault != text.mask_faults.end()) {
        builder.fault(place() + ": " + fault->second);
        continue;
      }
      const auto& [x, y, width, height] = record.box;
      if (const AnnotatedImage& image = result.images.back(); are_corners(record.box, image)) {
        builder.fault(join_text(place(), ": the box of ", width, " x ", height, " at (", x, ", ", y,
                                ") leaves the image of ", image.width, " x ", image.height,
                                ", and as corners it would not; COCO's are x, y, width and height"));
        continue;
      }
      builder.add({{x, y, x + width, y + height}, record.area, label->second, record.crowd, record.ignored}, place);
    }
    builder.end_image();
  }
  builder.finish();
  return result;
}

}  // namespace hearth::data
