// SPDX-License-Identifier: Apache-2.0
#include "hearth/ops/loss/loss_sum.h"

#include "hearth/core/run_on.h"

namespace hearth {

void add_loss(const Tensor& sum, const Tensor& loss, double weight) {
  HEARTH_CHECK(UsageError, sum.defined() && loss.defined(), "add_loss: sum or loss is absent");
  HEARTH_CHECK(DTypeError, sum.dtype() == DType::f64 && is_floating(loss.dtype()), "add_loss: the sum is ",
               describe(sum), ", the loss ", describe(loss), "; they are f64 and floating");
  HEARTH_CHECK(ShapeError, sum.size() == 1 && loss.size() == 1, "add_loss: the sum is ", describe(sum), ", the loss ",
               describe(loss), "; both have one element");
  HEARTH_CHECK(DeviceError, sum.device() == loss.device(), "add_loss: the sum is on ", sum.device(), ", the loss on ",
               loss.device(), "; move one with to(device)");
  run_on(sum.device(), [&](auto& stream) { kernels::add_loss(stream, sum, loss, weight); });
}

namespace kernels {

void add_loss(cpu::Stream&, const Tensor& sum, const Tensor& loss, double weight) {
  *sum.data<double>() += weight * loss.item();
}

}  // namespace kernels
}  // namespace hearth
