// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "optim/found_inf.h"

namespace hearth::kernels {

void check_found_inf(cpu::Stream&, const FoundInfCheck& check) { decide(check); }

void scale_seed(cpu::Stream&, const double* scale, double weight, const double* factor, const Tensor& dy) {
  dy.fill_(weight * *scale * (factor == nullptr ? 1.0 : *factor));
}

void keep_or_restore(cpu::Stream&, const bool* skip, const Tensor& values, const Tensor& backup) {
  const Tensor& from = *skip ? backup : values;
  const Tensor& to = *skip ? values : backup;
  std::copy_n(from.data<float>(), from.size(), to.data<float>());
}

}  // namespace hearth::kernels
