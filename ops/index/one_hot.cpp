// SPDX-License-Identifier: Apache-2.0
#include "ops/index/one_hot.h"

#include "core/creation.h"
#include "core/error.h"
#include "ops/pointwise/compare.h"
#include "ops/shape/split.h"

namespace hearth {

Tensor one_hot(const Tensor& labels, std::int64_t classes) {
  HEARTH_CHECK(DTypeError, labels.dtype() == DType::i64 || labels.dtype() == DType::i32, "one_hot: labels ",
               describe(labels), "; labels are i64 or i32");
  HEARTH_CHECK(ShapeError, classes >= 1, "one_hot: ", classes, " classes; there is at least 1");
  const Tensor host = labels.to(Device{}).to(DType::i64);
  const std::int64_t* const values = host.data<const std::int64_t>();
  for (std::int64_t i = 0; i < host.size(); ++i)
    HEARTH_CHECK(IndexError, values[i] >= 0 && values[i] < classes, "one_hot: label ", values[i], " of ", classes,
                 " classes");
  const Tensor numbers = arange(0, static_cast<double>(classes), 1, DType::i64).to(labels.dtype()).to(labels.device());
  return equal(unsqueeze(labels, -1), numbers).to(DType::i64);
}

}  // namespace hearth
