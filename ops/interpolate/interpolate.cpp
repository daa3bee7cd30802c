// SPDX-License-Identifier: Apache-2.0
#include "ops/interpolate/interpolate.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/argument.h"
#include "ops/interpolate/kernels.h"

namespace hearth {
namespace {

using kernels::Filter;
using kernels::ResampledAxis;
using kernels::Resampling;

struct AxisOptions {
  const char* name;
  std::int64_t in;
  std::optional<std::int64_t> size;
  std::optional<double> scale;
};

std::int64_t output_extent(const AxisOptions& axis) {
  if (axis.size) {
    HEARTH_CHECK(ShapeError, *axis.size >= 1, "interpolate: ", axis.name, " ", *axis.size,
                 " of the result; it must be at least 1");
    return *axis.size;
  }
  HEARTH_CHECK(ShapeError, std::isfinite(*axis.scale) && *axis.scale > 0, "interpolate: scale ", *axis.scale,
               " of the ", axis.name, "; it must be finite and above 0");
  const double extent = std::floor(static_cast<double>(axis.in) * *axis.scale);
  HEARTH_CHECK(ShapeError, extent >= 1 && extent < 9.0e18, "interpolate: ", axis.name, " ", axis.in, " scaled by ",
               *axis.scale, " is ", extent, " pixels; use a scale that leaves at least 1 and less than 2^63");
  return static_cast<std::int64_t>(extent);
}

ResampledAxis axis_of(const AxisOptions& given, const InterpolateOptions& options) {
  ResampledAxis axis{.in = given.in, .out = output_extent(given)};
  const auto in = static_cast<double>(axis.in), out = static_cast<double>(axis.out);
  const bool nearest = options.mode == Interpolation::nearest;
  axis.filter = nearest ? Filter::nearest : options.antialias ? Filter::triangle : Filter::linear;
  // The same size is the same image, whatever the scale.
  if (axis.in == axis.out) return axis;
  if (options.align_corners)
    axis.scale = axis.out > 1 ? (in - 1) / (out - 1) : 0;
  else
    axis.scale = given.scale ? 1 / *given.scale : in / out;
  if (nearest && !given.scale) axis.scale = static_cast<float>(in) / static_cast<float>(out);
  if (!options.align_corners) axis.shift = 0.5 * axis.scale - 0.5;
  return axis;
}

Resampling resampling_of(const Tensor& x, const InterpolateOptions& options) {
  require_floating("interpolate", "x", x);
  HEARTH_CHECK(ShapeError, x.rank() == 4, "interpolate: x ", x.shape(), " must be [N, H, W, C]");
  HEARTH_CHECK(UsageError, options.size.has_value() != options.scale.has_value(),
               "interpolate: ", options.size ? "both size and scale are" : "neither size nor scale is",
               " given; give one of them (x ", x.shape(), ")");
  const bool bilinear = options.mode == Interpolation::bilinear;
  HEARTH_CHECK(UsageError, bilinear || (!options.align_corners && !options.antialias),
               "interpolate: ", options.align_corners ? "align_corners" : "antialias",
               " with mode nearest; use mode bilinear");
  HEARTH_CHECK(ShapeError, x.dim(1) >= 1 && x.dim(2) >= 1, "interpolate: x ", x.shape(),
               " has no pixels; height and width must be at least 1");
  AxisOptions rows{"height", x.dim(1), {}, {}}, columns{"width", x.dim(2), {}, {}};
  if (options.size) rows.size = options.size->h, columns.size = options.size->w;
  if (options.scale) rows.scale = options.scale->h, columns.scale = options.scale->w;
  const Resampling r{axis_of(rows, options), axis_of(columns, options)};
  const char* const elements = "interpolate: elements of the result";
  checked_mul(checked_mul(r.rows.out, r.columns.out, elements), std::max<std::int64_t>(1, x.dim(0) * x.dim(3)),
              elements);
  return r;
}

struct Interpolate {
  static constexpr OpInfo info{.name = "interpolate"};
  struct Saved {
    Resampling resampling;
    Shape shape;
  };
  InterpolateOptions options;

  Tensor forward(Saved& saved, const Tensor& x_in) const {
    const Resampling r = resampling_of(x_in, options);
    const Tensor x = x_in.contiguous();
    const Tensor y = Tensor::empty({x.dim(0), r.rows.out, r.columns.out, x.dim(3)}, x.dtype(), x.device());
    run_on(x.device(), [&](auto& stream) {
      if (y.size() > 0) kernels::interpolate(stream, r, x, y);
    });
    saved = {r, x.shape()};
    return y;
  }

  std::array<Tensor, 1> backward(const Saved& saved, const Tensor& dy_in, const NeedsGrad& needs) const {
    const Tensor dy = dy_in.contiguous();
    const Tensor dx = needs.make(0, saved.shape, dy.dtype());
    run_on(dy.device(), [&](auto& stream) {
      if (dx.size() > 0) kernels::interpolate_grad(stream, saved.resampling, dy, dx);
    });
    return {dx};
  }
};

}  // namespace

Tensor interpolate(const Tensor& x, const InterpolateOptions& options) {
  require_defined("interpolate", "x", x);
  return record(Interpolate{options}, x);
}

}  // namespace hearth
