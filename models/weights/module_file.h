// SPDX-License-Identifier: Apache-2.0
// The weights of one module in a file.
#pragma once

#include <string>

#include "core/export.h"

namespace hearth::nn {

class Module;

/// Writes all parameters and buffers of `module` to a safetensors file, which Python reads too; the names are those of
/// parameters() and buffers(). Of weights that FlatParameters keep in low precision (O2) it has the f32 values. The
/// file is replaced whole or not at all. FileError; UsageError for a parameter that was never initialized, and for one
/// whose f32 values ranks have a part of each.
HEARTH_API void save(Module& module, const std::string& path);

/// Reads them back, also from a file of torch.save() with the same names and PyTorch's layout (WeightFormat::torch):
/// its filters, [K, C, R, S], become [K, R, S, C]. Of several state dicts it takes that of read_torch_file(). PyTorch's
/// counters of batches, whose names end in
/// ".num_batches_tracked", are ignored. Floating types are converted to the module's. FileError,
/// with nothing changed, for a tensor that is missing, unexpected, of another shape or not finite;
/// models::load_weights() has rules for weights that fit in part.
HEARTH_API void load(Module& module, const std::string& path);

}  // namespace hearth::nn
