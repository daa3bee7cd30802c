// SPDX-License-Identifier: Apache-2.0
#include "ops/index/one_hot.h"

#include "core/error.h"
#include "ops/index/index.h"
#include "ops/pointwise/compare.h"
#include "ops/reduce/cumsum.h"
#include "ops/shape/concat.h"
#include "ops/shape/split.h"
#include "ops/shape/view.h"

namespace hearth {

Tensor one_hot(const Tensor& labels, std::int64_t classes) {
  HEARTH_CHECK(DTypeError, labels.dtype() == DType::i64 || labels.dtype() == DType::i32, "one_hot: labels ",
               describe(labels), "; labels are i64 or i32");
  HEARTH_CHECK(ShapeError, classes >= 1, "one_hot: ", classes, " classes; there is at least 1");
  HEARTH_CHECK(ShapeError, classes < std::int64_t{1} << 53, "one_hot: ", classes, " classes; fewer than 2^53 fit");
  (void)checked_mul(checked_mul(labels.size(), classes, "one_hot: elements"), 8, "one_hot: byte count");
  // Counted on the device: a copy from the host could not be recorded.
  const Device device = labels.device();
  const Tensor numbers = cumsum(
      concat({Tensor::zeros({1}, DType::i64, device), Tensor::full({classes - 1}, 1, DType::i64, device)}, 0), 0);
  Tensor known = labels.to(DType::i64);
  if (labels.device() == Device{}) {
    const std::int64_t* const values = known.data<const std::int64_t>();
    for (std::int64_t i = 0; i < known.size(); ++i)
      HEARTH_CHECK(IndexError, values[i] >= 0 && values[i] < classes, "one_hot: label ", values[i], " of ", classes,
                   " classes");
  } else {
    // Taking each label's number changes nothing, but the kernel reports those outside without a wait of the host.
    known = reshape(index_select(numbers, 0, reshape(known, {known.size()})), known.shape());
  }
  return equal(unsqueeze(known, -1), numbers).to(DType::i64);
}

}  // namespace hearth
