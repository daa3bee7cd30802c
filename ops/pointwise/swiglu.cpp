// SPDX-License-Identifier: Apache-2.0
#include "ops/pointwise/swiglu.h"

#include <array>

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/argument.h"

namespace hearth {
namespace {

struct Swiglu {
  static constexpr OpInfo info{.name = "swiglu"};
  struct Kept {
    KeptTensor x;
  };

  Tensor forward(Kept& kept, const Tensor& view) const {
    const Tensor x = view.contiguous();
    const Tensor y = Tensor::empty(x.shape().with(-1, x.dim(-1) / 2), x.dtype(), x.device());
    if (y.size() > 0) run_on(x.device(), [&](auto& stream) { kernels::swiglu(stream, x, y); });
    if (is_recording()) kept.x = x;
    return y;
  }

  std::array<Tensor, 1> backward(const Kept& kept, const Tensor& dy, const GradWants& wants) const {
    const Tensor& x = kept.x.get();
    const Tensor dx = wants.make(0, x.shape(), x.dtype());
    if (x.size() > 0) run_on(x.device(), [&](auto& stream) { kernels::swiglu_grad(stream, x, dy.contiguous(), dx); });
    return {dx};
  }
};

}  // namespace

Tensor swiglu(const Tensor& x) {
  require_floating("swiglu", "x", x);
  HEARTH_CHECK(ShapeError, x.rank() >= 1 && x.dim(-1) % 2 == 0, "swiglu: x is ", x.shape(),
               "; its last axis holds two halves, so it must be even");
  return record(Swiglu{}, x);
}

}  // namespace hearth
