// SPDX-License-Identifier: Apache-2.0
// An image at a time. In one ISA level for all processors: a fused multiply-add would give a mixture other bits than
// the loader's own (data/images/transforms/mixup.cpp).
#include "core/cpu/parallel.h"
#include "ops/image/padded_images.h"

namespace hearth::kernels {
namespace {

struct Operands {
  const PixelsShape& shape;
  const std::uint8_t* pixels;
  const float* values;
  const std::int32_t* erased;
  const float* lambda;  ///< and its box

  bool is_mixed(std::int64_t row, std::int64_t column) const {
    const auto within = [](std::int64_t at, float first, float count) {
      const float place = static_cast<float>(at) - first;
      return place >= 0 && place < count;
    };
    return within(row, lambda[1], lambda[3]) && within(column, lambda[2], lambda[4]);
  }
  /// Of an image, before it is mixed.
  float value(std::int64_t image, std::int64_t row, std::int64_t column, std::int64_t channel) const {
    if (erased != nullptr) {
      const std::int32_t* box = erased + 4 * image;
      if (row >= box[0] && row - box[0] < box[2] && column >= box[1] && column - box[1] < box[3]) return 0;
    }
    const std::int64_t pixel = (image * shape.h + row) * shape.w + column;
    return values[256 * channel + pixels[pixel * shape.c + channel]];
  }
};

template <class T>
void normalize_image(const Operands& o, std::int64_t image, T* y) {
  const PixelsShape& s = o.shape;
  const std::int64_t other = s.n - 1 - image;
  const bool mixes = o.lambda != nullptr && other != image;
  for (std::int64_t row = 0; row < s.h; ++row)
    for (std::int64_t column = 0; column < s.w; ++column, y += s.channel_capacity) {
      const bool mixed = mixes && o.is_mixed(row, column);
      for (std::int64_t c = 0; c < s.c; ++c) {
        float value = o.value(image, row, column, c);
        if (mixed) value = *o.lambda * value + (1.0f - *o.lambda) * o.value(other, row, column, c);
        y[c] = T(value);
      }
      for (std::int64_t c = s.c; c < s.channel_capacity; ++c) y[c] = T(0.0f);
    }
}

template <class T>
const T* data_of(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}

}  // namespace

void normalize_images(cpu::Stream&, const PixelsShape& s, const Tensor& pixels, const Tensor& values,
                      const Tensor& erased, const Tensor& lambda, const Tensor& y) {
  const Operands operands{s, pixels.data<std::uint8_t>(), values.data<float>(), data_of<std::int32_t>(erased),
                          data_of<float>(lambda)};
  visit_dtype("normalize_images", y.dtype(), Floats{}, [&]<class T>() {
    T* const result = y.data<T>();
    cpu::parallel_chunks(s.n, [&](std::int64_t image) {
      normalize_image(operands, image, result + image * s.h * s.w * s.channel_capacity);
    });
  });
}

}  // namespace hearth::kernels
