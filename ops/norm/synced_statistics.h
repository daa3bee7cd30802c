// SPDX-License-Identifier: Apache-2.0
// Batch normalisation by the statistics of all ranks (synchronised batch normalisation). The numbers of a channel meet
// on the host.
#pragma once

#include "core/collective.h"
#include "ops/norm/batch_norm.h"

namespace hearth::kernels {

/// batch_norm_coefficients() for training, where x is the parts of all ranks of `group`, which all call it. Each part
/// may have another number of rows, or none. Gives the number of values a channel. ShapeError for fewer than two.
double synced_coefficients(Collective& group, const Tensor& x, const ChannelNorm& o);

/// The corrections of batch_norm_grad_sums() over all ranks, from this rank's gradients of gamma and beta.
void synced_corrections(Collective& group, double values, const Tensor& coefficients, const Tensor& rstd,
                        const Tensor& d_gamma, const Tensor& d_beta, const Tensor& corrections);

}  // namespace hearth::kernels
