// SPDX-License-Identifier: Apache-2.0
// What stands between the parts of a Transformer: residual, dropout and layer normalisation in one pass.
#pragma once

#include "core/random.h"
#include "ops/norm/layer_norm.h"

namespace hearth {

struct AddLayerNormOptions {
  double dropout = 0;  ///< of f; in [0, 1), 0 outside of training
  double eps = 1e-5;
  double drop_path = 0;  ///< of f's samples, f [N, ..., C]; in [0, 1), 0 outside of training
  /// y in the low-precision type of autocast, as in layer_norm(), where f has it.
  bool low_precision = false;
};

/// A sum and what it is after layer_norm().
struct SumAndNorm {
  Tensor sum, y;
};

/// sum = x + drop_path(dropout(f)), y = layer_norm(sum): what dropout(f, p, true), add_drop_path(x, ..., p, true) and
/// layer_norm() give, with the same draws and, in f32 and f64, to the bit; low-precision types are rounded less often.
/// One kernel, and one more for both gradients but that of the parameters.
///
/// x, f [..., C] of one shape and floating type; or x f32 and f f16 or bf16. sum and y have x's shape and type, but for
/// options.low_precision. gamma and beta as in layer_norm(). UsageError, ShapeError, DTypeError or DeviceError for
/// arguments that do not fit.
HEARTH_API SumAndNorm add_layer_norm(const Tensor& x, const Tensor& f, const Tensor& gamma, const Tensor& beta,
                                     const AddLayerNormOptions& options = {});

namespace kernels {

/// What is added: f, of whose elements dropout with probability p drops what `key` says, and of whose samples drop_path
/// with probability `path` drops what `path_key` says. 0: nothing, and no draws are made.
struct ResidualDropout {
  RandomKey key;
  double p = 0;
  RandomKey path_key = {};
  double path = 0;
};

/// All contiguous.
void add_layer_norm(cpu::Stream&, const Tensor& x, const Tensor& f, const ResidualDropout& dropout, const Tensor& sum,
                    const Normalized& o);
void add_layer_norm(cuda::Stream&, const Tensor& x, const Tensor& f, const ResidualDropout& dropout, const Tensor& sum,
                    const Normalized& o);

/// d_sum = `others` (absent: 0) + the gradient of layer_norm for dy, df = dropout(drop_path(d_sum)) in f's type, or
/// absent. d_sum may be `others`, or dy of its type.
void add_layer_norm_grad(cpu::Stream&, const Tensor& sum, const NormGradient& g, const ResidualDropout& dropout,
                         const Tensor& others, const Tensor& d_sum, const Tensor& df);
void add_layer_norm_grad(cuda::Stream&, const Tensor& sum, const NormGradient& g, const ResidualDropout& dropout,
                         const Tensor& others, const Tensor& d_sum, const Tensor& df);

}  // namespace kernels
}  // namespace hearth
