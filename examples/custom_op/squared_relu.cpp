// SPDX-License-Identifier: Apache-2.0
#include "squared_relu.h"

#include <hearth/hearth.h>

#include <array>

namespace {

using namespace hearth;

struct SquaredRelu {
  static constexpr OpInfo info{.name = "squared_relu"};
  struct Saved {
    SavedTensor x;
  };

  Tensor forward(Saved& saved, const Tensor& given) const {
    const Tensor x = given.contiguous();
    if (is_recording()) saved.x = x;
    const Tensor y = Tensor::empty_like(x);
    run_on(x.device(), [&](auto& stream) { own_kernels::squared_relu(stream, x, y); });
    return y;
  }

  std::array<Tensor, 1> backward(const Saved& saved, Tensor dy, const NeedsGrad& needs) const {
    const Tensor& x = saved.x.get();
    const Tensor dx = needs.make(0, x.shape(), x.dtype());
    run_on(x.device(), [&](auto& stream) { own_kernels::squared_relu_grad(stream, x, dy.contiguous(), dx); });
    return {dx};
  }
};

}  // namespace

Tensor squared_relu(const Tensor& x) {
  HEARTH_CHECK(DTypeError, x.dtype() == DType::f32 || x.dtype() == DType::f64, "squared_relu: x is ", describe(x),
               "; convert it to f32 or f64");
  return record(SquaredRelu{}, x);
}
