// SPDX-License-Identifier: Apache-2.0
// Losses that compare outputs and targets element by element. The list is elementwise_table.h.
#pragma once

#include <limits>

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"
#include "ops/loss/cross_entropy.h"
#include "ops/loss/elementwise_table.h"

namespace hearth {

/// For each of the losses below. They take x and target of one shape and floating type and give a scalar (or, for
/// Reduction::none, x's shape) in f32, f64 for f64 inputs. Sums are in f64; under autocast x and target are converted
/// to f32. UsageError, ShapeError (also for a mean over no elements), DTypeError or DeviceError for arguments that do
/// not fit.
struct LossOptions {
  /// What the loss of each element is multiplied by. Any floating type, of a shape that broadcasts to x's; absent: 1.
  /// Gets no gradient.
  Tensor weight = {};
  /// Elements with this target count neither in the loss nor in the mean. A value of x's type; NaN: all count.
  double ignore_target = std::numeric_limits<double>::quiet_NaN();
  /// The mean is over the elements that are not ignored, whatever their weights; 0, with gradient 0, if all are.
  Reduction reduction = Reduction::mean;
};

/// (x - target)^2. Both get gradients.
HEARTH_API Tensor mse(const Tensor& x, const Tensor& target, const LossOptions& options = {});

/// |x - target|, with slope 0 where both are equal. Both get gradients.
HEARTH_API Tensor l1_loss(const Tensor& x, const Tensor& target, const LossOptions& options = {});

/// d^2 / (2 beta) where d = |x - target| is below beta, else d - beta / 2. beta = 0 is l1_loss. Both get gradients.
/// UsageError for beta below 0.
HEARTH_API Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, double beta = 1.0,
                                 const LossOptions& options = {});

/// d^2 / 2 where d = |x - target| is below delta, else delta (d - delta / 2). Both get gradients. UsageError unless
/// delta is above 0.
HEARTH_API Tensor huber_loss(const Tensor& x, const Tensor& target, double delta = 1.0,
                             const LossOptions& options = {});

/// Binary cross entropy of the logits x: -(pos_weight target log s + (1 - target) log(1 - s)) with s = sigmoid(x),
/// without overflow for large logits. target holds probabilities, or is bool or an integer of 0 and 1, and gets no
/// gradient. pos_weight multiplies the part of positive targets: any floating type, of a shape that broadcasts to x's
/// (one number for each class: [C]); absent: 1; gets no gradient.
HEARTH_API Tensor bce_with_logits(const Tensor& x, const Tensor& target, const LossOptions& options = {},
                                  const Tensor& pos_weight = {});

struct FocalOptions {
  /// In [0, 1]: the weight of positive targets, 1 - alpha that of negative ones. Below 0: both weigh 1.
  double alpha = 0.25;
  /// >= 0: how much well-classified elements count less. 0: binary cross entropy.
  double gamma = 2.0;
};

/// Focal loss of the logits x: alpha_t (1 - p_t)^gamma bce, where p_t is the probability that sigmoid(x) gives the
/// target. target as for bce_with_logits. UsageError for alpha above 1 or gamma below 0.
/// Source: Lin et al., "Focal Loss for Dense Object Detection" (2017), equation 5.
HEARTH_API Tensor focal_loss(const Tensor& x, const Tensor& target, const FocalOptions& focal = {},
                             const LossOptions& options = {});

/// 1 - (2 sum(p t) + smooth) / (sum(p) + sum(t) + smooth), where the sums run over all axes but the first and the last:
/// the mean over samples and classes. probabilities [N, ..., C] with at least one axis between, target of the same
/// shape and type (one_hot, or masks). Both get gradients. UsageError for smooth below 0, ShapeError, DTypeError.
/// Source: Milletari et al., "V-Net" (2016), with the denominator of plain sums.
HEARTH_API Tensor dice_loss(const Tensor& probabilities, const Tensor& target, double smooth = 1.0);

namespace kernels {

/// What a loss is computed from. x and target are contiguous, of one shape and floating type. The weights are
/// contiguous, of the type of the result, or absent: element i is multiplied by weight[i % weight.size()].
struct ElementLossInputs {
  Tensor x, target, weight, pos_weight;
  double a = 0, b = 0;
  double ignored = std::numeric_limits<double>::quiet_NaN();
};

/// The loss of each element, in x's shape and the type of the result.
void element_losses(cpu::Stream&, ElementLoss, const ElementLossInputs&, const Tensor& losses);
void element_losses(cuda::Stream&, ElementLoss, const ElementLossInputs&, const Tensor& losses);

/// `result`, one element, the sum or the mean over the elements that count; `scale`, f64 [1], what each element's loss
/// is multiplied by in it.
void element_loss_total(cpu::Stream&, ElementLoss, const ElementLossInputs&, bool mean, const Tensor& result,
                        const Tensor& scale);
void element_loss_total(cuda::Stream&, ElementLoss, const ElementLossInputs&, bool mean, const Tensor& result,
                        const Tensor& scale);

/// dx = factor scale dy df/dx. dy has the type of the result and one element, or one for each of x; an absent scale
/// is 1.
void element_loss_grad(cpu::Stream&, ElementLoss, const ElementLossInputs&, double factor, const Tensor& scale,
                       const Tensor& dy, const Tensor& dx);
void element_loss_grad(cuda::Stream&, ElementLoss, const ElementLossInputs&, double factor, const Tensor& scale,
                       const Tensor& dy, const Tensor& dx);

}  // namespace kernels
}  // namespace hearth
