// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "optim/verdict.h"

namespace hearth::kernels {

void reach_verdict(cpu::Stream&, const Verdict& verdict) { decide(verdict); }

void scale_seed(cpu::Stream&, const double* scale, double share, const double* factor, const Tensor& dy) {
  dy.fill_(share * *scale * (factor == nullptr ? 1.0 : *factor));
}

void keep_or_restore(cpu::Stream&, const bool* skip, const Tensor& values, const Tensor& backup) {
  const Tensor& from = *skip ? backup : values;
  const Tensor& to = *skip ? values : backup;
  std::copy_n(from.data<float>(), from.size(), to.data<float>());
}

}  // namespace hearth::kernels
