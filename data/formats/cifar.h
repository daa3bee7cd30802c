// SPDX-License-Identifier: Apache-2.0
// CIFAR-10 and CIFAR-100 in their binary versions: records of labels and 3,072 bytes, channel planes of 32x32.
// Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images" (2009).
#pragma once

#include "data/dataset.h"

namespace hearth::data {

/// A folder with data_batch_1.bin to data_batch_5.bin and test_batch.bin (batches.meta.txt names the classes if it is
/// there). 50,000 + 10,000 in the original; files may hold fewer records. DataError with file and reason.
HEARTH_API Splits cifar10(const std::string& path);
/// The test part alone; the training files may be absent.
HEARTH_API DatasetPointer cifar10_test(const std::string& path);
/// A folder with train.bin and test.bin. `coarse` takes the 20 superclasses instead of the 100 classes.
HEARTH_API Splits cifar100(const std::string& path, bool coarse = false);
/// The test part alone; train.bin may be absent.
HEARTH_API DatasetPointer cifar100_test(const std::string& path, bool coarse = false);

}  // namespace hearth::data
