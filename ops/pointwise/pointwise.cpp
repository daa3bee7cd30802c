// SPDX-License-Identifier: Apache-2.0
#include "ops/pointwise/pointwise.h"

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/argument.h"
#include "ops/pointwise/functors.h"

namespace hearth {
namespace {

using functors::Keeps;

/// What a row of the table says about its function.
struct Traits {
  const char* name;
  Keeps keeps;
};

template <kernels::Pointwise function>
struct Row;
#define HEARTH_POINTWISE_ROW(function_name, domain)                                                            \
  template <>                                                                                                  \
  struct Row<kernels::Pointwise::function_name> {                                                              \
    static constexpr const char* name = #function_name;                                                        \
    static constexpr Keeps keeps = functors::function_name::keeps;                                             \
    static constexpr Autocast autocast = functors::function_name::widens ? Autocast::widen : Autocast::follow; \
  };
HEARTH_POINTWISE(HEARTH_POINTWISE_ROW)
#undef HEARTH_POINTWISE_ROW

Tensor forward_of(kernels::Pointwise function, const Traits& traits, KeptTensor& kept, const Tensor& x) {
  require_floating(traits.name, "x", x);
  const Tensor dense = x.contiguous();
  Tensor y = Tensor::empty_like(dense);
  run_on(x.device(), [&](auto& stream) { kernels::pointwise(stream, function, dense, y); });
  if (is_recording() && traits.keeps != Keeps::nothing) kept = traits.keeps == Keeps::x ? dense : y;
  return y;
}

Tensor backward_of(kernels::Pointwise function, const Traits& traits, const KeptTensor& kept, Tensor dy,
                   const GradWants& wants) {
  if (!wants[0]) return {};
  const Tensor kept_tensor = traits.keeps == Keeps::nothing ? Tensor() : kept.get();
  const bool in_place = dy.is_contiguous() && dy.sole_owner();
  const Tensor dense = in_place ? std::move(dy) : dy.contiguous();
  const Tensor dx = in_place ? dense : wants.make(0, dense.shape(), dense.dtype());
  run_on(dx.device(), [&](auto& stream) { kernels::pointwise_grad(stream, function, kept_tensor, dense, dx); });
  return dx;
}

template <kernels::Pointwise function>
struct PointwiseOp {
  using Description = Row<function>;
  static constexpr OpInfo info{.name = Description::name, .autocast = Description::autocast};
  static constexpr Traits traits{Description::name, Description::keeps};
  struct Kept {
    KeptTensor tensor;
  };

  Tensor forward(Kept& kept, const Tensor& x) const { return forward_of(function, traits, kept.tensor, x); }
  std::array<Tensor, 1> backward(const Kept& kept, Tensor dy, const GradWants& wants) const {
    return {backward_of(function, traits, kept.tensor, std::move(dy), wants)};
  }
};

}  // namespace

#define HEARTH_DEFINE_POINTWISE(name, domain) \
  Tensor name(const Tensor& x) { return record(PointwiseOp<kernels::Pointwise::name>{}, x); }
HEARTH_POINTWISE(HEARTH_DEFINE_POINTWISE)
#undef HEARTH_DEFINE_POINTWISE

}  // namespace hearth
