// SPDX-License-Identifier: Apache-2.0
// Normalisation by arithmetic, which vectors do several times as fast as they look values up.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hearth::kernels {

/// v scale + shift for pixels v, as the sum of what floats hold exactly (v scale + shift, of few bits) and the rest.
/// Element i of a row of pixels takes the numbers of i % period, which is a multiple of 1, 2, 3, 4, 6, 8 and 12
/// channels.
struct PixelScale {
  static constexpr std::size_t period = 24;
  float scale[period], shift[period], scale_rest[period], shift_rest[period];
};

/// out[i] = (in[i] scale + shift) + (in[i] scale_rest + shift_rest). Large results are written around the caches.
void scale_pixels(const std::uint8_t* in, std::size_t count, const PixelScale& by, float* out);

}  // namespace hearth::kernels
