// SPDX-License-Identifier: Apache-2.0
#include "ops/loss/elementwise.h"

#include <array>
#include <cmath>

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/argument.h"
#include "ops/loss/elementwise_functors.h"
#include "ops/pointwise/cast.h"
#include "ops/pointwise/operators.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/view.h"

namespace hearth {
namespace {

using kernels::ElementLoss;

struct LossRow {
  const char* name;
  bool of_difference;
};
constexpr LossRow loss_rows[] = {
#define HEARTH_LOSS_ROW(name) {#name, loss_functors::name::of_difference},
    HEARTH_ELEMENT_LOSSES(HEARTH_LOSS_ROW)
#undef HEARTH_LOSS_ROW
};
constexpr const LossRow& row_of(ElementLoss loss) { return loss_rows[static_cast<std::size_t>(loss)]; }

/// Element i of x has the weight at i % size of the result: `weight` itself where it repeats along leading axes only,
/// else repeated to x's shape.
Tensor periodic(const Tensor& weight, const Shape& shape, DType dtype) {
  if (!weight.defined()) return {};
  const Tensor own = weight.dtype() == dtype ? weight.detach() : weight.to(dtype);
  int lead = 0;
  while (lead < own.rank() && own.shape()[lead] == 1) ++lead;
  bool is_suffix = true;
  for (int axis = lead; axis < own.rank(); ++axis)
    is_suffix = is_suffix && own.shape()[axis] == shape[axis + shape.rank() - own.rank()];
  return is_suffix ? own.contiguous() : expand(own, shape).contiguous();
}

void require_weight(const char* op, const char* name, const Tensor& weight, const Tensor& x) {
  if (!weight.defined()) return;
  require_floating(op, name, weight);
  HEARTH_CHECK(DeviceError, weight.device() == x.device(), op, ": x is on ", name_of(x.device()), " but ", name,
               " is on ", name_of(weight.device()), "; move one with to(device)");
  const int lead = x.rank() - weight.rank();
  bool fits = lead >= 0;
  for (int axis = 0; fits && axis < weight.rank(); ++axis)
    fits = weight.shape()[axis] == 1 || weight.shape()[axis] == x.shape()[axis + lead];
  HEARTH_CHECK(ShapeError, fits, op, ": ", name, " ", weight.shape(), " does not broadcast to x ", x.shape(),
               "; aligned at the last axis, each of its extents must be x's or 1");
}

template <ElementLoss loss>
struct ElementLossOp {
  static constexpr OpInfo info{.name = row_of(loss).name, .autocast = Autocast::f32};
  struct Saved {
    SavedTensor x, target, weight, pos_weight, scale;
  };
  double a, b;
  double ignored;
  Reduction reduction;
  Tensor weight, pos_weight;

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& target) const {
    const DType wide = kernels::loss_type(x.dtype());
    const kernels::ElementLossInputs in{x.contiguous(),
                                        target.contiguous(),
                                        periodic(weight, x.shape(), wide),
                                        periodic(pos_weight, x.shape(), wide),
                                        a,
                                        b,
                                        ignored};
    const bool each = reduction == Reduction::none;
    const Tensor y = Tensor::empty(each ? x.shape() : Shape{}, wide, x.device());
    const Tensor scale = each ? Tensor() : Tensor::empty({1}, DType::f64, x.device());
    run_on(x.device(), [&](auto& stream) {
      if (each)
        kernels::element_losses(stream, loss, in, y);
      else
        kernels::element_loss_total(stream, loss, in, reduction == Reduction::mean, y, scale);
    });
    if (is_recording()) {
      saved.x = in.x;
      saved.target = in.target;
      if (in.weight.defined()) saved.weight = in.weight;
      if (in.pos_weight.defined()) saved.pos_weight = in.pos_weight;
      if (scale.defined()) saved.scale = scale;
    }
    return y;
  }

  std::array<Tensor, 2> backward(const Saved& saved, Tensor dy, const NeedsGrad& needs) const {
    const auto get = [](const SavedTensor& tensor) { return tensor.defined() ? tensor.get() : Tensor(); };
    const kernels::ElementLossInputs in{
        saved.x.get(), saved.target.get(), get(saved.weight), get(saved.pos_weight), a, b, ignored};
    const Tensor arriving = dy.contiguous();
    std::array<Tensor, 2> gradients;
    for (const std::size_t input : {std::size_t{0}, std::size_t{1}}) {
      if (!needs[input] || (input == 1 && !row_of(loss).of_difference)) continue;
      gradients[input] = needs.make(input, in.x.shape(), in.x.dtype());
      run_on(in.x.device(), [&](auto& stream) {
        kernels::element_loss_grad(stream, loss, in, input == 0 ? 1.0 : -1.0, get(saved.scale), arriving,
                                   gradients[input]);
      });
    }
    return gradients;
  }
};

/// The checks that all of the losses begin with.
template <ElementLoss loss>
Tensor loss_of(const Tensor& x, const Tensor& target, const LossOptions& options, double a = 0, double b = 0,
               const Tensor& pos_weight = {}) {
  const char* const op = row_of(loss).name;
  HEARTH_CHECK(UsageError, x.defined() && target.defined(), op, ": x is ", describe(x), ", target is ",
               describe(target), "; both are needed");
  HEARTH_CHECK(ShapeError, x.shape() == target.shape(), op, ": x ", x.shape(), " and target ", target.shape(),
               " must have one shape");
  HEARTH_CHECK(ShapeError, x.size() > 0 || options.reduction != Reduction::mean, op, ": x ", x.shape(),
               " has no elements, so there is no mean");
  HEARTH_CHECK(DTypeError, is_floating(x.dtype()), op, ": x is ", describe(x), "; it must be f32, f64, f16 or bf16");
  require_weight(op, "weight", options.weight, x);
  require_weight(op, "pos_weight", pos_weight, x);
  const bool labels = !row_of(loss).of_difference && !is_floating(target.dtype());
  HEARTH_CHECK(DTypeError, is_floating(target.dtype()) || labels, op, ": x is ", describe(x), ", target is ",
               describe(target), "; they must be f32, f64, f16 or bf16");
  HEARTH_CHECK(DTypeError, labels || x.dtype() == target.dtype() || autocast_dtype(), op, ": x is ", x.dtype(),
               " but target is ", target.dtype(), "; cast one of them");
  const ElementLossOp<loss> function{a, b, options.ignore_target, options.reduction, options.weight, pos_weight};
  if (labels) return record(function, x, target.to(x.dtype()));
  return record(function, x, row_of(loss).of_difference ? target : target.detach());
}

}  // namespace

Tensor mse(const Tensor& x, const Tensor& target, const LossOptions& options) {
  return loss_of<ElementLoss::mse>(x, target, options);
}

Tensor l1_loss(const Tensor& x, const Tensor& target, const LossOptions& options) {
  return loss_of<ElementLoss::l1_loss>(x, target, options);
}

Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, double beta, const LossOptions& options) {
  HEARTH_CHECK(UsageError, beta >= 0 && std::isfinite(beta), "smooth_l1_loss: beta is ", beta,
               "; it must be a finite number of at least 0");
  if (beta == 0) return l1_loss(x, target, options);
  return loss_of<ElementLoss::smooth_l1_loss>(x, target, options, beta);
}

Tensor huber_loss(const Tensor& x, const Tensor& target, double delta, const LossOptions& options) {
  HEARTH_CHECK(UsageError, delta > 0 && std::isfinite(delta), "huber_loss: delta is ", delta,
               "; it must be a finite number above 0");
  return loss_of<ElementLoss::huber_loss>(x, target, options, delta);
}

Tensor bce_with_logits(const Tensor& x, const Tensor& target, const LossOptions& options, const Tensor& pos_weight) {
  return loss_of<ElementLoss::bce_with_logits>(x, target, options, 0, 0, pos_weight);
}

Tensor focal_loss(const Tensor& x, const Tensor& target, const FocalOptions& focal, const LossOptions& options) {
  HEARTH_CHECK(UsageError, focal.alpha <= 1, "focal_loss: alpha is ", focal.alpha,
               "; it must be at most 1 (below 0: no weights)");
  HEARTH_CHECK(UsageError, focal.gamma >= 0 && std::isfinite(focal.gamma), "focal_loss: gamma is ", focal.gamma,
               "; it must be a finite number of at least 0");
  return loss_of<ElementLoss::focal_loss>(x, target, options, focal.alpha, focal.gamma);
}

Tensor dice_loss(const Tensor& probabilities, const Tensor& target, double smooth) {
  require_floating("dice_loss", "probabilities", probabilities);
  require_floating("dice_loss", "target", target);
  HEARTH_CHECK(ShapeError, probabilities.rank() >= 3 && probabilities.size() > 0, "dice_loss: probabilities ",
               probabilities.shape(), " must be [N, ..., C] with at least one axis between, and have elements");
  HEARTH_CHECK(ShapeError, probabilities.shape() == target.shape(), "dice_loss: probabilities ", probabilities.shape(),
               " and target ", target.shape(), " must have one shape");
  HEARTH_CHECK(DTypeError, probabilities.dtype() == target.dtype() || autocast_dtype(), "dice_loss: probabilities are ",
               probabilities.dtype(), " but target is ", target.dtype(), "; cast one of them");
  HEARTH_CHECK(UsageError, smooth >= 0 && std::isfinite(smooth), "dice_loss: smooth is ", smooth,
               "; it must be a finite number of at least 0");
  // Sums over an image are beyond what the 16-bit types hold.
  const DType wide = kernels::loss_type(probabilities.dtype());
  const Tensor p = cast(probabilities, wide), t = cast(target, wide);
  std::vector<int> axes;
  for (int axis = 1; axis < p.rank() - 1; ++axis) axes.push_back(axis);
  const Tensor overlap = sum(p * t, axes) * 2.0 + smooth;
  const Tensor total = sum(p, axes) + sum(t, axes) + smooth;
  return 1.0 - mean(overlap / total);
}

}  // namespace hearth
