// SPDX-License-Identifier: Apache-2.0
// Whether a tensor may be written without the tape's knowledge: the tape, which lies above, answers.
#pragma once

#include "core/export.h"

namespace hearth {

class Tensor;

namespace detail {

/// Throws UsageError, which begins with `what`, where a gradient would miss that elements of `to` are written: outside
/// of NoGrad, to the result of an op that needs a gradient, or from a `source` that is one to a tensor that needs none.
/// `source` is null for plain values.
using WriteCheck = void (*)(const char* what, const Tensor& to, const Tensor* source);

/// What Tensor::copy_from() and fill_() ask; null in a program without a tape.
extern HEARTH_API WriteCheck write_check;

}  // namespace detail
}  // namespace hearth
