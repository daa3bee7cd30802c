// SPDX-License-Identifier: Apache-2.0
// What the folders of an image folder are: splits, classes, or neither.
#pragma once

#include <string>
#include <vector>

namespace hearth::data {

/// Whether programs leave folders, or files, of that name beside data: hidden ones, __MACOSX, @eaDir, lost+found ...
bool is_helper_name(const std::string& name);

/// Folders of the splits below a root; empty for those that are not there.
struct SplitFolders {
  std::string train, valid, test;
  std::vector<std::string> others;  ///< that are no split, where there is a train
};

/// By their names in any case: train or training; val, valid, validation or dev; test or testing. Nothing where no
/// folder has such a name: then they are classes. DataError for two folders of one split, for splits without train, and
/// for names like "seg_train".
SplitFolders find_split_folders(const std::string& root);

/// DataError unless the folders below a root are two classes or more: for one alone, for images beside their masks, and
/// where the folders in them have the same names, so that the classes are a level deeper.
void require_class_folders(const std::string& root, const std::vector<std::string>& classes);

}  // namespace hearth::data
