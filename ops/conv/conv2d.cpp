// SPDX-License-Identifier: Apache-2.0
#include "ops/conv/conv2d.h"

#include <algorithm>

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/conv/conv2d_moments.h"
#include "ops/conv/kernels.h"
#include "ops/epilogue/epilogue.h"
#include "ops/epilogue/operands.h"

namespace hearth {
namespace {

/// Extent of the result along dimension `axis` of x and w, or ShapeError.
std::int64_t output_extent(const char* name, int axis, const Shape& x, const Shape& w, std::int64_t stride,
                           std::int64_t padding, std::int64_t dilation) {
  HEARTH_CHECK(ShapeError, stride >= 1, "conv2d: stride ", stride, " along ", name, "; it must be at least 1");
  HEARTH_CHECK(ShapeError, padding >= 0, "conv2d: padding ", padding, " along ", name, "; it must be at least 0");
  HEARTH_CHECK(ShapeError, dilation >= 1, "conv2d: dilation ", dilation, " along ", name, "; it must be at least 1");
  const std::int64_t extent = checked_add(checked_mul(dilation, w[axis] - 1, "conv2d: extent of the dilated filter"), 1,
                                          "conv2d: extent of the dilated filter");
  const std::int64_t padded = checked_add(x[axis], checked_mul(padding, 2, "conv2d: padding on both sides"),
                                          "conv2d: size of the padded image");
  HEARTH_CHECK(ShapeError, padded >= extent, "conv2d: the padded ", name, " of the image is ", padded,
               " but the dilated filter spans ", extent, " (x ", x, ", w ", w,
               "); use more padding or a smaller filter");
  return (padded - extent) / stride + 1;
}

struct Conv2d {
  static constexpr OpInfo info{.name = "conv2d", .autocast = Autocast::low_precision, .autocast_inputs = 1};
  struct Saved {
    SavedTensor x, w;
    SavedTensor reference;  ///< what the activation's slope needs
    ConvShape shape;
    DType weight_type = DType::f32, bias_type = DType::f32;
  };
  Conv2dOptions options;
  ChannelMoments* moments = nullptr;  ///< for forward, and gone afterwards

  Tensor forward(Saved& saved, const Tensor& x_in, const Tensor& w_in, const Tensor& b_in) const {
    const ConvShape shape = detail::conv2d_shape(x_in.shape(), w_in.shape(), b_in, options);
    detail::check_operand_types("conv2d", x_in, w_in, b_in);
    const Tensor x = run_on(x_in.device(), [&](auto& stream) { return kernels::readable_images(stream, shape, x_in); });
    const Tensor w = w_in.contiguous();
    const Tensor b = b_in.defined() ? b_in.contiguous() : b_in;
    const Tensor y = Tensor::empty({shape.n, shape.p, shape.q, shape.k}, x.dtype(), x.device());
    kernels::Conv2dEpilogue epilogue{options.activation, options.activation == Activation::none ? moments : nullptr};
    run_on(x.device(), [&](auto& stream) {
      if (y.size() == 0) return;
      if (x.size() > 0) return kernels::conv2d(stream, shape, Pass::forward, {x, w, b, y, &epilogue});
      // Nothing to sum over.
      if (b.defined())
        kernels::fill_rows(stream, b, y);
      else
        y.fill_(0);
    });
    if (is_recording()) {
      saved.shape = shape;
      saved.weight_type = w.dtype();
      if (b.defined()) saved.bias_type = b.dtype();
      if (needs_grad(w_in)) saved.x = x;
      if (needs_grad(x_in)) saved.w = w;
    }
    if (epilogue.activation == options.activation)
      return detail::activate_result(options.activation, y, saved.reference);
    if (is_recording()) saved.reference = y;
    return y;
  }

  std::array<Tensor, 3> backward(const Saved& saved, Tensor dy, const NeedsGrad& needs) const {
    const ConvShape& s = saved.shape;
    std::array<Tensor, 3> gradients;
    Tensor& dx = gradients[0];
    Tensor& dw = gradients[1];
    Tensor& db = gradients[2];
    if (needs[2]) db = needs.make(2, {s.k}, needs.type_for(2, saved.bias_type));
    const bool empty = dy.size() == 0 || s.n * s.h * s.w * s.c == 0;
    // The weight pass has dy in hand anyway and sums the bias gradient for nothing.
    const bool sum_with_weights = needs[2] && needs[1] && !empty && options.activation == Activation::none;
    dy = detail::grad_before_activation(options.activation, saved.reference, std::move(dy),
                                        sum_with_weights ? Tensor() : db);
    run_on(dy.device(), [&](auto& stream) {
      if (needs[1]) {
        dw = needs.make(1, {s.k, s.r, s.s, s.c / s.groups}, needs.type_for(1, saved.weight_type));
        if (empty)
          dw.fill_(0);
        else
          kernels::conv2d(stream, s, Pass::backward_weights, {saved.x.get(), dw, sum_with_weights ? db : Tensor(), dy});
      }
      if (needs[0]) {
        const Shape shape{s.n, s.h, s.w, s.c};
        const Tensor sum = empty ? Tensor() : needs.sum_so_far(0, shape, dy.dtype());
        dx = sum.defined() ? sum : needs.make(0, shape, dy.dtype());
        if (!empty)
          kernels::conv2d(stream, s, Pass::backward_data, {dx, saved.w.get(), Tensor(), dy, nullptr, sum.defined()});
      }
    });
    return gradients;
  }
};

}  // namespace

ConvShape detail::conv2d_shape(const Shape& x, const Shape& w, const Tensor& b, const Conv2dOptions& options) {
  HEARTH_CHECK(ShapeError, x.rank() == 4, "conv2d: x ", x, " must be [N, H, W, C]");
  HEARTH_CHECK(ShapeError, w.rank() == 4, "conv2d: w ", w, " must be [K, R, S, C/groups]");
  const std::int64_t groups = options.groups;
  HEARTH_CHECK(ShapeError, groups >= 1, "conv2d: ", groups, " groups; there must be at least 1");
  ConvShape s{.n = x[0], .h = x[1], .w = x[2], .c = x[3], .k = w[0], .r = w[1], .s = w[2]};
  HEARTH_CHECK(ShapeError, s.k >= 1 && s.r >= 1 && s.s >= 1, "conv2d: w ", w,
               " has no filters or empty ones; [K, R, S] must be at least 1 each");
  HEARTH_CHECK(ShapeError, s.c % groups == 0, "conv2d: ", s.c, " input channels do not divide into ", groups,
               " groups (x ", x, ")");
  HEARTH_CHECK(ShapeError, s.k % groups == 0, "conv2d: ", s.k, " filters do not divide into ", groups, " groups (w ", w,
               ")");
  HEARTH_CHECK(ShapeError, w[3] == s.c / groups, "conv2d: w ", w, " takes ", w[3], " channels a group but x ", x,
               " in ", groups, " groups has ", s.c / groups);
  HEARTH_CHECK(ShapeError, !b.defined() || (b.rank() == 1 && b.dim(0) == s.k), "conv2d: b ",
               b.defined() ? b.shape() : Shape{}, " must be [", s.k, "], one value for each filter of w ", w);
  s.groups = groups;
  s.stride_h = options.stride.h, s.stride_w = options.stride.w;
  s.pad_h = options.padding.h, s.pad_w = options.padding.w;
  s.dilation_h = options.dilation.h, s.dilation_w = options.dilation.w;
  s.p = output_extent("height", 1, x, w, s.stride_h, s.pad_h, s.dilation_h);
  s.q = output_extent("width", 2, x, w, s.stride_w, s.pad_w, s.dilation_w);
  const char* elements = "conv2d: elements of the result";
  checked_mul(checked_mul(checked_mul(s.p, s.q, elements), s.k, elements), std::max<std::int64_t>(s.n, 1), elements);
  return s;
}

Tensor detail::conv2d(const Tensor& x, const Tensor& w, const Tensor& b, const Conv2dOptions& options,
                      ChannelMoments* moments) {
  HEARTH_CHECK(UsageError, x.defined() && w.defined(), "conv2d: x and w are needed; found x ", describe(x), " and w ",
               describe(w));
  if (moments != nullptr) *moments = {};
  return record(Conv2d{options, moments}, x, w, b);
}

Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& b, const Conv2dOptions& options) {
  return detail::conv2d(x, w, b, options, nullptr);
}

Tensor conv2d(const Tensor& x, const Tensor& w, const Conv2dOptions& options) {
  return conv2d(x, w, Tensor(), options);
}

}  // namespace hearth
