// SPDX-License-Identifier: Apache-2.0
#include "ops/image/normalize_images.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>

#include "autograd/record.h"
#include "core/profiler.h"
#include "core/run_on.h"
#include "ops/argument.h"
#include "ops/image/padded_images.h"

namespace hearth {
namespace {

constexpr const char* normalize_op = "normalize_images";
constexpr std::int64_t pixel_values = 256;

void check_operand(const char* name, const Tensor& tensor, DType dtype, const Shape& shape, const Tensor& pixels) {
  HEARTH_CHECK(DTypeError, tensor.dtype() == dtype, normalize_op, ": ", name, " is ", describe(tensor), "; it must be ",
               dtype);
  HEARTH_CHECK(ShapeError, tensor.shape() == shape, normalize_op, ": ", name, " ", tensor.shape(), " must be ", shape,
               " for pixels ", pixels.shape());
  HEARTH_CHECK(DeviceError, tensor.device() == pixels.device(), normalize_op, ": ", name, " is on ",
               name_of(tensor.device()), " but pixels are on ", name_of(pixels.device()), "; move one with to(device)");
}

kernels::PixelsShape checked_shape(const Tensor& pixels, const Tensor& values, const NormalizeImagesOptions& options,
                                   std::int64_t channel_capacity) {
  require_defined(normalize_op, "pixels", pixels);
  require_defined(normalize_op, "values", values);
  HEARTH_CHECK(DTypeError, pixels.dtype() == DType::u8, normalize_op, ": pixels are ", describe(pixels),
               "; they must be u8");
  HEARTH_CHECK(DTypeError, is_floating(options.dtype), normalize_op, ": a result of ", options.dtype,
               "; f32, f64, f16 and bf16 are possible");
  HEARTH_CHECK(ShapeError, pixels.rank() == 4, normalize_op, ": pixels ", pixels.shape(), " must be [N, H, W, C]");
  kernels::PixelsShape s{pixels.dim(0), pixels.dim(1), pixels.dim(2), pixels.dim(3),
                         channel_capacity == 0 ? pixels.dim(3) : channel_capacity};
  HEARTH_CHECK(ShapeError, s.channel_capacity >= s.c, normalize_op, ": pixels of room for ", channel_capacity,
               " channels; images ", pixels.shape(), " have more");
  check_operand("values", values, DType::f32, {s.c, pixel_values}, pixels);
  if (options.erased.defined()) check_operand("erased", options.erased, DType::i32, {s.n, 4}, pixels);
  if (options.lambda.defined()) check_operand("share", options.lambda, DType::f32, {5}, pixels);
  const char* elements = "normalize_images: elements of an image";
  const std::int64_t image = checked_mul(checked_mul(s.h, s.w, elements), s.channel_capacity, elements);
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  HEARTH_CHECK(ShapeError, image <= most && s.n <= most, normalize_op, ": ", s.n, " images of ", image,
               " elements (pixels ", pixels.shape(), "); there must be fewer than 2^31 of either");
  return s;
}

/// Owns a storage with padded pixels, in place of the one that was asked for: std::get_deleter tells such a one from
/// others for as long as it lives.
struct PaddedPixels {
  std::shared_ptr<Storage> storage;
  std::int64_t channels;  ///< from this one on each pixel holds zeros for good
  void operator()(Storage*) { storage.reset(); }
};

/// y [N, H, W, room] as images of these channels. The only way to the whole pixels ends here, so nobody can write where
/// the zeros are.
Tensor as_padded(const Tensor& y, std::int64_t channels) {
  const std::shared_ptr<Storage> marked(y.storage().get(), PaddedPixels{y.storage(), channels});
  return Tensor::view(marked, y.shape().with(3, channels), y.strides(), 0, y.dtype(), y.device());
}

}  // namespace

std::int64_t detail::pixel_capacity(DType dtype, std::int64_t channels, Device device) {
  if (!device.is_cuda() || size_of(dtype) != 2 || channels >= tensor_core_channels) return channels;
  return channels <= stem_channels ? stem_channels : tensor_core_channels;
}

bool detail::is_padded(const Tensor& x) {
  const auto* const pixels = std::get_deleter<PaddedPixels>(x.storage());
  if (pixels == nullptr || pixels->channels != x.dim(3) || x.is_contiguous()) return false;
  const Strides& strides = x.strides();
  const std::int64_t channel_capacity = strides[2];
  return strides[3] == 1 && channel_capacity > x.dim(3) && strides[1] == x.dim(2) * channel_capacity &&
         strides[0] == x.dim(1) * strides[1];
}

Tensor normalize_images(const Tensor& pixels, const Tensor& values, const NormalizeImagesOptions& options) {
  return detail::normalize_images(pixels, values, options, 0);
}

Tensor detail::normalize_images(const Tensor& pixels, const Tensor& values, const NormalizeImagesOptions& options,
                                std::int64_t channel_capacity) {
  const kernels::PixelsShape s = checked_shape(pixels, values, options, channel_capacity);
  const profiler::Scope scope(normalize_op);
  const OriginScope origin = OriginScope::of_op(normalize_op);
  const Tensor y = Tensor::empty({s.n, s.h, s.w, s.channel_capacity}, options.dtype, pixels.device());
  if (pixels.size() > 0) {
    const auto dense = [](const Tensor& tensor) { return tensor.defined() ? tensor.contiguous() : tensor; };
    run_on(pixels.device(), [&](auto& stream) {
      kernels::normalize_images(stream, s, pixels.contiguous(), values.contiguous(), dense(options.erased),
                                dense(options.lambda), y);
    });
  }
  // It is not recorded, as pixels have no gradient, but an op all the same.
  observe({.name = normalize_op, .autocast = Autocast::as_is}, std::array{pixels, values}, y);
  return s.channel_capacity == s.c ? y : as_padded(y, s.c);
}

}  // namespace hearth
