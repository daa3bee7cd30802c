// SPDX-License-Identifier: Apache-2.0
#include "data/formats/folder_layout.h"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <string_view>

#include "core/error.h"
#include "core/io/printable.h"
#include "data/class_names.h"
#include "data/source/source.h"

namespace hearth::data {
namespace {

using Words = std::initializer_list<std::string_view>;

std::string in_lower_case(std::string name) {
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

bool is_one_of(std::string_view name, Words words) { return std::ranges::find(words, name) != words.end(); }

/// The folder of a split that a name stands for; null for other names.
std::string SplitFolders::*split_of(std::string_view name) {
  if (is_one_of(name, {"train", "training"})) return &SplitFolders::train;
  if (is_one_of(name, {"val", "valid", "validation", "dev"})) return &SplitFolders::valid;
  if (is_one_of(name, {"test", "testing"})) return &SplitFolders::test;
  return nullptr;
}

/// Whether one of the words of a name is a split's: "seg_train", "test2".
bool is_like_split(const std::string& name) {
  const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  for (auto at = name.begin(); at != name.end();) {
    const auto begin = std::find_if(at, name.end(), is_letter), end = std::find_if_not(begin, name.end(), is_letter);
    if (split_of(std::string_view(begin, end)) != nullptr) return true;
    at = end;
  }
  return false;
}

std::vector<std::string> folders_in(const std::string& root) {
  std::vector<std::string> names;
  for (const SourceEntry& entry : list_source(root))
    if (entry.kind == SourceEntry::Kind::folder && !is_helper_name(entry.name)) names.push_back(entry.name);
  return names;
}

std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t most = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(most, names.size()); ++i)
    text += join_text(i > 0 ? ", " : "", printable(names[i]));
  return names.size() > most ? text + ", ..." : text;
}

/// Folders that all of the classes have, of the first few; none where files lie in one of them.
std::vector<std::string> common_folders(const std::string& root, const std::vector<std::string>& classes) {
  constexpr std::size_t looked_at = 4;
  std::vector<std::string> common;
  for (std::size_t i = 0; i < std::min(looked_at, classes.size()); ++i) {
    const std::string folder = name_in(root, classes[i]);
    for (const SourceEntry& entry : list_source(folder))
      if (entry.kind != SourceEntry::Kind::folder && !is_helper_name(entry.name)) return {};
    const std::vector<std::string> inside = folders_in(folder);
    if (i == 0) common = inside;
    std::erase_if(common, [&](const std::string& name) { return std::ranges::find(inside, name) == inside.end(); });
  }
  return common;
}

}  // namespace

bool is_helper_name(const std::string& name) {
  return name.starts_with('.') || is_one_of(name, {"__MACOSX", "@eaDir", "@Recycle", "#recycle", "$RECYCLE.BIN",
                                                   "System Volume Information", "lost+found", "__pycache__"});
}

SplitFolders find_split_folders(const std::string& root) {
  SplitFolders splits;
  std::vector<std::string> others;
  bool has_split = false;
  for (const std::string& name : folders_in(root)) {
    std::string SplitFolders::*const split = split_of(in_lower_case(name));
    if (split == nullptr) {
      others.push_back(name);
      continue;
    }
    HEARTH_CHECK(DataError, (splits.*split).empty(), root, ": ", printable(splits.*split), " and ", printable(name),
                 " are folders of the same split; keep one of them here");
    splits.*split = name;
    has_split = true;
  }
  const auto alike = std::ranges::count_if(others, [](const auto& name) { return is_like_split(in_lower_case(name)); });
  HEARTH_CHECK(DataError, has_split || alike < 2, root, ": its classes would be ", listed(others),
               ", which look like splits; name these folders train, valid (or val) and test");
  HEARTH_CHECK(DataError, !has_split || !splits.train.empty(), root, ": has a folder ",
               printable(splits.valid.empty() ? splits.test : splits.valid),
               " and none named train; name the folders of splits train, valid (or val) and test, or a class that is "
               "called so otherwise");
  if (has_split) splits.others = std::move(others);
  return splits;
}

void require_class_folders(const std::string& root, const std::vector<std::string>& classes) {
  HEARTH_CHECK(DataError, classes.size() != 1, root, ": has one class folder, ", printable(classes.front()),
               ", and a classifier needs two; if the classes or the splits are in it, give ",
               printable(name_in(root, classes.front())));
  refuse_alike_classes(root, classes, "rename one of the folders");
  const auto find = [&](Words words) {
    return std::ranges::find_if(classes,
                                [&](const std::string& name) { return is_one_of(in_lower_case(name), words); });
  };
  const auto images = find({"images", "image", "imgs", "img", "jpegimages", "photos", "pictures"});
  const auto masks = find({"masks", "mask", "labels", "label", "annotations", "annotation", "ground_truth", "gt",
                           "segmentation", "segmentations", "segmentationclass", "labelme"});
  HEARTH_CHECK(DataError, images == classes.end() || masks == classes.end(), root, ": its classes would be ", *images,
               " and ", *masks,
               ", which look like images and what is known of them; an image_folder has a folder for each "
               "class, and images with masks are of the type \"masks\" (docs/segmentation.md)");
  const std::vector<std::string> common = classes.empty() ? classes : common_folders(root, classes);
  HEARTH_CHECK(DataError, common.size() < 2, root, ": its classes would be ", listed(classes),
               ", which all have folders ", listed(common),
               " in them; if these are the classes, give one of the folders, or put the images of a class together");
}

}  // namespace hearth::data
