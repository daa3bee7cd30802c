// SPDX-License-Identifier: Apache-2.0
// The tensors while the reference cuDNN computes a graph.
#pragma once

#include <map>
#include <vector>

#include "tests/reference_libraries/cudnn/descriptors.h"

namespace hearth::reference_dnn {

using Name = cudnnBackendAttributeName_t;
using Values = std::vector<double>;
using Extents = std::vector<std::int64_t>;

Extents extents_of(const Node& operation, Name tensor);

/// Those between operations lie here.
class Memory {
 public:
  explicit Memory(const std::map<std::int64_t, void*>& stored) : stored_(stored) {}

  /// In row-major order of the extents.
  Values load(const Node& tensor);
  /// Those that are `written`; all where it is empty.
  void store(const Node& tensor, const Values& values, const std::vector<bool>& written = {});

 private:
  void* address(const TensorFacts& tensor);

  const std::map<std::int64_t, void*>& stored_;
  std::map<std::int64_t, std::vector<std::byte>> passing_;
};

}  // namespace hearth::reference_dnn
