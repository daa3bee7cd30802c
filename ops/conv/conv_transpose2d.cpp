// SPDX-License-Identifier: Apache-2.0
// The passes of conv2d in other places: its data gradient makes y, its forward pass dx, and its filter gradient dw with
// dy as the images.
#include "ops/conv/conv_transpose2d.h"

#include <algorithm>
#include <array>

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/conv/kernels.h"
#include "ops/epilogue/epilogue.h"
#include "ops/epilogue/operands.h"

namespace hearth {
namespace {

struct Axis {
  const char* name;
  std::int64_t size, kernel, stride, padding, output_padding, dilation;
};

/// Extent of the result along an axis, or ShapeError.
std::int64_t output_extent(const Axis& a, const Tensor& x, const Tensor& w) {
  const char* const op = "conv_transpose2d";
  HEARTH_CHECK(ShapeError, a.stride >= 1, op, ": stride ", a.stride, " along ", a.name, "; it must be at least 1");
  HEARTH_CHECK(ShapeError, a.padding >= 0, op, ": padding ", a.padding, " along ", a.name, "; it must be at least 0");
  HEARTH_CHECK(ShapeError, a.dilation >= 1, op, ": dilation ", a.dilation, " along ", a.name,
               "; it must be at least 1");
  const std::int64_t step = std::max(a.stride, a.dilation);
  HEARTH_CHECK(ShapeError, a.output_padding >= 0 && a.output_padding < step, op, ": output padding ", a.output_padding,
               " along ", a.name, "; it must be 0 to ", step - 1, ", below the larger of stride ", a.stride,
               " and dilation ", a.dilation);
  HEARTH_CHECK(ShapeError, a.size >= 1, op, ": x ", x.shape(), " has no pixels along ", a.name);
  const char* const what = "conv_transpose2d: size of the result";
  const std::int64_t reach =
      checked_add(checked_mul(a.size - 1, a.stride, what), checked_mul(a.dilation, a.kernel - 1, what), what);
  const std::int64_t whole = checked_add(reach, checked_add(a.output_padding, 1, what), what);
  const std::int64_t extent = checked_add(whole, -checked_mul(a.padding, 2, what), what);
  HEARTH_CHECK(ShapeError, extent >= 1, op, ": the result has a ", a.name, " of ", extent, " (x ", x.shape(), ", w ",
               w.shape(), ", padding ", a.padding, "); use less padding or a larger filter");
  return extent;
}

/// Of the convolution from y to x whose data gradient this is, or ShapeError.
ConvShape shape_of(const Tensor& x, const Tensor& w, const Tensor& b, const ConvTranspose2dOptions& o) {
  const char* const op = "conv_transpose2d";
  HEARTH_CHECK(ShapeError, x.rank() == 4, op, ": x ", x.shape(), " must be [N, H, W, C]");
  HEARTH_CHECK(ShapeError, w.rank() == 4, op, ": w ", w.shape(), " must be [C, R, S, K/groups]");
  HEARTH_CHECK(ShapeError, w.dim(1) >= 1 && w.dim(2) >= 1 && w.dim(3) >= 1, op, ": w ", w.shape(),
               " is empty; [R, S, K/groups] must be at least 1 each");
  HEARTH_CHECK(ShapeError, o.groups >= 1, op, ": ", o.groups, " groups; there must be at least 1");
  HEARTH_CHECK(ShapeError, x.dim(3) == w.dim(0), op, ": w ", w.shape(), " takes ", w.dim(0), " channels but x ",
               x.shape(), " has ", x.dim(3));
  HEARTH_CHECK(ShapeError, x.dim(3) % o.groups == 0, op, ": ", x.dim(3), " input channels do not divide into ",
               o.groups, " groups (x ", x.shape(), ")");
  ConvShape s{.n = x.dim(0), .k = x.dim(3), .r = w.dim(1), .s = w.dim(2), .p = x.dim(1), .q = x.dim(2)};
  s.c = checked_mul(w.dim(3), o.groups, "conv_transpose2d: channels of the result");
  HEARTH_CHECK(ShapeError, !b.defined() || (b.rank() == 1 && b.dim(0) == s.c), op, ": b ",
               b.defined() ? b.shape() : Shape{}, " must be [", s.c, "], one value for each channel of the result (w ",
               w.shape(), " in ", o.groups, " groups)");
  s.groups = o.groups;
  s.stride_h = o.stride.h, s.stride_w = o.stride.w;
  s.pad_h = o.padding.h, s.pad_w = o.padding.w;
  s.dilation_h = o.dilation.h, s.dilation_w = o.dilation.w;
  s.h = output_extent({"height", s.p, s.r, o.stride.h, o.padding.h, o.output_padding.h, o.dilation.h}, x, w);
  s.w = output_extent({"width", s.q, s.s, o.stride.w, o.padding.w, o.output_padding.w, o.dilation.w}, x, w);
  const char* elements = "conv_transpose2d: elements of the result";
  checked_mul(checked_mul(checked_mul(s.h, s.w, elements), s.c, elements), std::max<std::int64_t>(s.n, 1), elements);
  return s;
}

struct ConvTranspose2d {
  static constexpr OpInfo info{.name = "conv_transpose2d", .autocast = Autocast::low_precision, .autocast_inputs = 1};
  struct Saved {
    SavedTensor x, w;
    ConvShape shape;
    DType weight_type = DType::f32, bias_type = DType::f32;
  };
  ConvTranspose2dOptions options;

  Tensor forward(Saved& saved, const Tensor& x_in, const Tensor& w_in, const Tensor& b_in) const {
    const ConvShape s = shape_of(x_in, w_in, b_in, options);
    detail::check_operand_types("conv_transpose2d", x_in, w_in, b_in);
    const Tensor x = x_in.contiguous(), w = w_in.contiguous();
    const Tensor b = b_in.defined() ? b_in.contiguous() : b_in;
    const Tensor y = Tensor::empty({s.n, s.h, s.w, s.c}, x.dtype(), x.device());
    run_on(x.device(), [&](auto& stream) {
      if (y.size() == 0) return;
      if (x.size() > 0)
        kernels::conv2d(stream, s, Pass::backward_data, {y, w, Tensor(), x});
      else
        y.fill_(0);
      if (b.defined()) kernels::add_bias(stream, b, y);
    });
    if (is_recording()) {
      saved.shape = s;
      saved.weight_type = w.dtype();
      if (b.defined()) saved.bias_type = b.dtype();
      if (needs_grad(w_in)) saved.x = x;
      if (needs_grad(x_in)) saved.w = w;
    }
    return y;
  }

  std::array<Tensor, 3> backward(const Saved& saved, const Tensor& dy_in, const NeedsGrad& needs) const {
    const ConvShape& s = saved.shape;
    std::array<Tensor, 3> gradients;
    auto& [dx, dw, db] = gradients;
    const bool empty = dy_in.size() == 0 || s.k == 0;
    run_on(dy_in.device(), [&](auto& stream) {
      if (needs[2]) {
        db = needs.make(2, {s.c}, needs.type_for(2, saved.bias_type));
        kernels::sum_rows(stream, dy_in.contiguous(), db);
      }
      const Tensor dy = empty ? dy_in : kernels::readable_images(stream, s, dy_in);
      if (needs[1]) {
        dw = needs.make(1, {s.k, s.r, s.s, s.c / s.groups}, needs.type_for(1, saved.weight_type));
        if (empty)
          dw.fill_(0);
        else
          kernels::conv2d(stream, s, Pass::backward_weights, {dy, dw, Tensor(), saved.x.get()});
      }
      if (needs[0]) {
        dx = needs.make(0, {s.n, s.p, s.q, s.k}, dy.dtype());
        if (!empty) kernels::conv2d(stream, s, Pass::forward, {dy, saved.w.get(), Tensor(), dx});
      }
    });
    return gradients;
  }
};

}  // namespace

Tensor conv_transpose2d(const Tensor& x, const Tensor& w, const Tensor& b, const ConvTranspose2dOptions& options) {
  HEARTH_CHECK(UsageError, x.defined() && w.defined(), "conv_transpose2d: x and w are needed; found x ", describe(x),
               " and w ", describe(w));
  return record(ConvTranspose2d{options}, x, w, b);
}

Tensor conv_transpose2d(const Tensor& x, const Tensor& w, const ConvTranspose2dOptions& options) {
  return conv_transpose2d(x, w, Tensor(), options);
}

}  // namespace hearth
