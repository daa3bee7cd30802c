// SPDX-License-Identifier: Apache-2.0
#include "data/boxes/annotations.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "core/error.h"
#include "data/source/source.h"

namespace hearth::data {
namespace {

std::string text_of(const std::array<double, 4>& corners) {
  return join_text('[', corners[0], ", ", corners[1], ", ", corners[2], ", ", corners[3], ']');
}

/// How far the box leaves [0, width] x [0, height].
double excess_of(const std::array<double, 4>& corners, double width, double height) {
  return std::max({-corners[0], -corners[1], corners[2] - width, corners[3] - height, 0.0});
}

std::string folder_of(const std::string& file) {
  const std::size_t slash = file.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : file.substr(0, slash);
}

std::string last_part(const std::string& file) { return file.substr(file.rfind('/') + 1); }

/// The names of files in a folder of the images' folder; none where there is no such folder.
std::unordered_set<std::string> files_in(const std::string& folder) {
  std::unordered_set<std::string> files;
  const std::optional<SourceEntry> there = find_source(folder);
  if (!there || there->kind != SourceEntry::Kind::folder) return files;
  for (SourceEntry& entry : list_source(folder))
    if (entry.kind == SourceEntry::Kind::file) files.insert(std::move(entry.name));
  return files;
}

/// A folder that has `file`, as a user may have meant it: one below, or the one above; empty where there is none.
std::string folder_that_has(const std::string& folder, const std::string& file) {
  const auto has = [&](const std::string& candidate) {
    const std::optional<SourceEntry> entry = find_source(name_in(candidate, file));
    return entry && entry->kind == SourceEntry::Kind::file;
  };
  for (const SourceEntry& entry : list_source(folder)) {
    if (entry.kind != SourceEntry::Kind::folder) continue;
    const std::string below = name_in(folder, entry.name);
    if (has(below)) return below;
    for (const SourceEntry& inner : list_source(below))
      if (inner.kind == SourceEntry::Kind::folder && has(name_in(below, inner.name))) return name_in(below, inner.name);
  }
  const std::string above = folder_of(folder.substr(0, folder.find_last_not_of('/') + 1));
  return has(above) ? above : "";
}

/// "; FOLDER has it" and the like; empty where nothing is found.
std::string hint_for(const std::string& folder, const std::string& file) {
  if (const std::string better = folder_that_has(folder, file); !better.empty())
    return join_text("; give ", better, " as the folder of images, which has it");
  const std::string last = last_part(file);
  if (last == file) return "";
  const std::optional<SourceEntry> beside = find_source(name_in(folder, last));
  if (!beside) return "";
  return join_text("; the folder has ", last, " without \"", folder_of(file),
                   "/\": change the names in the labels, or the folder");
}

}  // namespace

void AnnotationBuilder::begin_image(AnnotatedImage image) {
  image.first_box = static_cast<std::int64_t>(into_.boxes.size());
  image.boxes = 0;
  into_.images.push_back(std::move(image));
}

void AnnotationBuilder::fault(const std::string& text) {
  HEARTH_CHECK(DataError, !fails_, text,
               "; correct the labels, or set \"bad_samples\" to \"skip\" to pass over such images");
  into_.faults.emplace(static_cast<std::int64_t>(into_.images.size()) - 1, text);
}

void AnnotationBuilder::add(BoxAnnotation box, const std::function<std::string()>& place) {
  const AnnotatedImage& image = into_.images.back();
  std::array<double, 4>& corners = box.corners;
  if (!std::all_of(corners.begin(), corners.end(), [](double value) { return std::isfinite(value); }))
    return fault(place() + ": a box of " + text_of(corners) + ", which is not finite");
  if (corners[2] < corners[0] || corners[3] < corners[1])
    return fault(join_text(place(), ": a box of width ", corners[2] - corners[0], " and height ",
                           corners[3] - corners[1], "; sides are 0 or more"));
  const bool shares = into_.normalized;
  const double width = shares ? 1 : image.width, height = shares ? 1 : image.height;
  const double excess = excess_of(corners, width, height);
  if (excess > (shares ? max_clipped_share : max_clipped_pixels))
    return fault(join_text(place(), ": the box from (", corners[0], ", ", corners[1], ") to (", corners[2], ", ",
                           corners[3], ") leaves the image of ", width, " x ", height));
  if (excess > 0) {
    if (clipped_++ == 0) first_clipped_ = place();
    for (std::size_t i = 0; i < 4; ++i) corners[i] = std::clamp(corners[i], 0.0, i % 2 == 0 ? width : height);
  }
  if (!box.has_area()) warn(place() + ": a box without area is no target");
  into_.boxes.push_back(box);
}

void AnnotationBuilder::drop_repeats() {
  const AnnotatedImage& image = into_.images.back();
  const auto begin = into_.boxes.begin() + image.first_box;
  if (into_.boxes.end() - begin < 2) return;
  const auto key = [](const BoxAnnotation& box) { return std::tie(box.corners, box.label, box.crowd); };
  std::vector<std::size_t> order(static_cast<std::size_t>(into_.boxes.end() - begin));
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto at = [&](std::size_t i) -> const BoxAnnotation& { return begin[static_cast<std::ptrdiff_t>(i)]; };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return key(at(a)) < key(at(b)); });
  std::vector<std::size_t> repeats;
  for (std::size_t i = 1; i < order.size(); ++i)
    if (key(at(order[i - 1])) == key(at(order[i]))) repeats.push_back(order[i]);
  if (repeats.empty()) return;
  warn(join_text(image.file, ": ", repeats.size(), repeats.size() == 1 ? " box is" : " boxes are",
                 " there twice, of the same class and corners; one of them counts"));
  std::sort(repeats.begin(), repeats.end(), std::greater<>());
  for (const std::size_t repeat : repeats) into_.boxes.erase(begin + static_cast<std::ptrdiff_t>(repeat));
}

void AnnotationBuilder::end_image() {
  drop_repeats();
  AnnotatedImage& image = into_.images.back();
  image.boxes = static_cast<std::int64_t>(into_.boxes.size()) - image.first_box;
}

void AnnotationBuilder::finish() {
  if (clipped_ > 0)
    warn(join_text(clipped_, clipped_ == 1 ? " box was" : " boxes were", " clipped to the image by ",
                   into_.normalized ? join_text(max_clipped_share, " of its sides") : std::string("1 pixel"),
                   " at most, the first at ", first_clipped_));
}

void require_files(AnnotatedImages& annotated, OnFault on_fault) {
  if (!annotated.folder.empty()) {
    const std::optional<SourceEntry> there = find_source(annotated.folder);
    HEARTH_CHECK(FileError, there && there->kind == SourceEntry::Kind::folder, annotated.folder,
                 ": no such folder of images");
  }
  std::map<std::string, std::unordered_set<std::string>> folders;
  std::vector<std::size_t> missing;
  for (std::size_t i = 0; i < annotated.images.size(); ++i) {
    const std::string path = annotated.path_of(i), folder = folder_of(path);
    auto listed = folders.find(folder);
    if (listed == folders.end()) listed = folders.emplace(folder, files_in(folder)).first;
    if (!listed->second.contains(last_part(path))) missing.push_back(i);
  }
  if (missing.empty()) return;
  const std::string& first = annotated.images[missing.front()].file;
  const std::string hint = annotated.folder.empty() ? "" : hint_for(annotated.folder, first);
  HEARTH_CHECK(DataError, missing.size() < annotated.images.size(),
               annotated.folder.empty() ? annotated.source : annotated.folder, ": has none of the ",
               annotated.images.size(), " images of ", annotated.source, ", the first of which is ", first, hint);
  HEARTH_CHECK(DataError, on_fault == OnFault::skip, annotated.path_of(missing.front()), ": is an image of ",
               annotated.source, " and missing, one of ", missing.size(), " of ", annotated.images.size(), hint,
               "; bring them back, or set \"bad_samples\" to \"skip\" to pass over such images");
  for (const std::size_t i : missing)
    annotated.faults.emplace(static_cast<std::int64_t>(i), annotated.path_of(i) + ": is missing");
}

void match_classes(AnnotatedImages& annotated, const std::vector<std::string>& names) {
  if (annotated.class_names == names) return;
  std::vector<std::int32_t> label_of;
  std::vector<std::int64_t> ids(names.size(), -1);
  for (std::size_t i = 0; i < annotated.class_names.size(); ++i) {
    const auto place = std::find(names.begin(), names.end(), annotated.class_names[i]);
    HEARTH_CHECK(DataError, place != names.end(), annotated.source, ": the class \"", annotated.class_names[i],
                 "\" is none of the ", names.size(), " of the training split; take it out, or add it there");
    const auto label = static_cast<std::size_t>(place - names.begin());
    label_of.push_back(static_cast<std::int32_t>(label));
    ids[label] = annotated.category_ids[i];
  }
  for (BoxAnnotation& box : annotated.boxes) box.label = label_of[static_cast<std::size_t>(box.label)];
  annotated.class_names = names;
  annotated.category_ids = std::move(ids);
}

}  // namespace hearth::data
