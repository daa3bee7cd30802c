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
  struct Saved {
    SavedTensor x;
  };

  Tensor forward(Saved& saved, const Tensor& view) const {
    const Tensor x = view.contiguous();
    const Tensor y = Tensor::empty(x.shape().with(-1, x.dim(-1) / 2), x.dtype(), x.device());
    if (y.size() > 0) run_on(x.device(), [&](auto& stream) { kernels::swiglu(stream, x, y); });
    if (is_recording()) saved.x = x;
    return y;
  }

  std::array<Tensor, 1> backward(const Saved& saved, const Tensor& dy, const NeedsGrad& needs) const {
    const Tensor& x = saved.x.get();
    const Tensor dx = needs.make(0, x.shape(), x.dtype());
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
