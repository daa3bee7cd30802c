// SPDX-License-Identifier: Apache-2.0
#include "ops/pointwise/dropout.h"

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/argument.h"

namespace hearth {
namespace {

struct Dropout {
  static constexpr OpInfo info{.name = "dropout"};
  struct Saved {};
  double p;
  RandomKey key;

  Tensor forward(Saved&, const Tensor& x) const {
    const Tensor y = Tensor::empty_like(x);
    run_on(x.device(), [&](auto& stream) { kernels::dropout(stream, x.contiguous(), key, p, y); });
    return y;
  }

  std::array<Tensor, 1> backward(const Saved&, Tensor dy, const NeedsGrad& needs) const {
    const bool in_place = dy.is_contiguous() && dy.sole_owner();
    const Tensor dense = in_place ? std::move(dy) : dy.contiguous();
    const Tensor dx = in_place ? dense : needs.make(0, dense.shape(), dense.dtype());
    run_on(dx.device(), [&](auto& stream) { kernels::dropout(stream, dense, key, p, dx); });
    return {dx};
  }
};

}  // namespace

Tensor dropout(const Tensor& x, double p, bool training, const DropoutOptions& options) {
  require_floating("dropout", "x", x);
  require_probability("dropout", "the probability", p);
  if (!training || p == 0) return x;
  RandomKey key = next_random_key();
  const bool divides = x.rank() > 0 && (key.part.count == 0 || x.dim(0) % key.part.count == 0);
  if (!options.per_sample || !divides) key.part = {};
  return record(Dropout{p, key}, x);
}

}  // namespace hearth
