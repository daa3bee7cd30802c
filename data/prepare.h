// SPDX-License-Identifier: Apache-2.0
// One image as a trained model wants it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/io/json_text.h"
#include "core/tensor.h"
#include "data/images/image_dataset.h"
#include "data/transforms/transforms.h"

namespace hearth::data {

struct ImageFolderOptions;

/// Shrinks an image as the dataset does and brings it to the channels and size that the set's images have: one channel
/// by luma (ITU-R BT.601), three from one as equal ones, the size by bilinear resize. DataError, naming `name`, for
/// other channels.
void conform(Image& image, const ImageDataset& dataset, const std::string& name);

/// try_read() of another set's image, which is then conformed.
std::optional<std::int64_t> read_conformed(const ImageDataset& images, std::int64_t index, const ImageDataset& dataset,
                                           Image& image);
/// try_read_region() of another set's image, conformed. Where conforming neither shrinks nor resizes it nor makes it
/// grey, no more of it is decoded than the resize needs: one that the dataset has too becomes what it is there.
std::optional<std::int64_t> read_conformed(const ImageDataset& images, std::int64_t index, const ImageDataset& dataset,
                                           const ChooseSizing& choose, Image& image, Region& region);

/// Conforms an image and applies the evaluation transforms: one of the set becomes what it is in evaluation. Writes
/// output_shape() values of f32 to `target`.
void prepare_input(Image image, const ImageDataset& dataset, const Transforms& eval_transforms, const std::string& name,
                   float* target);

/// The same from an image file, which is read as `files` says. FileError or DataError, naming the file, if it cannot be
/// read.
void prepare_file(const std::string& path, const ImageFolderOptions& files, const ImageDataset& dataset,
                  const Transforms& eval_transforms, float* target);

/// The same as f32 [1, H, W, C].
Tensor load_input(const std::string& path, const ImageFolderOptions& files, const ImageDataset& dataset,
                  const Transforms& eval_transforms);

/// "mean" and "std" of a packed set's manifest.
ChannelStatistics manifest_statistics(const Json& manifest);

}  // namespace hearth::data
