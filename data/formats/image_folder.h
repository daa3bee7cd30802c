// SPDX-License-Identifier: Apache-2.0
// A folder of class folders of image files, as ImageNet is kept by most people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/images/codecs/decode.h"
#include "data/images/image_dataset.h"
#include "data/registry.h"

namespace hearth::data {

struct ImageFolderOptions {
  /// Of files that cannot be decoded, and links to nothing. Where one is skipped, the next readable sample stands in
  /// for it, of a part held out the next of that part.
  OnFault on_error = OnFault::fail;
  /// Of class folders without images. A skipped class keeps its number.
  OnFault empty_classes = OnFault::fail;
  /// Decoded images are kept in memory up to this many bytes, those read first. 0 keeps none.
  std::int64_t cache_bytes = 0;
  /// Images whose shorter side has more pixels are shrunk to it when they are decoded, the longer side following,
  /// rounded down; that is how they are kept. 0 leaves them as they are; ConfigError below.
  int shrink_to = 0;
  /// Memory that decoding one image may take; one that needs more is a broken file.
  std::int64_t decode_bytes = default_decode_bytes;
};

/// The dataset "image_folder" of run configurations.
struct ImageFolderData : ImageDataOptions, ImageFolderOptions {
  ImageFolderData() { augment.image_size = 224; }
  std::string path;
  double test_fraction = 0.1;
  std::int64_t cache_mb = 0;
  std::int64_t decode_mb = default_decode_bytes >> 20;
};
HEARTH_API void describe(Fields<ImageFolderData>& fields);
/// The set that a configuration names, split as it says.
HEARTH_API OpenedData open_image_folder(const ImageFolderData& asked, Opening opening);
/// How a run reads image files: as its configuration says of an image_folder; the defaults for other data.
HEARTH_API ImageFolderOptions folder_options(const Datasets::Component& data);
/// One set from root/CLASS/**/FILE. Classes are the sub-folders sorted by name (bytewise), samples are sorted by path;
/// files are found by .jpg, .jpeg, .png, .webp or .bmp, in any case. Images of other kinds (.gif, .tiff ...), and those
/// that lie beside the class folders, are left out with a warning each; other files, hidden ones, and folders that
/// programs leave beside data are ignored. Links are followed, but no folder is entered twice within a class, so loops
/// end. With `classes` given, folders must be among them.
HEARTH_API ImageDatasetPointer image_folder(const std::string& root, const ImageFolderOptions& options,
                                            const std::vector<std::string>& classes = {});

/// One image file as a set of one sample, which is read as those of a folder are. One that cannot be decoded is an
/// error.
HEARTH_API ImageDatasetPointer image_file(const std::string& path, const ImageFolderOptions& options);
struct ImageFiles {
  std::vector<std::string> paths;  ///< sorted
  Warnings unreadable;             ///< links to nothing
  Warnings left_out;               ///< images of kinds that are not read
};
/// All images below a folder: files whose names image_folder() takes, links followed. FileError if it cannot be listed.
HEARTH_API ImageFiles image_files(const std::string& folder);

/// Parts by folder: root/train with, where present, root/val (or valid, validation, dev) and root/test, in any case;
/// or, without these, root itself as one set. Other folders beside them are left out with a warning. DataError for what
/// is ambiguous, see folder_layout.h, and for one class alone.
HEARTH_API ImageSplits image_folder_splits(const std::string& root, const ImageFolderOptions& options);

}  // namespace hearth::data
