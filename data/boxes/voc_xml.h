// SPDX-License-Identifier: Apache-2.0
// Labels of boxes as Pascal VOC has them: an XML file for each image.
#pragma once

#include <string>
#include <vector>

#include "data/boxes/annotations.h"

namespace hearth::data {

/// Where the labels of a split are.
struct VocSplit {
  std::string source;                ///< for messages: a list of names, or a folder
  std::string annotations;           ///< folder of the XML files
  std::string images;                ///< folder of the images
  std::vector<std::string> names{};  ///< of the files, without an extension
};

struct VocFolder {
  VocSplit train;
  VocSplit valid;  ///< without names where there is none
  VocSplit test;
};

/// Finds the splits of a folder:
/// - Pascal's own, Annotations and JPEGImages with the lists ImageSets/Main/{train,val,test}.txt; without lists all of
///   it is the training split;
/// - folders train and perhaps valid and test, which have XML files beside images or are in Pascal's form;
/// - XML files beside images: all of it is the training split.
/// DataError for a folder that is none of these, with the one below that is.
VocFolder find_voc(const std::string& folder);

struct VocOptions {
  /// Of the first pixel of a row: 1 as Pascal counts, where xmax is the box's last pixel; 0 where programs count edges
  /// from 0.
  int first_pixel = 1;
  /// Names by label. Empty: the names that occur, in the order of their bytes.
  std::vector<std::string> classes{};
  OnFault on_fault = OnFault::fail;
};

/// Reads the labels of a split. The image of a file a.xml is a.jpg, or of another extension. Objects that are
/// `difficult` are ignored ones. DataError, naming file and line, for a file that is no XML or has a document type, for
/// missing or mistyped elements, for a class that is none of the options', and for boxes out of the image; all of
/// these are faults of the image. One whose name in the XML is another image of the folder is one too. ConfigError for
/// classes of one name.
AnnotatedImages read_voc(const VocSplit& split, const VocOptions& options);

}  // namespace hearth::data
