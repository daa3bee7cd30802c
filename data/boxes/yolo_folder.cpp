// SPDX-License-Identifier: Apache-2.0
#include "data/boxes/yolo_folder.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <unordered_set>

#include "core/error.h"
#include "core/io/printable.h"
#include "data/boxes/flat_yaml.h"
#include "data/formats/image_folder.h"
#include "data/source/source_bytes.h"

namespace hearth::data {
namespace {

constexpr ReadLimit yolo_text_limit{std::uint64_t{1} << 30, "lists of images"};
constexpr std::string_view yolo_space = " \t";

bool is_yolo_folder(const std::string& name) {
  const std::optional<SourceEntry> entry = find_source(name);
  return entry && entry->kind == SourceEntry::Kind::folder;
}

std::string folder_around(const std::string& file) {
  const std::size_t slash = file.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : file.substr(0, slash);
}

bool is_absolute(const std::string& name) { return name.starts_with('/') || !is_path(name); }

/// Without "." and "..", where it is a path.
std::string plain_path(const std::string& name) {
  return is_path(name) ? std::filesystem::path(name).lexically_normal().string() : name;
}

std::string from(const std::string& folder, const std::string& name) {
  std::string path = plain_path(is_absolute(name) ? name : name_in(folder, name));
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

[[noreturn]] void fail_yaml(const std::string& file, std::int64_t line, const std::string& text) {
  throw DataError(join_text(file, ": line ", line, ": ", text));
}

std::int64_t whole_number(const std::string& file, std::int64_t line, const std::string& text, const char* what) {
  std::int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > 100'000)
    fail_yaml(file, line, join_text(what, " is \"", printable(text), "\"; wanted is an integer from 0 to 100000"));
  return value;
}

std::vector<std::string> class_names_of(const FlatYaml& yaml) {
  const FlatYamlValue* const names = yaml.find("names");
  const FlatYamlValue* const count = yaml.find("nc");
  std::vector<std::string> result;
  HEARTH_CHECK(DataError, names != nullptr || count != nullptr, yaml.source,
               ": has neither \"names\" nor \"nc\"; write names: [first, second, ...]");
  if (names == nullptr) {
    const std::int64_t classes = whole_number(yaml.source, count->line, count->text, "\"nc\"");
    HEARTH_CHECK(DataError, classes > 0, yaml.source, ": \"nc\" is 0; there is a class at least");
    return numbered_classes(classes);
  }
  if (names->kind == FlatYamlValue::Kind::list) {
    for (const auto& [key, name] : names->items) result.push_back(name);
  } else if (names->kind == FlatYamlValue::Kind::map) {
    result.resize(names->items.size());
    for (const auto& [key, name] : names->items) {
      const auto label = static_cast<std::size_t>(whole_number(yaml.source, names->line, key, "a key of \"names\""));
      if (label >= result.size())
        fail_yaml(yaml.source, names->line,
                  join_text("\"names\" has ", result.size(), " classes and one of number ", label,
                            "; number them from 0 on, without holes"));
      if (!result[label].empty())
        fail_yaml(yaml.source, names->line, join_text("\"names\" has the class ", label, " twice"));
      result[label] = name;
    }
  } else {
    fail_yaml(yaml.source, names->line, "\"names\" is no list of names; write names: [first, second, ...]");
  }
  std::set<std::string> seen;
  for (const std::string& name : result)
    if (name.empty() || !seen.insert(name).second)
      fail_yaml(yaml.source, names->line,
                name.empty() ? std::string("a class of \"names\" has an empty name")
                             : "two classes have the name \"" + printable(name) + "\"; make them one");
  HEARTH_CHECK(DataError, !result.empty(), yaml.source, ": \"names\" has no class");
  if (count != nullptr) {
    const std::int64_t classes = whole_number(yaml.source, count->line, count->text, "\"nc\"");
    if (classes != static_cast<std::int64_t>(result.size()))
      fail_yaml(yaml.source, count->line,
                join_text("\"nc\" is ", classes, ", and \"names\" has ", result.size(), "; make them agree"));
  }
  return result;
}

/// The folders and lists of a split.
std::vector<std::string> entries_of(const FlatYaml& yaml, const FlatYamlValue& value, const std::string& root) {
  std::vector<std::string> entries;
  if (value.kind == FlatYamlValue::Kind::text)
    entries.push_back(value.text);
  else if (value.kind == FlatYamlValue::Kind::list)
    for (const auto& [key, entry] : value.items) entries.push_back(entry);
  if (entries.empty() || std::count(entries.begin(), entries.end(), "") > 0)
    fail_yaml(yaml.source, value.line, "wanted is a folder of images, a .txt that lists them, or a list of those");
  for (std::string& entry : entries) {
    std::string path = from(root, entry);
    // One program writes "../train/images" beside a data.yaml, and means what lies beside it.
    if (!find_source(path) && entry.starts_with("../") && find_source(from(root, entry.substr(3))))
      path = from(root, entry.substr(3));
    if (!find_source(path))
      fail_yaml(yaml.source, value.line,
                join_text("\"", printable(entry), "\" is not there: ", path, "; correct it, or \"path\""));
    entry = path;
  }
  return entries;
}

struct YoloImage {
  std::string path;
  std::string label;  // its file
};

/// labels/a.txt of images/a.jpg.
std::string label_file_of(const std::string& image) {
  constexpr std::string_view images = "/images/", labels = "/labels/";
  const std::size_t dot = image.rfind('.'), slash = image.rfind('/');
  const bool has_extension = dot != image.npos && (slash == image.npos || dot > slash);
  const std::string file = (has_extension ? image.substr(0, dot) : image) + ".txt";
  const std::string rooted = "/" + file;
  const std::size_t at = rooted.rfind(images);
  if (at == std::string::npos) return file;
  return (rooted.substr(0, at) + std::string(labels) + rooted.substr(at + images.size())).substr(1);
}

std::vector<std::string> listed_images(const std::string& list) {
  const std::string text = read_source_text(list, yolo_text_limit);
  const std::string folder = folder_around(list);
  std::vector<std::string> paths;
  std::string_view left = text;
  if (left.starts_with("\xEF\xBB\xBF")) left.remove_prefix(3);
  while (!left.empty()) {
    const std::size_t end = std::min(left.find('\n'), left.size());
    std::string_view line = left.substr(0, end);
    left.remove_prefix(std::min(end + 1, left.size()));
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (!line.empty()) paths.push_back(from(folder, std::string(line)));
  }
  HEARTH_CHECK(DataError, !paths.empty(), list, ": lists no images");
  return paths;
}

std::vector<YoloImage> images_of(const std::vector<std::string>& entries, Warnings& warnings) {
  std::vector<YoloImage> images;
  for (const std::string& entry : entries) {
    std::vector<std::string> paths;
    if (is_yolo_folder(entry)) {
      ImageFiles files = image_files(entry);
      warnings.add(files.left_out);
      warnings.add(files.unreadable);
      HEARTH_CHECK(DataError, !files.paths.empty(), entry, ": has no JPEG, PNG, WebP or BMP file");
      paths = std::move(files.paths);
    } else {
      HEARTH_CHECK(DataError, entry.ends_with(".txt"), entry,
                   ": is neither a folder of images nor a .txt that lists images");
      paths = listed_images(entry);
    }
    for (std::string& path : paths) images.push_back({path, label_file_of(path)});
  }
  std::unordered_set<std::string_view> files, labels;
  for (const YoloImage& image : images) {
    HEARTH_CHECK(DataError, files.insert(image.path).second, image.path, ": is listed twice by ", entries.front(),
                 entries.size() > 1 ? " and the entries beside it" : "", "; list each image once");
    HEARTH_CHECK(DataError, labels.insert(image.label).second, image.label, ": is the label file of two images, one ",
                 image.path, "; give them different names");
  }
  return images;
}

class YoloLabels {
 public:
  YoloLabels(AnnotatedImages& into, OnFault on_fault) : classes_(into.class_names.size()), builder_(into, on_fault) {}

  void add(const YoloImage& image, std::int64_t id, const std::string& file, bool has_labels) {
    builder_.begin_image({.file = file, .id = id});
    if (has_labels) read_lines(image.label);
    builder_.end_image();
  }
  void finish() { builder_.finish(); }

 private:
  void read_lines(const std::string& file) {
    const std::string text = read_source_text(file, {std::uint64_t{64} << 20, "labels of an image"});
    std::string_view left = text;
    if (left.starts_with("\xEF\xBB\xBF")) left.remove_prefix(3);
    for (std::int64_t line = 1; !left.empty(); ++line) {
      const std::size_t end = std::min(left.find('\n'), left.size());
      std::string_view row = left.substr(0, end);
      left.remove_prefix(std::min(end + 1, left.size()));
      if (row.ends_with('\r')) row.remove_suffix(1);
      const auto place = [&] { return join_text(file, ": line ", line); };
      if (row.find_first_not_of(yolo_space) != row.npos && !take_row(row, place)) return;
    }
  }

  /// False for a fault.
  bool take_row(std::string_view row, const std::function<std::string()>& place) {
    numbers_.clear();
    for (std::size_t at = row.find_first_not_of(yolo_space); at < row.size();) {
      const std::size_t end = std::min(row.find_first_of(yolo_space, at), row.size());
      const std::string_view word = row.substr(at, end - at);
      double value = 0;
      const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), value);
      if (error != std::errc() || stop != word.data() + word.size() || !std::isfinite(value))
        return fault(place() + ": \"" + printable(word) + "\" is no number; a line is: class x y w h");
      numbers_.push_back(value);
      at = std::min(row.find_first_not_of(yolo_space, end), row.size());
    }
    const std::size_t count = numbers_.size();
    if (count != 5 && (count < 7 || count % 2 == 0))
      return fault(
          join_text(place(), ": ", count, " numbers; a box has 5, class x y w h, and a polygon of n points 1 + 2 n",
                    count == 6 ? ". A sixth number is the confidence of a prediction, which is no label" : ""));
    const double label = numbers_[0];
    if (label != std::floor(label) || label < 0 || label >= static_cast<double>(classes_))
      return fault(
          join_text(place(), ": the class ", label, " is none of the ", classes_, ", numbered from 0, of \"names\""));
    for (std::size_t i = 1; i < count; ++i)
      if (numbers_[i] > 1 + max_clipped_share)
        return fault(
            join_text(place(), ": ", numbers_[i],
                      " is above 1; numbers are shares of the image's width and height: divide pixels by these"));
    std::array<double, 4> corners{};
    if (count == 5) {
      const double x = numbers_[1], y = numbers_[2], width = numbers_[3], height = numbers_[4];
      if (width < 0 || height < 0)
        return fault(join_text(place(), ": a box of width ", width, " and height ", height, "; sides are 0 or more"));
      corners = {x - width / 2, y - height / 2, x + width / 2, y + height / 2};
    } else {
      corners = {numbers_[1], numbers_[2], numbers_[1], numbers_[2]};
      for (std::size_t i = 3; i < count; ++i) {
        const std::size_t axis = (i - 1) % 2;
        corners[axis] = std::min(corners[axis], numbers_[i]);
        corners[axis + 2] = std::max(corners[axis + 2], numbers_[i]);
      }
    }
    builder_.add({.corners = corners, .label = static_cast<std::int32_t>(label)}, place);
    return true;
  }
  bool fault(const std::string& text) {
    builder_.fault(text);
    return false;
  }

  std::size_t classes_;
  AnnotationBuilder builder_;
  std::vector<double> numbers_;
};

/// Which label files there are, folder by folder.
class LabelFolders {
 public:
  bool has(const std::string& file) {
    auto& names = names_of(folder_around(file));
    const auto label = names.find(file.substr(file.rfind('/') + 1));
    if (label == names.end()) return false;
    label->second = true;
    return true;
  }
  /// Label files of no image.
  void warn_of_rest(Warnings& warnings) const {
    for (const auto& [folder, names] : folders_)
      for (const auto& [name, is_used] : names)
        if (!is_used && name != "classes.txt") warnings.add(name_in(folder, name) + ": is the label file of no image");
  }

 private:
  std::map<std::string, bool>& names_of(const std::string& folder) {
    const auto known = folders_.find(folder);
    if (known != folders_.end()) return known->second;
    std::map<std::string, bool>& names = folders_[folder];
    if (is_yolo_folder(folder))
      for (const SourceEntry& entry : list_source(folder))
        if (entry.kind == SourceEntry::Kind::file && entry.name.ends_with(".txt")) names.emplace(entry.name, false);
    return names;
  }
  std::map<std::string, std::map<std::string, bool>> folders_;
};

/// The folder that has all the images; empty where there is none.
std::string common_folder(const std::vector<YoloImage>& images) {
  std::string common = folder_around(images.front().path);
  for (const YoloImage& image : images)
    while (!image.path.starts_with(name_in(common, ""))) {
      const std::string above = folder_around(common);
      if (above == common || above == "." || !is_path(common)) return "";
      common = above;
    }
  return common;
}

}  // namespace

YoloDescription read_yolo_description(const std::string& yaml) {
  HEARTH_CHECK(DataError, !is_yolo_folder(yaml), yaml, ": is a folder; give the data.yaml in it");
  const FlatYaml document = parse_flat_yaml(read_source_text(yaml, {std::uint64_t{16} << 20, "descriptions"}), yaml);
  YoloDescription description{.file = yaml, .class_names = class_names_of(document)};
  if (const FlatYamlValue* const keypoints = document.find("kpt_shape"))
    fail_yaml(yaml, keypoints->line,
              "labels with keypoints are not read; give labels of boxes, and take kpt_shape out");
  std::string root = folder_around(yaml);
  if (const FlatYamlValue* const path = document.find("path")) {
    if (path->kind != FlatYamlValue::Kind::text)
      fail_yaml(yaml, path->line, "\"path\" is no text; write the folder of the data");
    root = from(root, path->text);
    if (!is_yolo_folder(root))
      fail_yaml(yaml, path->line,
                join_text("\"path\" is ", root, ", which is no folder; write it from the folder of this file on"));
  }
  const auto split = [&](std::initializer_list<const char*> keys) {
    const FlatYamlValue* chosen = nullptr;
    for (const char* const key : keys) {
      const FlatYamlValue* const value = document.find(key);
      if (value != nullptr && chosen != nullptr)
        fail_yaml(yaml, value->line, join_text("\"", key, "\" is a second key of one split; keep one"));
      if (value != nullptr) chosen = value;
    }
    return chosen == nullptr ? std::vector<std::string>() : entries_of(document, *chosen, root);
  };
  description.train = split({"train"});
  description.valid = split({"val", "valid", "validation"});
  description.test = split({"test"});
  HEARTH_CHECK(DataError, !description.train.empty(), yaml, ": has no \"train\", the folder of training images");
  return description;
}

AnnotatedImages read_yolo(const YoloDescription& description, const std::vector<std::string>& entries,
                          OnFault on_fault) {
  AnnotatedImages result{.source = description.file, .class_names = description.class_names, .normalized = true};
  for (std::size_t label = 0; label < result.class_names.size(); ++label)
    result.category_ids.push_back(static_cast<std::int64_t>(label));
  const std::vector<YoloImage> images = images_of(entries, result.warnings);
  result.folder = common_folder(images);
  const std::size_t prefix = result.folder.empty() ? 0 : name_in(result.folder, "").size();
  LabelFolders folders;
  YoloLabels labels(result, on_fault);
  bool has_any = false;
  for (std::size_t i = 0; i < images.size(); ++i) {
    const bool has_labels = folders.has(images[i].label);
    has_any = has_any || has_labels;
    labels.add(images[i], static_cast<std::int64_t>(i), images[i].path.substr(prefix), has_labels);
  }
  HEARTH_CHECK(DataError, has_any, entries.front(), ": none of the ", images.size(), " images has labels; those of ",
               images.front().path, " would be in ", images.front().label,
               ", as folders of images are named images, with labels beside them");
  require_files(result, on_fault);
  labels.finish();
  folders.warn_of_rest(result.warnings);
  return result;
}

}  // namespace hearth::data
