// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding.
#pragma once

#include <array>
#include <cstdint>

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"

namespace hearth {

struct RotaryOptions {
  double base = 10000.0;            ///< of the wavelengths, > 1
  std::int64_t first_position = 0;  ///< of row 0: the length of the cache when a model decodes token by token
  /// i32 [N, T, 2], as attention() takes them: positions begin anew in each segment. Absent: one segment.
  Tensor segments = {};
};

/// Rotates each pair of channels (d, d + D/2) of row t of a head by (first_position + t) base^(-2d/D), so that products
/// of queries and keys depend on the distance of their rows only.
///
/// x [N, T, H, D], any floating type, D even, at most 256; y has its shape and type. Angles are made in f64.
/// ShapeError, DTypeError, UsageError. Source: Su et al., "RoFormer" (2021), in the order of channels of GPT-NeoX and
/// Llama.
HEARTH_API Tensor rotary(const Tensor& x, const RotaryOptions& options = {});

/// The same for the queries and keys of qkv [N, T, 3 C], which self_attention takes; values stay as they are.
HEARTH_API Tensor rotary_of_qkv(const Tensor& qkv, std::int64_t heads, const RotaryOptions& options = {});

namespace kernels {

/// x as rows of `heads` heads of `width` channels, of which the first `rotated` are turned and the others copied.
struct RotaryArguments {
  std::int64_t samples = 0, rows = 0;  ///< N and T
  std::int64_t heads = 0, rotated = 0, width = 0;
  std::int64_t first_position = 0;
  double direction = 1.0;                  ///< -1 for the gradient
  const std::int32_t* segments = nullptr;  ///< [N, T, 2], or null
  std::array<double, 128> frequency{};     ///< radians a row of each pair
};

/// x and y contiguous; y may be x.
void rotary(cpu::Stream&, const RotaryArguments& arguments, const Tensor& x, const Tensor& y);
void rotary(cuda::Stream&, const RotaryArguments& arguments, const Tensor& x, const Tensor& y);

}  // namespace kernels
}  // namespace hearth
