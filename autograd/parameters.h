// SPDX-License-Identifier: Apache-2.0
// Named parameters, and the flat memory that holds all values in one buffer and all gradients in another:
// zeroing is a flag, an optimizer is one pass, data parallelism sends whole pieces.
#pragma once

#include <string>
#include <vector>

#include "hearth/core/tensor.h"

namespace hearth {

/// A parameter or buffer inside a module: its full name ("layer1.0.conv1.weight") and the handle to rebind.
struct NamedTensor {
  std::string name;
  Tensor* tensor;
};

/// Moves parameters into one flat buffer of values and one of gradients, each parameter starting on a 64-byte boundary
/// (the gaps hold zeros). The handles are rebound to leaf views of the buffers. All parameters share one dtype
/// and one device.
class FlatParameters {
 public:
  struct Entry {
    std::string name;
    Tensor value;        ///< leaf view of values()
    std::int64_t begin;  ///< first element within the buffers
    std::int64_t size;   ///< elements
  };

  explicit FlatParameters(const std::vector<NamedTensor>& parameters);

  const std::vector<Entry>& entries() const { return entries_; }
  /// [total], every parameter.
  const Tensor& values() const { return values_; }
  /// [total], every gradient. After backward, parameters that had no part in it hold zeros once finish_grads ran.
  const Tensor& grads() const { return grads_; }
  /// Marks all gradients as empty: the next contributions replace them.
  void zero_grads();
  /// Writes zeros where no contribution arrived since zero_grads.
  void finish_grads();

 private:
  std::vector<Entry> entries_;
  Tensor values_;
  Tensor grads_;
};

}  // namespace hearth
