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
struct Row {
  const char* name;
  Keeps keeps;
  bool widens;
};
constexpr Row rows[] = {
#define HEARTH_POINTWISE_ROW(name, domain) {#name, functors::name::keeps, functors::name::widens},
    HEARTH_POINTWISE(HEARTH_POINTWISE_ROW)
#undef HEARTH_POINTWISE_ROW
};
constexpr const Row& row_of(kernels::Pointwise function) { return rows[static_cast<std::size_t>(function)]; }

Tensor forward_of(kernels::Pointwise function, SavedTensor& saved, const Tensor& x) {
  const Row& row = row_of(function);
  require_floating(row.name, "x", x);
  const Tensor dense = x.contiguous();
  Tensor y = Tensor::empty_like(dense);
  run_on(x.device(), [&](auto& stream) { kernels::pointwise(stream, function, dense, y); });
  if (is_recording() && row.keeps != Keeps::nothing) saved = row.keeps == Keeps::x ? dense : y;
  return y;
}

Tensor backward_of(kernels::Pointwise function, const SavedTensor& saved, Tensor dy, const NeedsGrad& needs) {
  if (!needs[0]) return {};
  const Tensor saved_tensor = row_of(function).keeps == Keeps::nothing ? Tensor() : saved.get();
  const bool in_place = dy.is_contiguous() && dy.sole_owner();
  const Tensor dense = in_place ? std::move(dy) : dy.contiguous();
  const Tensor dx = in_place ? dense : needs.make(0, dense.shape(), dense.dtype());
  run_on(dx.device(), [&](auto& stream) { kernels::pointwise_grad(stream, function, saved_tensor, dense, dx); });
  return dx;
}

template <kernels::Pointwise function>
struct PointwiseOp {
  static constexpr OpInfo info{.name = row_of(function).name,
                               .autocast = row_of(function).widens ? Autocast::f32 : Autocast::follow};
  struct Saved {
    SavedTensor tensor;
  };

  Tensor forward(Saved& saved, const Tensor& x) const { return forward_of(function, saved.tensor, x); }
  std::array<Tensor, 1> backward(const Saved& saved, Tensor dy, const NeedsGrad& needs) const {
    return {backward_of(function, saved.tensor, std::move(dy), needs)};
  }
};

}  // namespace

#define HEARTH_DEFINE_POINTWISE(name, domain) \
  Tensor name(const Tensor& x) { return record(PointwiseOp<kernels::Pointwise::name>{}, x); }
HEARTH_POINTWISE(HEARTH_DEFINE_POINTWISE)
#undef HEARTH_DEFINE_POINTWISE

}  // namespace hearth
