// SPDX-License-Identifier: Apache-2.0
// The datasets "text", "parallel_text" and "labelled_text" of run configurations:
//   "data": {"type": "text", "train": ["emma.txt"], "test": ["persuasion.txt"], "length": 256,
//            "tokenizer": {"type": "bpe", "vocabulary": 4096}}
//   "data": {"type": "parallel_text", "train": ["train.tsv"], "tokens_per_batch": 2048, ...}
//   "data": {"type": "labelled_text", "train": ["train.tsv"], "test": ["test.tsv"], "length": 128, ...}
//   "data": {"type": "text", "packed": "FOLDER", "length": 256}
#pragma once

#include <string>
#include <vector>

#include "data/registry.h"
#include "data/text/text_options.h"
#include "data/text/token_set.h"

namespace hearth::data {

/// Reads and tokenises, or maps what was packed. Errors name file and line: ConfigError, DataError, FileError.
HEARTH_API Splits text_data(const TextData& options);
HEARTH_API Splits parallel_text_data(const ParallelTextData& options);
HEARTH_API Splits labelled_text_data(const LabelledTextData& options);

/// Ids that a batch is filled up to; 0 where it has `train.batch_size` samples.
HEARTH_API std::int64_t tokens_per_batch(const Datasets::Component& data);
/// The same in words, "up to 4096 tokens a side"; empty where a batch has `train.batch_size` samples.
HEARTH_API std::string describe_token_batches(const Datasets::Component& data);

/// What a model that was trained on text takes for granted of them.
struct KnownText {
  TokenizerPointer tokenizer{};
  TokenizerPointer source_tokenizer{};  ///< of "parallel_text"
  std::vector<std::string> classes{};   ///< of "labelled_text"
};

/// `valid` and `test` of a dataset as they are found at `path`: a file is the test split; of a folder the files are
/// taken that it names, by their names without their folders, or what `hearth data pack` wrote. Nothing else is read.
/// ConfigError for a dataset of another type; FileError if nothing of that is there; else as for training.
HEARTH_API Splits text_splits_at(const Datasets::Component& data, const std::string& path, const KnownText& known);

}  // namespace hearth::data
