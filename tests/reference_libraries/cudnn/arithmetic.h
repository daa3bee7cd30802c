// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the reference cuDNN: a graph of operations on tensors in memory, one after another, in f32 between
// them and in f64 within.
#pragma once

#include <map>

#include "tests/reference_libraries/cudnn/descriptors.h"

namespace hearth::reference_dnn {

/// Whether the operations are such as this library knows, and their tensors go together.
cudnnStatus_t check_graph(const Node& graph);

/// The tensors of a graph that have memory, by their number.
std::map<std::int64_t, TensorFacts> stored_tensors(const Node& graph);

/// Runs it. Memory of each stored tensor, by its number.
void compute(const Node& graph, const std::map<std::int64_t, void*>& memory);

}  // namespace hearth::reference_dnn
