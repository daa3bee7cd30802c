// SPDX-License-Identifier: Apache-2.0
// Initial values of parameters. Every draw is counter-based: element blocks of one parameter have their own streams.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "core/random.h"
#include "core/tensor.h"

namespace hearth::nn {

/// The randomness of one parameter, from the run's seed and the parameter's name.
class HEARTH_API InitStream {
 public:
  InitStream(std::uint64_t seed, std::string_view name);
  /// The stream of the index-th block of elements.
  Random block(std::uint32_t index) const { return Random(seed_, name_hash_, index); }

 private:
  std::uint64_t seed_;
  std::uint64_t name_hash_;
};

/// Writes initial values into a contiguous f32 or f64 tensor. f32 values are the f64 values rounded.
using Init = std::function<void(const Tensor& tensor, const InitStream& stream)>;

namespace init {

/// Inputs of one output element, and outputs that one input element reaches: [O, I] or [K, R, S, C]. ShapeError
/// for other ranks.
struct Fans {
  std::int64_t in;
  std::int64_t out;
};
HEARTH_API Fans fans_of(const Shape& shape);

HEARTH_API Init constant(double value);
inline Init zeros() { return constant(0.0); }
inline Init ones() { return constant(1.0); }
/// Uniform in [-bound, bound).
HEARTH_API Init uniform(double bound);
HEARTH_API Init normal(double deviation);
/// Normal, redrawn until within two deviations, which makes the deviation 0.88 of what is given. PyTorch's
/// trunc_normal_ cuts at values, by default -2 and 2, whatever the deviation.
HEARTH_API Init trunc_normal(double deviation);
/// Normal of deviation sqrt(2 / fan out): what residual networks start from (He et al. 2015, arXiv:1502.01852).
HEARTH_API Init kaiming_normal_fan_out();
/// Uniform within 1 / sqrt(fan in): PyTorch's default for linear layers and convolutions.
HEARTH_API Init kaiming_uniform();
/// Glorot and Bengio 2010: uniform within gain * sqrt(6 / (fan in + fan out)).
HEARTH_API Init xavier_uniform(double gain = 1.0);
/// Normal of deviation gain * sqrt(2 / (fan in + fan out)).
HEARTH_API Init xavier_normal(double gain = 1.0);
/// gain times a matrix [O, everything else] with orthonormal rows or columns (Saxe et al. 2013, arXiv:1312.6120).
HEARTH_API Init orthogonal(double gain = 1.0);

}  // namespace init
}  // namespace hearth::nn
