// SPDX-License-Identifier: Apache-2.0
#include "ops/reduce/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "ops/argument.h"
#include "ops/pointwise/binary.h"
#include "ops/pointwise/cast.h"
#include "ops/pointwise/compare.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/view.h"

namespace hearth {
namespace {

void check_floating(const char* op, const Tensor& x) {
  HEARTH_CHECK(DTypeError, is_floating(x.dtype()), op, ": ", describe(x), "; x is floating");
}

/// ShapeError, naming the op and not those it is made of.
void check_axes(const char* op, const Tensor& x, const std::vector<int>& axes) {
  std::vector<int> seen;
  for (const int axis : axes) {
    const int at = require_axis(op, axis, x.shape());
    HEARTH_CHECK(ShapeError, std::count(seen.begin(), seen.end(), at) == 0, op, ": axis ", axis, " of ", x.shape(),
                 " is given twice; name each axis once");
    seen.push_back(at);
  }
}

/// 16-bit types in f32: their squares and sums would not fit.
Tensor wide(const Tensor& x) { return size_of(x.dtype()) == 2 ? cast(x, DType::f32) : x; }

}  // namespace

Tensor var(const Tensor& x, const std::vector<int>& axes, const VarianceOptions& options) {
  check_floating("var", x);
  check_axes("var", x, axes);
  HEARTH_CHECK(ShapeError, std::isfinite(options.correction), "var: a correction of ", options.correction);
  // 0 / 0; there is no mean.
  if (x.size() == 0) return add(sum(x, axes, options.keep_dims), std::numeric_limits<double>::quiet_NaN());
  const Tensor values = wide(x), mean_of_x = mean(values, axes, true);
  const Tensor squares = sum(square(sub(values, mean_of_x)), axes, options.keep_dims);
  const double elements = mean_of_x.size() == 0 ? 0 : static_cast<double>(x.size() / mean_of_x.size());
  return cast(div(squares, std::max(0.0, elements - options.correction)), x.dtype());
}

Tensor logsumexp(const Tensor& x, const std::vector<int>& axes, KeepDims keep_dims) {
  check_floating("logsumexp", x);
  check_axes("logsumexp", x, axes);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (x.size() == 0) return add(sum(x, axes, keep_dims), -infinity);
  const Tensor values = wide(x), largest = max(values.detach(), axes, true);
  // An infinite maximum is left where it is: exp(-inf) = 0 and exp(inf) = inf then.
  const Tensor shift = masked_fill(largest, equal(abs(largest), infinity), 0);
  const Tensor total = sum(exp(sub(values, shift)), axes, keep_dims);
  // Where all is -inf there is nothing to differentiate: log(0) would give a gradient of NaN.
  const Tensor nothing = equal(total, 0);
  const Tensor y = add(log(masked_fill(total, nothing, 1)), reshape(shift, total.shape()));
  return cast(masked_fill(y, nothing, -infinity), x.dtype());
}

}  // namespace hearth
