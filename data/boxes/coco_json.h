// SPDX-License-Identifier: Apache-2.0
// Labels of boxes as COCO has them: one JSON of images, annotations and categories.
#pragma once

#include <string>

#include "data/boxes/annotations.h"

namespace hearth::data {

/// Reads the labels of a split. The file is read through a window, and of annotations what boxes need is kept: masks
/// are checked for their form (lists of at least three points, or a run-length code with its size) and passed over.
/// Classes are the categories by rising id, which may have holes. Numbers in quotes are read as numbers; a byte-order
/// mark and any line ends are fine. DataError, naming the file and the record, for:
/// - JSON that is none, keys given twice, and missing or mistyped fields;
/// - ids of images, categories or annotations that are there twice, names of images or categories that are, annotations
///   of images that are not listed;
/// - as a fault of the image, see AnnotationBuilder: categories that are not listed, boxes out of the image, polygons
///   without points.
/// FileError if the file cannot be read.
AnnotatedImages read_coco(const std::string& json, const std::string& images, OnFault on_fault);

}  // namespace hearth::data
