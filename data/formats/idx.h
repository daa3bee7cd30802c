// SPDX-License-Identifier: Apache-2.0
// IDX files, the format of MNIST and its relatives: big-endian, magic 0x0000TTDD with type TT and DD dimensions,
// plain or gzip. Source: LeCun et al., the MNIST database.
#pragma once

#include "data/images/image_dataset.h"

namespace hearth::data {

/// One set from an image file (unsigned bytes, [N,H,W] or [N,H,W,C]) and a label file (unsigned bytes, [N]). Classes
/// are named by `class_names`, or numbered up to the largest label if that is empty. DataError with file and reason for
/// a wrong magic, length, count or label.
HEARTH_API ImageDatasetPointer idx(const std::string& images_path, const std::string& labels_path,
                                   std::vector<std::string> class_names = {});

/// train and test from a folder with MNIST's four file names, each plain or with ".gz".
HEARTH_API ImageSplits idx_folder(const std::string& path, std::vector<std::string> class_names = {});

/// The test split alone; the training files may be absent.
HEARTH_API ImageDatasetPointer idx_test(const std::string& path, std::vector<std::string> class_names);

/// Fashion-MNIST: 60,000 + 10,000 grey images of 28x28, 10 classes. An empty path means the folder where the Debian
/// package dataset-fashion-mnist puts it; the DataError for its absence says how to get the files.
/// Source: Xiao, Rasul, Vollgraf, "Fashion-MNIST" (2017).
HEARTH_API ImageSplits fashion_mnist(const std::string& path = "");

/// Where the Debian package installs Fashion-MNIST.
inline constexpr const char* fashion_mnist_folder = "/usr/share/datasets/fashion-mnist";

}  // namespace hearth::data
