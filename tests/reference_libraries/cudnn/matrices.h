// SPDX-License-Identifier: Apache-2.0
// Products, reductions and transpositions of the reference cuDNN.
#pragma once

#include "tests/reference_libraries/cudnn/memory.h"

namespace hearth::reference_dnn {

/// C = A B for each batch and head. Where lengths are given, rows and columns of C beyond them are not computed, and
/// not written if C is in memory, and sums end at theirs.
cudnnStatus_t check_product(const Node& operation);
void run_product(const Node& operation, Memory& memory);

/// The largest of each row, or its sum.
cudnnStatus_t check_reduction(const Node& operation);
void run_reduction(const Node& operation, Memory& memory);

/// The last two axes exchanged.
cudnnStatus_t check_reshape(const Node& operation);
void run_reshape(const Node& operation, Memory& memory);

}  // namespace hearth::reference_dnn
