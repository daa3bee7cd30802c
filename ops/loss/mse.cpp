// SPDX-License-Identifier: Apache-2.0
#include "ops/loss/mse.h"

#include <array>

#include "autograd/record.h"
#include "core/run_on.h"

namespace hearth {
namespace {

struct MeanSquaredError {
  static constexpr OpInfo info{.name = "mse", .autocast = Autocast::widen};
  struct Kept {
    KeptTensor x, target;
  };

  Tensor forward(Kept& kept, const Tensor& x_view, const Tensor& target_view) const {
    const Tensor x = x_view.contiguous(), target = target_view.contiguous();
    const Tensor y = Tensor::empty({}, x.dtype() == DType::f64 ? DType::f64 : DType::f32, x.device());
    run_on(x.device(), [&](auto& stream) { kernels::squared_error(stream, x, target, y); });
    if (is_recording()) {
      kept.x = x;
      kept.target = target;
    }
    return y;
  }

  std::array<Tensor, 2> backward(const Kept& kept, Tensor dy, const GradWants& wants) const {
    const Tensor &x = kept.x.get(), &target = kept.target.get();
    const double factor = 2.0 / static_cast<double>(x.size());
    std::array<Tensor, 2> gradients;
    for (const std::size_t input : {std::size_t{0}, std::size_t{1}}) {
      if (!wants[input]) continue;
      gradients[input] = wants.make(input, x.shape(), x.dtype());
      run_on(x.device(), [&](auto& stream) {
        kernels::squared_error_grad(stream, x, target, dy, input == 0 ? factor : -factor, gradients[input]);
      });
    }
    return gradients;
  }
};

}  // namespace

Tensor mse(const Tensor& x, const Tensor& target) {
  HEARTH_CHECK(UsageError, x.defined() && target.defined(), "mse: x is ", describe(x), ", target is ", describe(target),
               "; both are needed");
  HEARTH_CHECK(ShapeError, x.shape() == target.shape(), "mse: x ", x.shape(), " and target ", target.shape(),
               " must have one shape");
  HEARTH_CHECK(ShapeError, x.size() > 0, "mse: x ", x.shape(), " has no elements, so there is no mean");
  HEARTH_CHECK(DTypeError, is_floating(x.dtype()) && is_floating(target.dtype()), "mse: x is ", describe(x),
               ", target is ", describe(target), "; they must be f32, f64, f16 or bf16");
  HEARTH_CHECK(DTypeError, x.dtype() == target.dtype() || autocast_dtype(), "mse: x is ", x.dtype(), " but target is ",
               target.dtype(), "; cast one of them");
  return record(MeanSquaredError{}, x, target);
}

}  // namespace hearth
