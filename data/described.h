// SPDX-License-Identifier: Apache-2.0
// What a trained model takes for granted of its data. A checkpoint keeps it, so that the model computes, and is
// evaluated on other data, where the data of its training is not at hand.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/io/json_text.h"
#include "data/splits.h"
#include "data/text/tokenizers/tokenizer.h"

namespace hearth::data {

struct TableFacts;

struct DataFacts {
  std::string kind = "images";  ///< or "boxes", "masks", "labelled_text", "text", "parallel_text", "table", "samples"
  std::vector<std::string> classes{};  ///< names by label; none where ids are predicted
  // Of images, also those with boxes or masks:
  ImageShape image{};             ///< that all have in common, 0 where they differ
  int shrink_to = 0;              ///< Dataset::shrinks_to()
  ChannelStatistics normalize{};  ///< by which they were normalised
  // Of images with boxes:
  std::vector<std::int64_t> category_ids{};  ///< of the labels, by class
  // Of sequences:
  std::int64_t length = 0;  ///< the most ids of a row
  TokenizerPointer tokenizer{};
  TokenizerPointer source_tokenizer{};  ///< of parallel_text
  std::shared_ptr<const TableFacts> table{};

  bool has_pixels() const { return kind == "images" || kind == "boxes" || kind == "masks"; }
};

/// All but the tokenizers, which the data owns. DataError for sets of sequences of other kinds.
DataFacts facts_of(const DataSplits& data);

/// The splits of a configuration's data without any sample: transforms, classes and tokenizers are those of the
/// training.
DataSplits described_data(const Datasets::Component& data, const DataFacts& facts);

/// The splits of a configuration's data as a trained model takes them: make_data(), but that the columns of a table are
/// what they were in training.
DataSplits data_as_trained(const Datasets::Component& data, const DataFacts& facts);

/// The splits of described_data() with `valid` and `test` from `path`, which need not be where, nor in the form that,
/// the training had them:
/// - images: a folder that `hearth data pack` wrote; one with the test files of CIFAR or in the form of MNIST, if the
/// training was on such; else a folder
///   of class folders, all of it the test split, or of folders named test, val, valid or validation with class folders.
///   Images are brought to the size and channels of the training's;
/// - images with masks: folders of such as the training's are named, whose splits valid and test are taken, or all of
/// it as the test split;
/// - rows of a table: a file of that kind with the target, .csv or .npz with arrays x and y, which is the test split;
/// - sequences: a file, which is the test split, or a folder that holds the files which the configuration names for
/// valid
///   and test, or that `hearth data pack` wrote.
/// FileError or DataError for what is missing there, and for classes that the training did not have.
DataSplits evaluation_data(const Datasets::Component& configured, const DataFacts& facts, const std::string& path);

/// Why labels of classes named `now` mean something else to a model trained on classes named `before`; "" if they do
/// not. Numbers are no names.
std::string classes_differ(const std::vector<std::string>& before, const std::vector<std::string>& now);

}  // namespace hearth::data
