// SPDX-License-Identifier: Apache-2.0
#include "data/masks/mask_folder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/io/printable.h"
#include "data/formats/folder_layout.h"
#include "data/formats/image_folder.h"
#include "data/source/source.h"

namespace hearth::data {
namespace {

bool is_mask_folder(const std::string& name) {
  const std::optional<SourceEntry> entry = find_source(name);
  return entry && entry->kind == SourceEntry::Kind::folder;
}

/// What lies in a folder, for messages: "folders a, b and 3 files".
std::string contents_of(const std::string& folder) {
  constexpr std::size_t most = 6;
  std::string names;
  std::size_t folders = 0, files = 0;
  for (const SourceEntry& entry : list_source(folder)) {
    if (is_helper_name(entry.name)) continue;
    if (entry.kind != SourceEntry::Kind::folder)
      ++files;
    else if (++folders <= most)
      names += join_text(names.empty() ? "" : ", ", printable(entry.name));
  }
  if (folders > most) names += ", ...";
  return folders == 0 ? join_text(files, " files and no folder")
                      : join_text(folders == 1 ? "the folder " : "the folders ", names);
}

bool has_both(const std::string& folder, const MaskNames& names) {
  return is_mask_folder(name_in(folder, names.images)) && is_mask_folder(name_in(folder, names.masks));
}

/// Whether folders below `folder` are those of a split or have both.
bool is_mask_root(const std::string& folder, const MaskNames& names) {
  return has_both(folder, names) || has_both(name_in(folder, "train"), names);
}

/// "; give X", of a folder above or below that has the layout; else which fields name other folders.
std::string layout_hint(const std::string& root, const MaskNames& names) {
  const std::string plain = root.substr(0, root.find_last_not_of('/') + 1);
  const std::size_t slash = plain.rfind('/');
  const std::string above = slash == std::string::npos ? "." : slash == 0 ? "/" : plain.substr(0, slash);
  if (is_mask_root(above, names)) return join_text("; give ", above);
  for (const SourceEntry& entry : list_source(root))
    if (entry.kind == SourceEntry::Kind::folder && is_mask_root(name_in(root, entry.name), names))
      return join_text("; give ", name_in(root, entry.name));
  return R"(; name them by "images" and "masks", or bring the files into this layout: images/NAME.jpg, masks/NAME.png)";
}

MaskPart part_of(const std::string& folder, const MaskNames& names) {
  const MaskPart part{name_in(folder, names.images), name_in(folder, names.masks)};
  HEARTH_CHECK(DataError, has_both(folder, names), folder, ": wanted are the folders ", printable(names.images),
               " and ", printable(names.masks), "; it has ", contents_of(folder), layout_hint(folder, names));
  return part;
}

/// DataError for what lies beside the folders of splits and would be left out.
void refuse_what_is_beside(const std::string& folder, const SplitFolders& splits) {
  const auto refuse = [&](const std::string& name) {
    throw DataError(join_text(name_in(folder, name), ": lies beside the folders of splits, ", printable(splits.train),
                              " for one; bring it into one of them, or take it away"));
  };
  if (!splits.others.empty()) refuse(splits.others.front());
  for (const SourceEntry& entry : list_source(folder))
    if (entry.kind != SourceEntry::Kind::folder && !is_helper_name(entry.name))
      for (const char* const ending : {".png", ".jpg", ".jpeg", ".webp", ".bmp"})
        if (entry.name.ends_with(ending)) refuse(entry.name);
}

/// Folders of splits in the folders of images and masks.
MaskParts parts_within(const MaskPart& folders, const SplitFolders& splits) {
  refuse_what_is_beside(folders.images, splits);
  const auto part = [&](const std::string& name) -> MaskPart {
    if (name.empty()) return {};
    const MaskPart both{name_in(folders.images, name), name_in(folders.masks, name)};
    HEARTH_CHECK(DataError, is_mask_folder(both.masks), folders.masks, ": ", folders.images, " has the folder ",
                 printable(name), ", and the masks have ", contents_of(folders.masks), "; name the folders alike");
    return both;
  };
  return {part(splits.train), part(splits.valid), part(splits.test)};
}

/// A path below a folder without its ending.
std::string stem_below(const std::string& folder, const std::string& path) {
  const std::string name = path.substr(name_in(folder, "").size());
  const std::size_t dot = name.rfind('.'), slash = name.rfind('/');
  return dot == std::string::npos || (slash != std::string::npos && dot < slash) ? name : name.substr(0, dot);
}

/// Files by name; DataError for two of one name.
std::map<std::string, std::string> by_stem(const std::string& folder, const ImageFiles& images, const char* what) {
  std::map<std::string, std::string> files;
  for (const std::string& path : images.paths) {
    const auto [place, is_new] = files.emplace(stem_below(folder, path), path);
    HEARTH_CHECK(DataError, is_new, path, ": ", place->second, " has the same name, and which of them is the ", what,
                 " is open; take one away");
  }
  return files;
}

void report_missing(MaskedFiles& into, const MaskPart& part, const MaskNames& names, OnFault on_fault,
                    const std::vector<std::int64_t>& missing, const std::map<std::string, std::string>& unused) {
  const auto wanted = [&](std::int64_t index) {
    return name_in(part.masks, stem_below(part.images, into.files[static_cast<std::size_t>(index)].image)) +
           names.suffix + ".png";
  };
  if (!missing.empty()) {
    const std::string other =
        unused.empty() ? std::string() : join_text("; there is ", unused.begin()->second, " without an image");
    const std::string remedy = join_text(other, "; a mask has the name of its image, ",
                                         names.suffix.empty() ? "" : printable(names.suffix) + ", ",
                                         R"(and .png: rename them, or say by "mask_suffix" what masks have behind it)");
    const std::string& first = into.files[static_cast<std::size_t>(missing.front())].image;
    HEARTH_CHECK(DataError, missing.size() < into.files.size(), part.images, ": none of the ", into.files.size(),
                 " images has a mask; ", first, " wants ", wanted(missing.front()), remedy);
    HEARTH_CHECK(DataError, on_fault == OnFault::skip, first, ": has no mask, ", wanted(missing.front()), ", as ",
                 missing.size(), " of ", into.files.size(), " images", remedy,
                 "; or set \"bad_samples\" to \"skip\" to pass over such images");
    for (const std::int64_t index : missing)
      into.faults.emplace(
          index, join_text(into.files[static_cast<std::size_t>(index)].image, ": has no mask, ", wanted(index)));
  }
  for (const auto& [stem, path] : unused) {
    HEARTH_CHECK(DataError, on_fault == OnFault::skip, path, ": a mask without an image in ", part.images, ", one of ",
                 unused.size(), "; bring the image back, or take the mask away, or set \"bad_samples\" to \"skip\"");
    into.warnings.add(path + ": a mask without an image is left out");
  }
}

}  // namespace

MaskParts find_mask_folders(const std::string& root, const MaskNames& names) {
  HEARTH_CHECK(ConfigError, !names.images.empty() && !names.masks.empty() && names.images != names.masks,
               "/data/masks: images are in \"", printable(names.images), "\" and masks in \"", printable(names.masks),
               "\"; these are two folders, each with a name");
  HEARTH_CHECK(DataError, is_mask_folder(root), root, ": no such folder");
  if (has_both(root, names)) {
    HEARTH_CHECK(DataError, !has_both(name_in(root, "train"), names), root, ": has the folders ",
                 printable(names.images), " and ", printable(names.masks), ", and ", name_in(root, "train"),
                 " has such too; which of them train is open: take one away, or give the other's folder");
    const MaskPart folders = part_of(root, names);
    const SplitFolders splits = find_split_folders(folders.images);
    return splits.train.empty() ? MaskParts{folders, {}, {}} : parts_within(folders, splits);
  }
  const SplitFolders splits = find_split_folders(root);
  if (splits.train.empty()) return {part_of(root, names), {}, {}};
  const auto part = [&](const std::string& name) {
    return name.empty() ? MaskPart{} : part_of(name_in(root, name), names);
  };
  return {part(splits.train), part(splits.valid), part(splits.test)};
}

MaskedFiles pair_masks(const MaskPart& part, const MaskNames& names, OnFault on_fault) {
  MaskedFiles result{.source = part.images};
  const ImageFiles images = image_files(part.images), masks = image_files(part.masks);
  result.warnings.add(images.left_out);
  HEARTH_CHECK(DataError, masks.left_out.count == 0, masks.left_out.count > 0 ? masks.left_out.first.front() : "",
               "; masks are PNG files");
  for (const ImageFiles* const both : {&images, &masks}) {
    HEARTH_CHECK(DataError, both->unreadable.count == 0 || on_fault == OnFault::skip,
                 both->unreadable.count > 0 ? both->unreadable.first.front() : "");
    result.warnings.add(both->unreadable);
  }
  HEARTH_CHECK(DataError, !images.paths.empty(), part.images, ": has no JPEG, PNG, WebP or BMP file");
  std::map<std::string, std::string> unused = by_stem(part.masks, masks, "mask");
  std::vector<std::int64_t> missing;
  for (const auto& [stem, path] : by_stem(part.images, images, "image")) {
    MaskedFile file{path.substr(name_in(part.images, "").size()), path, {}};
    if (const auto mask = unused.find(stem + names.suffix); mask != unused.end()) {
      file.mask = mask->second;
      unused.erase(mask);
    } else {
      missing.push_back(static_cast<std::int64_t>(result.files.size()));
    }
    result.files.push_back(std::move(file));
  }
  report_missing(result, part, names, on_fault, missing, unused);
  return result;
}

}  // namespace hearth::data
