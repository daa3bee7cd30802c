// SPDX-License-Identifier: Apache-2.0
#include "ops/pool/pool.h"

#include <array>
#include <limits>

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/argument.h"
#include "ops/pool/kernels.h"

namespace hearth {
namespace {

using kernels::PoolShape;

struct Axis {
  const char* name;
  std::int64_t size, kernel, stride, padding;
};

std::int64_t output_extent(const std::string& op, const Axis& axis, const Shape& x) {
  HEARTH_CHECK(ShapeError, axis.kernel >= 1, op, ": window ", axis.kernel, " along ", axis.name,
               "; it must be at least 1");
  HEARTH_CHECK(ShapeError, axis.stride >= 1, op, ": stride ", axis.stride, " along ", axis.name,
               "; it must be at least 1");
  HEARTH_CHECK(ShapeError, axis.padding >= 0 && axis.padding <= axis.kernel / 2, op, ": padding ", axis.padding,
               " along ", axis.name, " for window ", axis.kernel, "; it must be 0 to ", axis.kernel / 2,
               ", half the window");
  HEARTH_CHECK(ShapeError, axis.size >= 1, op, ": x ", x, " has no pixels along ", axis.name);
  const std::string what = op + ": size of the padded image";
  const std::int64_t padded = checked_add(axis.size, checked_mul(axis.padding, 2, what.c_str()), what.c_str());
  HEARTH_CHECK(ShapeError, padded >= axis.kernel, op, ": window ", axis.kernel, " does not fit the padded ", axis.name,
               " of ", padded, " (x ", x, "); use a smaller window or more padding");
  return (padded - axis.kernel) / axis.stride + 1;
}

PoolShape shape_of(const char* op, const Tensor& x, const Pair& kernel, const std::optional<Pair>& stride,
                   const Pair& padding) {
  require_floating(op, "x", x);
  HEARTH_CHECK(ShapeError, x.rank() == 4, op, ": x ", x.shape(), " must be [N, H, W, C]");
  const Pair step = stride.value_or(kernel);
  PoolShape s{.n = x.dim(0), .h = x.dim(1), .w = x.dim(2), .c = x.dim(3)};
  s.p = output_extent(op, {"height", s.h, kernel.h, step.h, padding.h}, x.shape());
  s.q = output_extent(op, {"width", s.w, kernel.w, step.w, padding.w}, x.shape());
  s.kernel_h = kernel.h, s.kernel_w = kernel.w;
  s.stride_h = step.h, s.stride_w = step.w;
  s.pad_h = padding.h, s.pad_w = padding.w;
  return s;
}

struct MaxPool2d {
  static constexpr OpInfo info{.name = "max_pool2d"};
  struct Saved {
    Tensor taps;
    PoolShape shape;
  };
  MaxPool2dOptions options;

  Tensor forward(Saved& saved, const Tensor& x_in) const {
    const PoolShape s = detail::max_pool2d_shape(x_in, options);
    const std::int64_t window = checked_mul(s.kernel_h, s.kernel_w, "max_pool2d: size of the window");
    HEARTH_CHECK(ShapeError, window <= std::numeric_limits<std::int32_t>::max(), "max_pool2d: a window of ", window,
                 " pixels; at most 2^31 - 1 are taken");
    const Tensor x = x_in.contiguous();
    const Tensor y = Tensor::empty({s.n, s.p, s.q, s.c}, x.dtype(), x.device());
    if (is_recording()) {
      // A position in the window fits one byte for all usual windows.
      saved.taps = Tensor::empty(y.shape(), window <= 256 ? DType::u8 : DType::i32, x.device());
      saved.shape = s;
    }
    run_on(x.device(), [&](auto& stream) { kernels::max_pool2d(stream, s, x, y, saved.taps); });
    return y;
  }

  std::array<Tensor, 1> backward(const Saved& saved, const Tensor& dy_in, const NeedsGrad& needs) const {
    const PoolShape& s = saved.shape;
    const Tensor dy = dy_in.contiguous();
    const Tensor dx = needs.make(0, {s.n, s.h, s.w, s.c}, dy.dtype());
    run_on(dy.device(), [&](auto& stream) { kernels::max_pool2d_grad(stream, s, saved.taps, dy, dx); });
    return {dx};
  }
};

struct AvgPool2d {
  static constexpr OpInfo info{.name = "avg_pool2d"};
  struct Saved {
    PoolShape shape;
  };
  AvgPool2dOptions options;

  Tensor forward(Saved& saved, const Tensor& x_in) const {
    PoolShape s = shape_of("avg_pool2d", x_in, options.kernel, options.stride, options.padding);
    checked_mul(s.kernel_h, s.kernel_w, "avg_pool2d: size of the window");
    s.count_include_pad = options.count_include_pad;
    const Tensor x = x_in.contiguous();
    const Tensor y = Tensor::empty({s.n, s.p, s.q, s.c}, x.dtype(), x.device());
    run_on(x.device(), [&](auto& stream) { kernels::avg_pool2d(stream, s, x, y); });
    saved.shape = s;
    return y;
  }

  std::array<Tensor, 1> backward(const Saved& saved, const Tensor& dy_in, const NeedsGrad& needs) const {
    const PoolShape& s = saved.shape;
    const Tensor dy = dy_in.contiguous();
    const Tensor dx = needs.make(0, {s.n, s.h, s.w, s.c}, dy.dtype());
    run_on(dy.device(), [&](auto& stream) { kernels::avg_pool2d_grad(stream, s, dy, dx); });
    return {dx};
  }
};

struct GlobalAvgPool {
  static constexpr OpInfo info{.name = "global_avg_pool"};
  struct Saved {
    Shape shape;
  };

  Tensor forward(Saved& saved, const Tensor& x_in) const {
    require_floating("global_avg_pool", "x", x_in);
    HEARTH_CHECK(ShapeError, x_in.rank() == 4, "global_avg_pool: x ", x_in.shape(), " must be [N, H, W, C]");
    const std::int64_t pixels = checked_mul(x_in.dim(1), x_in.dim(2), "global_avg_pool: pixels");
    HEARTH_CHECK(ShapeError, pixels >= 1, "global_avg_pool: x ", x_in.shape(), " has no pixels to average");
    const Tensor x = x_in.contiguous();
    const Tensor y = Tensor::empty({x.dim(0), x.dim(3)}, x.dtype(), x.device());
    run_on(x.device(), [&](auto& stream) { kernels::mean_pixels(stream, pixels, x, y); });
    saved.shape = x.shape();
    return y;
  }

  std::array<Tensor, 1> backward(const Saved& saved, const Tensor& dy_in, const NeedsGrad& needs) const {
    const Tensor dy = dy_in.contiguous();
    const Tensor dx = needs.make(0, saved.shape, dy.dtype());
    run_on(dy.device(),
           [&](auto& stream) { kernels::mean_pixels_grad(stream, saved.shape[1] * saved.shape[2], dy, dx); });
    return {dx};
  }
};

}  // namespace

kernels::PoolShape detail::max_pool2d_shape(const Tensor& x, const MaxPool2dOptions& options) {
  return shape_of("max_pool2d", x, options.kernel, options.stride, options.padding);
}

Tensor max_pool2d(const Tensor& x, const MaxPool2dOptions& options) {
  require_defined("max_pool2d", "x", x);
  return record(MaxPool2d{options}, x);
}

Tensor avg_pool2d(const Tensor& x, const AvgPool2dOptions& options) {
  require_defined("avg_pool2d", "x", x);
  return record(AvgPool2d{options}, x);
}

Tensor global_avg_pool(const Tensor& x) {
  require_defined("global_avg_pool", "x", x);
  return record(GlobalAvgPool{}, x);
}

}  // namespace hearth
