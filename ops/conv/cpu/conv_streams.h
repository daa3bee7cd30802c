// SPDX-License-Identifier: Apache-2.0
// The convolution of bf16 images on the processor's matrix tiles, without unfolding the images. For conv2d_amx.cpp.
#pragma once

#include <cstdint>
#include <string>

#include "core/half.h"
#include "ops/conv/cpu/conv2d_cpu.h"

namespace hearth::kernels {

/// The images that a forward pass or a filter gradient reads, [n, h, w, c], as streams see them. Where c is no multiple
/// of 32, as in a first layer, each result has a pixel of its own that holds what a row of its filter reads, side by
/// side (folded): the filter then has one column, and the image as many as the result.
class StreamImages {
 public:
  StreamImages(const ConvShape& shape, const bf16* data);

  /// Why they cannot be seen so, or empty.
  static std::string unsupported(const ConvShape& shape);

  bool is_folded() const { return folded_; }
  /// Values of a tap.
  std::int64_t depth() const { return depth_; }
  /// The same in 32s, zeros last: what a pixel has.
  std::int64_t channels() const { return shape_.c; }
  /// The convolution of such images.
  const ConvShape& shape() const { return shape_; }
  /// A pixel that is stored as it is seen; null outside of the image.
  const bf16* at(std::int64_t image, std::int64_t y, std::int64_t x) const {
    if (y < 0 || y >= shape_.h || x < 0 || x >= shape_.w) return nullptr;
    return data_ + ((image * shape_.h + y) * shape_.w + x) * shape_.c;
  }
  /// Copies a pixel; zeros stand for what is outside of the image.
  void copy(std::int64_t image, std::int64_t y, std::int64_t x, bf16* to) const;

 private:
  void fold(std::int64_t image, std::int64_t y, std::int64_t x, bf16* to) const;

  ConvShape stored_, shape_;
  const bf16* data_;
  std::int64_t depth_;
  bool folded_;
};

/// y or dx of images in bf16, without groups: y of images that StreamImages supports, dx with filters in 32s. The same
/// bits for any thread pool.
void convolve_on_tiles(const ConvProblem& problem, const Conv2dOperands& operands);

/// dw, in f32 or bf16, of images that StreamImages supports, without groups. The same bits for any thread pool.
template <class W>
void filter_gradient_on_tiles(const ConvShape& shape, const bf16* x, const bf16* dy, W* dw);

}  // namespace hearth::kernels
