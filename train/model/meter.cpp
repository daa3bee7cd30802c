// SPDX-License-Identifier: Apache-2.0
#include "train/model/meter.h"

namespace hearth::train {

void Sums::read(Meter& meter) const {
  meter.loss_sum = loss.item();
  meter.correct = correct.to(Device{}).data<std::int64_t>()[0];
}

void Sums::write(const Meter& meter) const {
  loss.copy_from(Tensor::of<double>({1}, {meter.loss_sum}));
  correct.copy_from(Tensor::of<std::int64_t>({1}, {meter.correct}));
}

}  // namespace hearth::train
