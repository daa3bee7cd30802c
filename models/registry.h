// SPDX-License-Identifier: Apache-2.0
// Models by name, for run configurations. A program adds its own before it parses a configuration:
//
//   struct WideOptions { std::int64_t width = 512; };
//   void describe(Fields<WideOptions>& f) { f.integer("width", &WideOptions::width, {.min = 1}, "Hidden units."); }
//   models::add<WideOptions>("wide", [](const WideOptions& o, const models::InputInfo& input) {
//     return std::make_unique<Wide>(input.features(), o.width, input.classes);
//   });
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/config/config.h"
#include "models/nn/module.h"

namespace hearth::models {

/// What the data looks like; 0 for what it does not say.
struct HEARTH_API InputInfo {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;
  std::int64_t classes = 0;            ///< outputs: of token streams and translations the pieces of the vocabulary
  std::int64_t length = 0;             ///< the most ids in a row of text; 0 for images
  std::int64_t vocabulary = 0;         ///< pieces that ids of a text, or of a translation, are of; 0 for images
  std::int64_t source_vocabulary = 0;  ///< of what is translated; 0 where there is none
  std::int64_t pad = -1;               ///< the id that fills rows of text up; -1 if there is none
  std::int64_t source_pad = -1;        ///< of what is translated
  bool labelled = false;               ///< every sample has the number of a class, so that each class needs its output

  /// Values of one sample; ShapeError if the product overflows.
  std::int64_t features() const;
};

using Models = Registry<std::unique_ptr<nn::Module>(const InputInfo&)>;
/// "bert", "deeplabv3", "fcn", "fcos", "gpt", "mlp", "resnet", "retinanet", "ssd", "swin", "transformer", "unet",
/// "vgg", "yolox", and what the program adds.
HEARTH_API Models& registry();

/// Adds a model with fields; describe(Fields<Options>&) tells them.
template <class Options>
void add(const std::string& name, std::function<std::unique_ptr<nn::Module>(const Options&, const InputInfo&)> factory,
         const std::string& doc = "Added by the program.") {
  registry().add<Options>(name, doc, std::move(factory));
}
/// Adds a model without fields.
HEARTH_API void add(const std::string& name, std::function<std::unique_ptr<nn::Module>(const InputInfo&)> factory,
                    const std::string& doc = "Added by the program.");

/// The model that a node describes, zeros until nn::initialize() gives the initial values. ConfigError with every
/// fault of the node, or if neither the node nor the data gives the channels and classes.
HEARTH_API std::unique_ptr<nn::Module> make(const Json& node, const InputInfo& input);

}  // namespace hearth::models
