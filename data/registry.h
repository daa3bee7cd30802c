// SPDX-License-Identifier: Apache-2.0
// Datasets by name, for run configurations:
//   "data": {"type": "fashion_mnist", "workers": 2, "augment": {"padded_crop": 2, "flip": true, "mixup": 0.2}}
// A program adds its own set before it parses a configuration:
//
//   struct SignsOptions : data::ImageDataOptions { std::string path; };  // data::DataOptions where there are no images
//   void describe(Fields<SignsOptions>& f) { data::describe_images(f); f.text("path", &SignsOptions::path, "Folder.");
//   } data::add<SignsOptions>("signs", [](const SignsOptions& o) { return data::Splits{...}; }, "Road signs.");
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "core/config/config.h"
#include "data/dataset.h"
#include "data/images/image_options.h"
#include "data/options.h"

namespace hearth::data {

/// A set opened by its type's factory, with the options common to all.
struct OpenedData {
  Splits splits;
  DataOptions options;
  std::optional<ImageOptions> image_options{};  ///< where the type has them
};

/// That of a type's options.
template <std::derived_from<DataOptions> Options>
OpenedData opened_data(Splits splits, const Options& options) {
  OpenedData opened{std::move(splits), options};
  if constexpr (std::derived_from<Options, ImageOptions>) opened.image_options = options;
  return opened;
}

/// Whether a dataset is to be opened, or only its options are wanted.
enum class Opening : std::uint8_t { all, options_only };

using Datasets = Registry<OpenedData(Opening)>;
/// "digits", "fashion_mnist", "idx", "cifar10", "cifar100", "image_folder", "records", "webdataset", "tfrecord",
/// "coco", "yolo", "voc", "masks", "synthetic", "csv", "arrays", "text", "labelled_text", "parallel_text", "mixture",
/// and what the program adds.
HEARTH_API Datasets& datasets();

/// Adds a dataset.
template <std::derived_from<DataOptions> Options>
void add(const std::string& name, std::function<Splits(const Options&)> open,
         const std::string& doc = "Added by the program.") {
  datasets().add<Options>(name, doc, [open = std::move(open)](const Options& options, Opening opening) -> OpenedData {
    return opened_data(opening == Opening::all ? open(options) : Splits{}, options);
  });
}

}  // namespace hearth::data
