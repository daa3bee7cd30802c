// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/rotary.h"

#include <cmath>

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/argument.h"

namespace hearth {
namespace {

struct Rotary {
  static constexpr OpInfo info{.name = "rotary"};
  struct Saved {
    SavedTensor segments;
  };
  kernels::RotaryArguments arguments;

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& segments_in) const {
    const Tensor segments = segments_in.defined() ? segments_in.contiguous() : Tensor();
    const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
    if (x.size() > 0)
      run_on(x.device(),
             [&](auto& stream) { kernels::rotary(stream, with(arguments, segments, 1.0), x.contiguous(), y); });
    if (is_recording()) saved.segments = segments;
    return y;
  }

  std::array<Tensor, 2> backward(const Saved& saved, Tensor dy, const NeedsGrad& needs) const {
    const bool in_place = dy.is_contiguous() && dy.sole_owner();
    const Tensor dense = in_place ? std::move(dy) : dy.contiguous();
    const Tensor dx = in_place ? dense : needs.make(0, dense.shape(), dense.dtype());
    const Tensor& segments = saved.segments.get();
    if (dx.size() > 0)
      run_on(dx.device(), [&](auto& stream) { kernels::rotary(stream, with(arguments, segments, -1.0), dense, dx); });
    return {dx, {}};
  }

  static kernels::RotaryArguments with(kernels::RotaryArguments arguments, const Tensor& segments, double direction) {
    arguments.direction = direction;
    if (segments.defined()) arguments.segments = segments.data<std::int32_t>();
    return arguments;
  }
};

Tensor run(const char* op, const Tensor& x, std::int64_t heads, std::int64_t rotated, std::int64_t width,
           const RotaryOptions& options) {
  kernels::RotaryArguments a{x.dim(0), x.dim(1), heads, rotated, width, options.first_position, 1.0, nullptr, {}};
  const auto most = static_cast<std::int64_t>(2 * a.frequency.size());
  HEARTH_CHECK(ShapeError, width >= 2 && width % 2 == 0 && width <= most, op, ": heads of ", width, " channels (x ",
               x.shape(), "); their number must be even and from 2 to ", most);
  HEARTH_CHECK(UsageError, std::isfinite(options.base) && options.base > 1, op, ": the base is ", options.base,
               "; it must be finite and above 1");
  HEARTH_CHECK(UsageError, options.first_position >= 0, op, ": first_position is ", options.first_position,
               "; it must be at least 0");
  (void)checked_add(options.first_position, a.rows, op);
  if (const Tensor& segments = options.segments; segments.defined()) {
    detail::check_devices(op, std::array{x, segments});
    HEARTH_CHECK(DTypeError, segments.dtype() == DType::i32, op, ": segments is ", describe(segments),
                 "; it must be i32");
    HEARTH_CHECK(ShapeError, segments.rank() == 3 && segments.shape() == (Shape{a.samples, a.rows, 2}), op,
                 ": segments is ", segments.shape(), " for x ", x.shape(), "; it must be ",
                 Shape{a.samples, a.rows, 2});
  }
  for (std::int64_t d = 0; d < width / 2; ++d)
    a.frequency[static_cast<std::size_t>(d)] =
        std::pow(options.base, -2.0 * static_cast<double>(d) / static_cast<double>(width));
  return record(Rotary{a}, x, options.segments);
}

}  // namespace

Tensor rotary(const Tensor& x, const RotaryOptions& options) {
  const char* const op = "rotary";
  require_floating(op, "x", x);
  HEARTH_CHECK(ShapeError, x.rank() == 4, op, ": x is ", x.shape(), "; it must be [N, T, H, D]");
  return run(op, x, x.dim(2), x.dim(2), x.dim(3), options);
}

Tensor rotary_of_qkv(const Tensor& qkv, std::int64_t heads, const RotaryOptions& options) {
  const char* const op = "rotary_of_qkv";
  require_floating(op, "qkv", qkv);
  HEARTH_CHECK(ShapeError, qkv.rank() == 3, op, ": qkv is ", qkv.shape(), "; it must be [N, T, 3 C]");
  HEARTH_CHECK(UsageError, heads >= 1, op, ": ", heads, " heads; there must be at least one");
  const std::int64_t channels = qkv.dim(2);
  HEARTH_CHECK(ShapeError, channels % 3 == 0 && channels / 3 % heads == 0, op, ": the ", channels, " channels of qkv ",
               qkv.shape(), " do not divide into 3 times ", heads, " heads");
  return run(op, qkv, 3 * heads, 2 * heads, channels / 3 / heads, options);
}

}  // namespace hearth
