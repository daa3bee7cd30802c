// SPDX-License-Identifier: Apache-2.0
#include "ops/loss/linear_cross_entropy.h"

#include <algorithm>
#include <array>

#include "autograd/accumulate.h"
#include "autograd/grad_mode.h"
#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/argument.h"
#include "ops/epilogue/epilogue.h"
#include "ops/epilogue/operands.h"
#include "ops/matmul/product.h"

namespace hearth {
namespace {

// Probabilities of a large vocabulary are below what f16 has; this much larger they are not, and none overflows.
double gradient_scale(DType dtype) { return dtype == DType::f16 ? 1024.0 : 1.0; }

/// Rows [begin, begin + count) of a contiguous [rows] or [rows, C].
Tensor rows_of(const Tensor& x, std::int64_t begin, std::int64_t count) {
  const Shape shape = x.rank() == 1 ? Shape{count} : Shape{count, x.dim(1)};
  return Tensor::view(x.storage(), shape, contiguous_strides(shape), x.offset() + begin * shape.size() / count,
                      x.dtype(), x.device());
}

Tensor dense(const Tensor& x, DType dtype) { return x.dtype() == dtype ? x.contiguous() : x.to(dtype); }

/// x [rows] or [rows, C] in this type, with rows of zeros behind it.
Tensor padded(const Tensor& x, DType dtype, std::int64_t rows) {
  const std::int64_t own = x.dim(0);
  if (rows == own) return dense(x, dtype);
  const Tensor result = Tensor::empty(x.shape().with(0, rows), dtype, x.device());
  rows_of(result, 0, own).copy_from(x);
  rows_of(result, own, rows - own).fill_(0);
  return result;
}

struct LinearCrossEntropy {
  static constexpr OpInfo info{
      .name = "linear_cross_entropy", .autocast = Autocast::low_precision, .autocast_inputs = 1};
  LinearCrossEntropyOptions options;
  Tensor correct;
  DType weight_type;

  /// Gradients for a result whose gradient is gradient_scale() where every row counts for 1; in f32 or wider.
  struct Saved {
    Tensor dx, dw, db;
    Tensor row_weight;  ///< of a row in the result
    Shape x_shape;
    DType x_type = DType::f32, bias_type = DType::f32;
  };

  CrossEntropyOptions of_rows() const {
    return {.label_smoothing = options.label_smoothing,
            .ignore_index = options.ignore_index,
            .reduction = options.reduction};
  }

  Tensor forward(Saved& saved, const Tensor& x_in, const Tensor& w_in, const Tensor& b_in,
                 const Tensor& labels_in) const {
    detail::check_operand_types(info.name, x_in, w_in, b_in);
    const std::int64_t rows = detail::rows_of(x_in.shape()), classes = w_in.dim(0);
    const DType wide = kernels::loss_type(x_in.dtype());
    const Device device = x_in.device();
    const std::int64_t columns =
        run_on(device, [&](auto& stream) { return kernels::head_columns(stream, classes, x_in.dtype()); });
    // A wide weight is rounded once, not for every product.
    const Chunks all{x_in.contiguous().as_shape({rows, x_in.dim(-1)}), padded(w_in, x_in.dtype(), columns),
                     b_in.defined() ? padded(b_in, b_in.dtype(), columns) : b_in,
                     dense(labels_in, DType::i64).as_shape({rows}), classes};
    const Tensor losses = Tensor::empty({rows}, wide, device), result = Tensor::empty({}, wide, device);
    const Tensor row_weight = Tensor::empty({1}, DType::f64, device);
    if (is_recording()) {
      if (needs_grad(x_in)) saved.dx = Tensor::empty(all.x.shape(), wide, device);
      if (needs_grad(w_in)) saved.dw = Tensor::empty(all.w.shape(), wide, device);
      if (needs_grad(b_in)) saved.db = Tensor::empty(all.b.shape(), wide, device);
      if (b_in.defined()) saved.bias_type = b_in.dtype();
      saved.row_weight = row_weight;
      saved.x_shape = x_in.shape();
      saved.x_type = x_in.dtype();
    }
    run_on(device, [&](auto& stream) {
      kernels::require_class_labels(stream, info.name, all.labels, classes, options.ignore_index);
      run_chunks(stream, all, saved, losses);
      kernels::cross_entropy_total(stream, losses, all.labels, of_rows(), result, row_weight);
    });
    for (Tensor* const sum : {&saved.dw, &saved.db})
      if (sum->defined()) *sum = rows_of(*sum, 0, classes);
    return result;
  }

  /// w and b, and what is summed of their gradients, have a row for each of the logits' columns.
  struct Chunks {
    Tensor x, w, b, labels;
    std::int64_t classes;
  };

  template <class Stream>
  void run_chunks(Stream& stream, const Chunks& all, const Saved& saved, const Tensor& losses) const {
    const std::int64_t rows = all.x.dim(0), columns = all.w.dim(0), inputs = all.x.dim(1);
    const std::int64_t most = std::min(
        rows, options.chunk_rows > 0 ? options.chunk_rows
                                     : linear_cross_entropy_rows(all.x.device(), rows, all.classes, all.x.dtype()));
    checked_mul(most, columns, "linear_cross_entropy: logits of a chunk");
    const Tensor logits_of_chunk = Tensor::empty({most, columns}, all.x.dtype(), all.x.device());
    const Tensor counted = is_recomputing() ? Tensor() : correct;
    const double scale = saved.row_weight.defined() ? gradient_scale(all.x.dtype()) : 0.0;
    for (const Tensor& sum : {saved.dw, saved.db})
      if (rows == 0 && sum.defined()) sum.fill_(0);
    for (std::int64_t begin = 0; begin < rows; begin += most) {
      const std::int64_t count = std::min(most, rows - begin);
      const Tensor x = rows_of(all.x, begin, count), labels = rows_of(all.labels, begin, count);
      const Tensor logits = rows_of(logits_of_chunk, 0, count);
      kernels::product(stream, kernels::linear_candidates(stream),
                       {.m = count, .n = columns, .k = inputs, .transpose_b = true},
                       {.a = x, .b = all.w, .bias = all.b, .c = logits});
      // The logits' memory becomes that of their gradient.
      kernels::head_losses(stream, logits, all.classes, labels, of_rows(), scale, rows_of(losses, begin, count),
                           counted);
      if (saved.dx.defined())
        kernels::product(stream, kernels::linear_candidates(stream), {.m = count, .n = inputs, .k = columns},
                         {.a = logits, .b = all.w, .c = rows_of(saved.dx, begin, count)});
      if (saved.dw.defined())
        kernels::product(stream, kernels::linear_candidates(stream),
                         {.m = columns, .n = inputs, .k = count, .transpose_a = true, .accumulate = begin > 0},
                         {.a = logits, .b = x, .c = saved.dw});
      if (saved.db.defined()) add_sum_of_rows(stream, logits, saved.db, begin == 0);
    }
  }

  template <class Stream>
  static void add_sum_of_rows(Stream& stream, const Tensor& gradient, const Tensor& sum, bool first) {
    const Tensor of_chunk = first ? sum : Tensor::empty_like(sum);
    kernels::sum_rows(stream, gradient, of_chunk);
    if (!first) kernels::add_into(stream, sum, of_chunk);
  }

  std::array<Tensor, 4> backward(const Saved& saved, const Tensor& dy, const NeedsGrad& needs) const {
    std::array<Tensor, 4> gradients;
    const auto scale = [&](const Tensor& from, bool adds, const Tensor& into) {
      run_on(dy.device(), [&](auto& stream) {
        kernels::scale_gradient(stream, from, dy.contiguous(), saved.row_weight, 1.0 / gradient_scale(saved.x_type),
                                adds, into);
      });
      return into;
    };
    if (needs[0]) {
      const bool in_place = saved.dx.dtype() == saved.x_type;
      const Tensor dx = in_place ? saved.dx : needs.make(0, saved.dx.shape(), saved.x_type);
      gradients[0] = scale(saved.dx, false, dx).as_shape(saved.x_shape);
    }
    const auto of_parameter = [&](std::size_t input, const Tensor& from, DType own) {
      const DType type = needs.type_for(input, own);
      // On the CPU the tape adds, so that the bits there do not depend on it.
      const bool adds = !dy.device().is_cpu() && size_of(type) >= 4;
      const Tensor sum = adds ? needs.sum_so_far(input, from.shape(), type) : Tensor();
      return scale(from, sum.defined(), sum.defined() ? sum : needs.make(input, from.shape(), type));
    };
    if (needs[1]) gradients[1] = of_parameter(1, saved.dw, weight_type);
    if (needs[2]) gradients[2] = of_parameter(2, saved.db, saved.bias_type);
    return gradients;
  }
};

void check_arguments(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& labels,
                     const LinearCrossEntropyOptions& options, const Tensor& correct) {
  const char* const op = LinearCrossEntropy::info.name;
  require_floating(op, "x", x);
  require_floating(op, "w", w);
  require_index_type(op, "labels", labels);
  HEARTH_CHECK(ShapeError, x.rank() >= 1, op, ": x is a scalar; it needs a last axis of inputs");
  HEARTH_CHECK(ShapeError, w.rank() == 2 && w.dim(0) >= 1 && w.dim(1) == x.dim(-1), op, ": w ", w.shape(),
               " must be [classes, ", x.dim(-1), "] for x ", x.shape(), ", with at least one class");
  HEARTH_CHECK(ShapeError, !b.defined() || (b.rank() == 1 && b.dim(0) == w.dim(0)), op, ": b ",
               b.defined() ? b.shape() : Shape{}, " must be [", w.dim(0), "], one value for each class");
  const Shape leading(std::span(x.shape().begin(), static_cast<std::size_t>(x.rank() - 1)));
  HEARTH_CHECK(ShapeError, labels.shape() == leading, op, ": labels ", labels.shape(), " do not fit x ", x.shape(),
               "; they must be ", leading);
  HEARTH_CHECK(UsageError, options.label_smoothing >= 0.0 && options.label_smoothing <= 1.0, op,
               ": label_smoothing is ", options.label_smoothing, "; it must lie in [0, 1]");
  HEARTH_CHECK(UsageError, options.reduction != Reduction::none, op,
               ": gives one loss for all rows; take cross_entropy for the losses of rows");
  HEARTH_CHECK(UsageError, options.chunk_rows >= 0, op, ": chunk_rows is ", options.chunk_rows,
               "; it is at least 1, or 0 for the usual number");
  if (!correct.defined()) return;
  HEARTH_CHECK(UsageError, correct.dtype() == DType::i64 && correct.size() == 1, op, ": correct is ", describe(correct),
               "; it is one i64");
  HEARTH_CHECK(DeviceError, correct.device() == x.device(), op, ": correct is on ", correct.device(), ", x on ",
               x.device(), "; move one with to(device)");
}

}  // namespace

std::int64_t linear_cross_entropy_rows(Device device, std::int64_t rows, std::int64_t classes, DType dtype) {
  return run_on(device, [&](auto& stream) {
    const std::int64_t columns = kernels::head_columns(stream, classes, dtype);
    const std::int64_t most = kernels::head_rows(stream, checked_mul(columns, static_cast<std::int64_t>(size_of(dtype)),
                                                                     "linear_cross_entropy: bytes of a row"));
    if (device.is_cpu() || rows <= most) return most;
    const std::int64_t chunks = (rows + most - 1) / most, tile = 128;
    return ((rows + chunks - 1) / chunks + tile - 1) / tile * tile;
  });
}

Tensor linear_cross_entropy(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& labels,
                            const LinearCrossEntropyOptions& options, const Tensor& correct) {
  check_arguments(x, w, b, labels, options, correct);
  return record(LinearCrossEntropy{options, correct, w.dtype()}, x, w, b, labels.detach());
}

}  // namespace hearth
