// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/window_attention.h"

#include <array>

#include "core/run_on.h"
#include "ops/argument.h"
#include "ops/attention/operands.h"

namespace hearth {
namespace {

using namespace attention_operands;

constexpr const char* op_name = "window_attention";

struct WindowAttention {
  static constexpr OpInfo info{.name = op_name, .autocast = Autocast::low_precision, .autocast_inputs = 1};
  struct Saved {
    SavedTensor qkv, table, padding;
    DType table_dtype = DType::f32, padding_dtype = DType::f32;
  };
  kernels::WindowGrid grid;
  std::int64_t heads = 1;
  double dropout = 0.0;
  RandomKey key = {};

  kernels::WindowAttentionArguments arguments(const Tensor& qkv, const Tensor& table, const Tensor& padding) const {
    return {qkv, table, padding, grid, heads, dropout, key};
  }

  Tensor forward(Saved& saved, const Tensor& qkv_in, const Tensor& table_in, const Tensor& padding_in) const {
    const Tensor qkv = qkv_in.contiguous();
    const DType sums = sum_type(qkv.dtype());
    const Tensor table = in_type(table_in.contiguous(), sums);
    const Tensor padding = padding_in.defined() ? in_type(padding_in.contiguous(), sums) : Tensor();
    const auto given = arguments(qkv, table, padding);
    const Tensor y = Tensor::empty(qkv.shape().with(3, given.channels()), qkv.dtype(), qkv.device());
    if (y.size() > 0) run_on(y.device(), [&](auto& stream) { kernels::window_attention(stream, given, y); });
    if (is_recording()) {
      saved.qkv = qkv;
      saved.table = table;
      saved.table_dtype = table_in.dtype();
      saved.padding = padding;
      if (padding.defined()) saved.padding_dtype = padding_in.dtype();
    }
    return y;
  }

  std::array<Tensor, 3> backward(const Saved& saved, const Tensor& dy_in, const NeedsGrad& needs) const {
    const auto given = arguments(saved.qkv.get(), saved.table.get(), saved.padding.get());
    const Tensor &qkv = given.qkv, dy = dy_in.contiguous();
    kernels::WindowAttentionGradients into;
    into.dqkv = needs[0] ? needs.make(0, qkv.shape(), qkv.dtype()) : Tensor::empty_like(qkv);
    if (needs[1]) into.dtable = sums_for(1, given.table, saved.table_dtype, needs);
    if (given.padding.defined() && needs[2]) into.dpadding = sums_for(2, given.padding, saved.padding_dtype, needs);
    if (dy.size() == 0) {
      for (const Tensor& gradient : {into.dqkv, into.dtable, into.dpadding})
        if (gradient.defined()) gradient.fill_(0);
    } else {
      run_on(dy.device(), [&](auto& stream) { kernels::window_attention_grad(stream, given, dy, into); });
    }
    std::array<Tensor, 3> gradients;
    if (needs[0]) gradients[0] = into.dqkv;
    if (into.dtable.defined()) gradients[1] = in_type(into.dtable, needs.type_for(1, saved.table_dtype));
    if (into.dpadding.defined()) gradients[2] = in_type(into.dpadding, needs.type_for(2, saved.padding_dtype));
    return gradients;
  }
};

/// Of x's type, or f32 beside a narrower one.
void check_type(const char* name, const Tensor& x, const Tensor& qkv) {
  require_floating(op_name, name, x);
  HEARTH_CHECK(DTypeError, x.dtype() == qkv.dtype() || (x.dtype() == DType::f32 && qkv.dtype() != DType::f64), op_name,
               ": ", name, " is ", describe(x), " beside qkv of ", qkv.dtype(), "; give it that type, or f32");
}

void check_options(const Tensor& qkv, const WindowAttentionOptions& options) {
  HEARTH_CHECK(UsageError, options.heads >= 1, op_name, ": ", options.heads, " heads; there must be at least one");
  HEARTH_CHECK(UsageError, options.window >= 1 && options.window <= max_window, op_name, ": windows of ",
               options.window, " x ", options.window, " tokens; the side must be from 1 to ", max_window);
  HEARTH_CHECK(UsageError, options.shift >= 0 && options.shift < options.window, op_name, ": a shift of ",
               options.shift, " for windows of ", options.window, "; it must be at least 0 and below the window");
  require_probability(op_name, "the dropout", options.dropout);
  HEARTH_CHECK(ShapeError, qkv.rank() == 4, op_name, ": qkv is ", qkv.shape(), "; it must be [N, H, W, 3C]");
  const std::int64_t channels = qkv.dim(3);
  HEARTH_CHECK(ShapeError, channels % 3 == 0 && channels / 3 % options.heads == 0, op_name, ": the ", channels,
               " channels of qkv ", qkv.shape(), " do not divide into 3 times ", options.heads, " heads");
  const std::int64_t width = channels / 3 / options.heads;
  HEARTH_CHECK(ShapeError, width >= 1 && width <= max_window_head_width, op_name, ": heads of ", width,
               " channels; they must have from 1 to ", max_window_head_width, ": use more heads");
}

}  // namespace

Tensor window_attention(const Tensor& qkv_in, const Tensor& bias_table, const WindowAttentionOptions& options) {
  const Tensor qkv = narrowed(qkv_in);
  require_floating(op_name, "qkv", qkv);
  check_options(qkv, options);
  check_type("bias_table", bias_table, qkv);
  const kernels::WindowGrid grid(qkv.dim(1), qkv.dim(2), options.window, options.shift);
  const Shape expected{grid.entries(), options.heads};
  HEARTH_CHECK(ShapeError, bias_table.shape() == expected, op_name, ": bias_table is ", bias_table.shape(),
               " for windows of ", options.window, " and ", options.heads, " heads; it must be ", expected);
  if (options.padding.defined()) {
    check_type("padding", options.padding, qkv);
    // Here, because it is no input where the windows divide the image.
    detail::check_devices(op_name, std::array{qkv, options.padding});
    HEARTH_CHECK(ShapeError, options.padding.shape() == Shape{qkv.dim(3)}, op_name, ": padding is ",
                 options.padding.shape(), " beside qkv ", qkv.shape(), "; it must be ", Shape{qkv.dim(3)});
  }
  // The weights are never in memory, but each has a number.
  std::int64_t weights = checked_mul(qkv.dim(0), checked_mul(grid.down, grid.across, op_name), op_name);
  for (const std::int64_t factor : {options.heads, grid.tokens(), grid.tokens()})
    weights = checked_mul(weights, factor, op_name);
  WindowAttention attention{grid, options.heads, options.dropout, {}};
  if (options.dropout > 0) attention.key = next_random_key();
  // Where the windows divide the image there are no such positions, and so no gradient.
  const Tensor padding = grid.pads() ? wide_bias(options.padding) : Tensor();
  return record(attention, qkv, wide_bias(bias_table), padding);
}

}  // namespace hearth
