// SPDX-License-Identifier: Apache-2.0
// Inputs of a model for images, sequences, rows of tables and batches from outside of a run's data. Each function gives
// nothing for samples of another kind.
#pragma once

#include <optional>

#include "data/formats/image_folder.h"
#include "data/splits.h"
#include "train/predict/outside_samples.h"

namespace hearth::data {
class LabelledText;
class TableDataset;
}  // namespace hearth::data

namespace hearth::train {

/// Of image files, read as `files` says, of decoded images and of tensors of images. The data are images.
HEARTH_API std::optional<InputPieces> image_inputs(const data::DataSplits& data, const data::ImageFolderOptions& files,
                                                   const OutsideSamples& samples);
/// Of sequences; cuts off what is longer than a row of the training. DataError, naming the sequence's number, for what
/// the tokenizer does not know.
HEARTH_API std::optional<InputPieces> text_inputs(const data::LabelledText& trained, const OutsideSamples& samples);
/// Of the rows of a file or of a tensor, by the columns that the run was trained on; `chosen` is the run's dataset.
HEARTH_API std::optional<InputPieces> row_inputs(const InputsOfBatch& inputs, const data::TableDataset& trained,
                                                 const data::Datasets::Component& chosen,
                                                 const OutsideSamples& samples);
HEARTH_API std::optional<InputPieces> batch_inputs(const InputsOfBatch& inputs, const OutsideSamples& samples);

}  // namespace hearth::train
