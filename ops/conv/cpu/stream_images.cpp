// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/error.h"
#include "ops/conv/cpu/conv_streams.h"

namespace hearth::kernels {

StreamImages::StreamImages(const ConvShape& shape, const bf16* data)
    : stored_(shape), shape_(shape), data_(data), depth_(shape.c), folded_(shape.c % 32 != 0) {
  if (!folded_) return;
  depth_ = shape.s * shape.c;
  shape_.c = (depth_ + 31) / 32 * 32;
  shape_.w = shape.q;
  shape_.s = shape_.stride_w = 1;
  shape_.pad_w = 0;
}

std::string StreamImages::unsupported(const ConvShape& shape) {
  if (shape.c % 32 == 0 || shape.dilation_w == 1) return "";
  return join_text(shape.c, " channels side by side, not a multiple of 32, in taps ", shape.dilation_w, " apart");
}

void StreamImages::copy(std::int64_t image, std::int64_t y, std::int64_t x, bf16* to) const {
  if (folded_) return fold(image, y, x, to);
  if (const bf16* const pixel = at(image, y, x))
    std::copy_n(pixel, shape_.c, to);
  else
    std::fill_n(to, shape_.c, bf16());
}

void StreamImages::fold(std::int64_t image, std::int64_t y, std::int64_t x, bf16* to) const {
  const ConvShape& s = stored_;
  const std::int64_t first = x * s.stride_w - s.pad_w;
  const std::int64_t begin = std::clamp<std::int64_t>(first, 0, s.w);
  const std::int64_t end = y < 0 || y >= s.h ? begin : std::clamp<std::int64_t>(first + s.s, begin, s.w);
  bf16* at = std::fill_n(to, begin == end ? 0 : (begin - first) * s.c, bf16());
  at = std::copy_n(data_ + ((image * s.h + y) * s.w + begin) * s.c, (end - begin) * s.c, at);
  std::fill(at, to + shape_.c, bf16());
}

}  // namespace hearth::kernels
