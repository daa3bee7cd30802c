// SPDX-License-Identifier: Apache-2.0
// CIFAR-10 and CIFAR-100 in their binary versions: records of labels and 3,072 bytes, channel planes of 32x32.
// Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images" (2009).
#pragma once

#include <cstdint>
#include <string>

#include "data/images/image_dataset.h"
#include "data/images/image_options.h"

namespace hearth::data {

/// CIFAR-100's labels: 100 classes, or 20 superclasses.
enum class CifarLabels : std::uint8_t { fine, coarse };

/// The dataset "cifar100" of run configurations.
struct Cifar100Data : ImageDataOptions {
  std::string path;
  CifarLabels labels = CifarLabels::fine;
};
HEARTH_API void describe(Fields<Cifar100Data>& fields);

/// A folder with data_batch_1.bin to data_batch_5.bin and test_batch.bin (batches.meta.txt names the classes if it is
/// there). 50,000 + 10,000 in the original; files may hold fewer records. DataError with file and reason.
HEARTH_API ImageSplits cifar10(const std::string& path);
/// The test split alone; the training files may be absent.
HEARTH_API ImageDatasetPointer cifar10_test(const std::string& path);
/// A folder with train.bin and test.bin.
HEARTH_API ImageSplits cifar100(const std::string& path, CifarLabels labels = CifarLabels::fine);
/// The test split alone; train.bin may be absent.
HEARTH_API ImageDatasetPointer cifar100_test(const std::string& path, CifarLabels labels = CifarLabels::fine);

}  // namespace hearth::data
