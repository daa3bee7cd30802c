// SPDX-License-Identifier: Apache-2.0
// The members of Tensor that are differentiable: each is the function of that name.
#include <utility>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/binary.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/indexing.h"
#include "ops/shape/view.h"

namespace hearth {

void Tensor::backward() const { hearth::backward(*this); }
Tensor Tensor::grad() const { return grad_of(*this); }

Tensor Tensor::operator[](std::int64_t position) const {
  const Index index(position);
  return hearth::index(*this, {&index, 1});
}
Tensor Tensor::operator[](std::initializer_list<Index> indices) const {
  return index(*this, {indices.begin(), indices.size()});
}
Tensor Tensor::slice(int axis, std::int64_t begin, std::int64_t end, std::int64_t step) const {
  return hearth::slice(*this, axis, begin, end, step);
}
Tensor Tensor::reshape(const Extents& extents) const { return hearth::reshape(*this, extents); }
Tensor Tensor::flatten(int first_axis) const { return hearth::flatten(*this, first_axis); }
Tensor Tensor::permute(const std::vector<int>& axes) const { return hearth::transpose(*this, axes); }
Tensor Tensor::transpose(int axis_a, int axis_b) const {
  std::vector<int> axes(static_cast<std::size_t>(rank()));
  for (std::size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int>(i);
  std::swap(axes[static_cast<std::size_t>(shape().normalize_axis(axis_a))],
            axes[static_cast<std::size_t>(shape().normalize_axis(axis_b))]);
  return permute(axes);
}
Tensor Tensor::expand(const Shape& shape) const { return hearth::expand(*this, shape); }

#define HEARTH_REDUCTION(name)                                              \
  Tensor Tensor::name(const std::vector<int>& axes, bool keep_dims) const { \
    return hearth::name(*this, axes, keep_dims);                            \
  }
HEARTH_REDUCTION(sum)
HEARTH_REDUCTION(mean)
HEARTH_REDUCTION(max)
HEARTH_REDUCTION(min)
#undef HEARTH_REDUCTION
Tensor Tensor::argmax(int axis, bool keep_dims) const { return hearth::argmax(*this, axis, keep_dims); }

#define HEARTH_ARITHMETIC(name)                                                         \
  Tensor Tensor::name(const Tensor& other) const { return hearth::name(*this, other); } \
  Tensor Tensor::name(double other) const { return hearth::name(*this, other); }
HEARTH_ARITHMETIC(add)
HEARTH_ARITHMETIC(sub)
HEARTH_ARITHMETIC(mul)
HEARTH_ARITHMETIC(div)
#undef HEARTH_ARITHMETIC
Tensor Tensor::matmul(const Tensor& other) const { return hearth::matmul(*this, other); }

#define HEARTH_FUNCTION(name) \
  Tensor Tensor::name() const { return hearth::name(*this); }
HEARTH_FUNCTION(abs)
HEARTH_FUNCTION(exp)
HEARTH_FUNCTION(log)
HEARTH_FUNCTION(sqrt)
HEARTH_FUNCTION(relu)
HEARTH_FUNCTION(sigmoid)
HEARTH_FUNCTION(tanh)
#undef HEARTH_FUNCTION

}  // namespace hearth
