// SPDX-License-Identifier: Apache-2.0
// Reads the tensors of a file that torch.save() wrote, as .pth, .pt and pytorch_model.bin are. Such a file is a zip
// archive of storages and a pickle, which is a program: here it is run by a machine that knows the few instructions of
// a dictionary of tensors and eleven names, so that it can do nothing but name tensors.
#pragma once

#include <string>

#include "models/weights/weights.h"

namespace hearth::models {

/// Whether a file is one of torch.save(), in the present format or in that before PyTorch 1.6, by its first bytes.
bool is_torch_file(const std::string& path);

/// The file of torch.save() that a path leads to: itself, or its pytorch_model.bin where it is a folder without
/// safetensors, which come first; "" if it leads to none. FileError for the index of several.
std::string torch_file_at(const std::string& path);

/// The tensors of a state dict, or of the first under the keys "state_dict", "model", "model_state_dict" and "module";
/// WeightSet::notes tells of tensors beside it. Anything else in the pickle, a damaged archive, and tensors that claim
/// more than their storages are FileErrors, with the lines of Python that make a safetensors file of it.
WeightSet read_torch_file(const std::string& path);

}  // namespace hearth::models
