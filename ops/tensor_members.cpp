// SPDX-License-Identifier: Apache-2.0
// The members of Tensor that are differentiable: each is the function of that name.
#include <utility>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/grad_state.h"
#include "ops/argument.h"
#include "ops/index/index.h"
#include "ops/index/sort.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/compare.h"
#include "ops/pointwise/operators.h"
#include "ops/reduce/cumsum.h"
#include "ops/reduce/reduce.h"
#include "ops/reduce/statistics.h"
#include "ops/shape/indexing.h"
#include "ops/shape/split.h"
#include "ops/shape/view.h"
#include "ops/written_value.h"

namespace hearth {

void Tensor::backward() const { hearth::backward(*this); }
Tensor Tensor::grad() const { return grad_of(*this); }
Tensor Tensor::requires_grad_(bool on) {
  HEARTH_CHECK(UsageError, on,
               "requires_grad_(false): to take a layer out of training call layer.freeze() before FlatParameters are "
               "made, or keep an nn::FreezeScope of it for a while; x.detach() is a tensor without gradient");
  return *this = requires_grad(*this);
}
void Tensor::add_hook(std::function<Tensor(const Tensor&)> f) const { hearth::register_hook(*this, std::move(f)); }

const Tensor& Tensor::operator=(const Tensor& source) const&& {
  detail::write_in_place("x[i] = y", *this, source);
  return *this;
}
const Tensor& Tensor::operator=(double value) const&& {
  detail::write_in_place("x[i] = y", *this, Tensor::full({}, value, dtype(), device()));
  return *this;
}

void detail::write_in_place(const char* what, const Tensor& to, const Tensor& value) {
  HEARTH_CHECK(UsageError, !grad_enabled() || (!needs_grad(to) && !needs_grad(value)), what, ": writes into ",
               describe(to),
               " in place, which the tape does not record; make a new tensor (x = x + y, where(), concat()), or write "
               "within NoGrad where no gradient is meant");
  HEARTH_CHECK(ShapeError, broadcasts_to(value.shape(), to.shape()), what, ": values of shape ", value.shape(),
               " do not fit into ", describe(to),
               ", which keeps its shape; make a new tensor (x = x + y), or write values that broadcast to it");
  to.copy_from(expand(value, to.shape()));
}

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
Tensor Tensor::view(const Extents& extents) const {
  HEARTH_CHECK(UsageError, is_contiguous(), "view: the tensor ", describe(*this),
               " is not contiguous, and a view never copies; use reshape(), which copies where it must");
  return hearth::reshape(*this, extents);
}
Tensor Tensor::flatten(int first_axis) const { return hearth::flatten(*this, first_axis); }
Tensor Tensor::permute(const std::vector<int>& axes) const { return hearth::transpose(*this, axes); }
Tensor Tensor::transpose(int axis_a, int axis_b) const {
  std::vector<int> axes(static_cast<std::size_t>(rank()));
  for (std::size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int>(i);
  std::swap(axes[static_cast<std::size_t>(require_axis("transpose", axis_a, shape()))],
            axes[static_cast<std::size_t>(require_axis("transpose", axis_b, shape()))]);
  return permute(axes);
}
Tensor Tensor::expand(const Shape& shape) const { return hearth::expand(*this, shape); }
Tensor Tensor::squeeze() const { return hearth::squeeze(*this); }
Tensor Tensor::squeeze(int axis) const { return hearth::squeeze(*this, axis); }
Tensor Tensor::unsqueeze(int axis) const { return hearth::unsqueeze(*this, axis); }
std::vector<Tensor> Tensor::split_evenly(std::int64_t size, int axis) const { return hearth::split(*this, size, axis); }
std::vector<Tensor> Tensor::split(const std::vector<std::int64_t>& sizes, int axis) const {
  return hearth::split(*this, sizes, axis);
}
std::vector<Tensor> Tensor::chunk(std::int64_t count, int axis) const { return hearth::chunk(*this, count, axis); }
Tensor Tensor::flip(const std::vector<int>& axes) const { return hearth::flip(*this, axes); }
Tensor Tensor::index_select(int axis, const Tensor& ids) const { return hearth::index_select(*this, axis, ids); }
Tensor Tensor::gather(int axis, const Tensor& ids) const { return hearth::gather(*this, axis, ids); }
Tensor Tensor::masked_fill(const Tensor& mask, double value) const { return hearth::masked_fill(*this, mask, value); }

#define HEARTH_REDUCTION(name)                                                  \
  Tensor Tensor::name(const std::vector<int>& axes, KeepDims keep_dims) const { \
    return hearth::name(*this, axes, keep_dims);                                \
  }
HEARTH_REDUCTION(sum)
HEARTH_REDUCTION(mean)
HEARTH_REDUCTION(max)
HEARTH_REDUCTION(min)
HEARTH_REDUCTION(logsumexp)
#undef HEARTH_REDUCTION
Tensor Tensor::var(const std::vector<int>& axes, KeepDims keep_dims) const {
  return var(axes, {.keep_dims = keep_dims});
}
Tensor Tensor::var(const std::vector<int>& axes, const VarianceOptions& options) const {
  return hearth::var(*this, axes, options);
}
Tensor Tensor::argmax(int axis, KeepDims keep_dims) const { return hearth::argmax(*this, axis, keep_dims); }
Tensor Tensor::argmin(int axis, KeepDims keep_dims) const { return hearth::argmin(*this, axis, keep_dims); }
Tensor Tensor::cumsum(int axis) const { return hearth::cumsum(*this, axis); }
Sorted Tensor::sort(int axis, bool descending) const { return hearth::sort(*this, axis, descending); }
Tensor Tensor::argsort(int axis, bool descending) const { return hearth::argsort(*this, axis, descending); }
Sorted Tensor::topk(std::int64_t k, int axis, bool largest) const { return hearth::topk(*this, k, axis, largest); }

#define HEARTH_ARITHMETIC(name)                                                         \
  Tensor Tensor::name(const Tensor& other) const { return hearth::name(*this, other); } \
  Tensor Tensor::name(double other) const { return hearth::name(*this, other); }
HEARTH_ARITHMETIC(add)
HEARTH_ARITHMETIC(sub)
HEARTH_ARITHMETIC(mul)
HEARTH_ARITHMETIC(div)
#undef HEARTH_ARITHMETIC
Tensor Tensor::matmul(const Tensor& other) const { return hearth::matmul(*this, other); }
Tensor Tensor::pow(double exponent) const { return hearth::pow(*this, exponent); }
Tensor Tensor::clamp(double low, double high) const { return hearth::clamp(*this, low, high); }

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
