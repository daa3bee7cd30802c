// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/matmul.h"

#include <algorithm>

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/matmul/product.h"
#include "ops/shape/split.h"
#include "ops/shape/view.h"

namespace hearth {
namespace {

/// Extents of a matmul: op(A) [batch, m, k], op(B) [batch or 1, k, n].
struct Extents {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
};

/// The extents, or ShapeError. b has the leading axes of a, or none.
Extents extents_of(const Shape& a, const Shape& b, const MatmulOptions& options) {
  Extents e;
  e.m = a.dim(options.transpose_a ? -1 : -2);
  e.k = a.dim(options.transpose_a ? -2 : -1);
  e.n = b.dim(options.transpose_b ? -2 : -1);
  const std::int64_t k = b.dim(options.transpose_b ? -1 : -2);
  const char* how_a = options.transpose_a ? " transposed" : "";
  const char* how_b = options.transpose_b ? " transposed" : "";
  HEARTH_CHECK(ShapeError, e.k == k, "matmul: rows of a have ", e.k, " elements but columns of b have ", k, " (a ", a,
               how_a, ", b ", b, how_b, "); the inner sizes must be equal");
  for (int axis = 0; axis < a.rank() - 2; ++axis)
    e.batch = checked_mul(e.batch, a[axis], "matmul: product of the leading axes");
  return e;
}

void run_product(const MatmulProblem& problem, const Tensor& a, const Tensor& b, const Tensor& c) {
  run_on(c.device(), [&](auto& stream) {
    static kernels::ProductCandidates candidates = kernels::product_candidates(stream, "matmul");
    kernels::product(stream, candidates, problem, {.a = a, .b = b, .c = c});
  });
}

struct Matmul {
  static constexpr OpInfo info{.name = "matmul", .autocast = Autocast::low_precision};
  struct Saved {
    SavedTensor a, b;
  };
  MatmulOptions options;
  bool shared_b = false;  ///< b is one matrix for a batch of a

  Tensor forward(Saved& saved, const Tensor& a_in, const Tensor& b_in) const {
    const Extents e = extents_of(a_in.shape(), b_in.shape(), options);
    for (const Tensor* x : {&a_in, &b_in})
      HEARTH_CHECK(DTypeError, is_floating(x->dtype()), "matmul: takes f32, f64, f16 or bf16, not ", x->dtype(),
                   "; cast first");
    HEARTH_CHECK(DTypeError, a_in.dtype() == b_in.dtype(), "matmul: a is ", a_in.dtype(), " and b is ", b_in.dtype(),
                 "; cast one of them so that they agree");
    HEARTH_CHECK(DeviceError, a_in.device() == b_in.device(), "matmul: a is on ", name_of(a_in.device()), " and b on ",
                 name_of(b_in.device()), "; move one with to(device)");
    const Tensor a = a_in.contiguous(), b = b_in.contiguous();
    checked_mul(checked_mul(e.batch, e.m, "matmul: rows of the result"), e.n, "matmul: elements of the result");
    const Shape shape = a.shape().with(-2, e.m).with(-1, e.n);
    const Tensor y = Tensor::empty(shape, a.dtype(), a.device());
    run_product(forward_problem(e), a, b, y);
    if (needs_grad(b_in)) saved.a = a;
    if (needs_grad(a_in)) saved.b = b;
    return y;
  }

  std::array<Tensor, 2> backward(const Saved& saved, const Tensor& dy_in, const NeedsGrad& needs) const {
    const Tensor dy = dy_in.contiguous();
    std::array<Tensor, 2> gradients;
    if (needs[0]) gradients[0] = grad_a(saved.b.get(), dy, needs);
    if (needs[1]) gradients[1] = grad_b(saved.a.get(), dy, needs);
    return gradients;
  }

  MatmulProblem forward_problem(const Extents& e) const {
    MatmulProblem problem{.batch = e.batch,
                          .m = e.m,
                          .n = e.n,
                          .k = e.k,
                          .transpose_a = options.transpose_a,
                          .transpose_b = options.transpose_b};
    if (!shared_b) return problem;
    if (options.transpose_a) {
      problem.batch_stride_b = 0;
      return problem;
    }
    // Rows of all matrices of the batch follow one another, so they make one tall matrix.
    problem.m *= problem.batch;
    problem.batch = 1;
    return problem;
  }

  /// dA = dY op(B)^T, or its transpose where a is stored transposed.
  Tensor grad_a(const Tensor& b, const Tensor& dy, const NeedsGrad& needs) const {
    const std::int64_t m = dy.dim(-2), n = dy.dim(-1);
    const std::int64_t k = b.dim(options.transpose_b ? -1 : -2);
    const std::int64_t batch = batch_of(dy);
    const Shape shape = dy.shape().with(-2, options.transpose_a ? k : m).with(-1, options.transpose_a ? m : k);
    const Tensor da = needs.make(0, shape, dy.dtype());
    if (!options.transpose_a) {
      MatmulProblem problem{.batch = batch, .m = m, .n = k, .k = n, .transpose_b = !options.transpose_b};
      if (shared_b) problem = {.m = batch * m, .n = k, .k = n, .transpose_b = !options.transpose_b};
      run_product(problem, dy, b, da);
      return da;
    }
    const MatmulProblem problem{
        .batch = shared_b ? 1 : batch, .m = k, .n = m, .k = n, .transpose_a = options.transpose_b, .transpose_b = true};
    if (!shared_b) {
      run_product(problem, b, dy, da);
      return da;
    }
    const Tensor dys = dy.as_shape({batch, m, n}), das = da.as_shape({batch, k, m});
    for (std::int64_t i = 0; i < batch; ++i) run_product(problem, b, matrix(dys, i), matrix(das, i));
    return da;
  }

  /// dB = op(A)^T dY, or its transpose where b is stored transposed; summed over the batch where b is shared.
  Tensor grad_b(const Tensor& a, const Tensor& dy, const NeedsGrad& needs) const {
    const std::int64_t m = dy.dim(-2), n = dy.dim(-1);
    const std::int64_t k = a.dim(options.transpose_a ? -2 : -1);
    const std::int64_t batch = batch_of(dy);
    const std::int64_t rows = options.transpose_b ? n : k, cols = options.transpose_b ? k : n;
    const Shape shape = shared_b ? Shape{rows, cols} : dy.shape().with(-2, rows).with(-1, cols);
    const Tensor db = needs.make(1, shape, dy.dtype());
    MatmulProblem problem{.batch = batch, .m = rows, .n = cols, .k = m};
    problem.transpose_a = options.transpose_b ? true : !options.transpose_a;
    problem.transpose_b = options.transpose_b ? options.transpose_a : false;
    const auto run = [&](const Tensor& x, const Tensor& g, const Tensor& into) {
      if (options.transpose_b)
        run_product(problem, g, x, into);
      else
        run_product(problem, x, g, into);
    };
    if (!shared_b) {
      run(a, dy, db);
      return db;
    }
    problem.batch = 1;
    if (!options.transpose_a) {
      problem.k = batch * m;
      run(a, dy, db);
      return db;
    }
    const DType wide = db.dtype() == DType::f64 ? DType::f64 : DType::f32;
    const Tensor sum = db.dtype() == wide ? db : Tensor::empty(shape, wide, db.device());
    if (batch == 0) sum.fill_(0);
    const Tensor as = a.as_shape({batch, k, m}), dys = dy.as_shape({batch, m, n});
    for (std::int64_t i = 0; i < batch; ++i) {
      problem.accumulate = i > 0;
      run(matrix(as, i), matrix(dys, i), sum);
    }
    if (!sum.same_storage(db)) db.copy_from(sum);
    return db;
  }

  static std::int64_t batch_of(const Tensor& y) {
    std::int64_t batch = 1;
    for (int axis = 0; axis < y.rank() - 2; ++axis) batch *= y.shape()[axis];
    return batch;
  }

  /// The i-th matrix of a dense [batch, rows, cols].
  static Tensor matrix(const Tensor& x, std::int64_t i) {
    const Shape shape{x.dim(1), x.dim(2)};
    return Tensor::view(x.storage(), shape, contiguous_strides(shape), x.offset() + i * shape.size(), x.dtype(),
                        x.device());
  }
};

/// The axes in front of a matrix.
Shape leading_axes(const Shape& matrices) {
  return Shape(std::span(matrices.begin(), static_cast<std::size_t>(matrices.rank() - 2)));
}

/// x with the leading axes `batch`: itself, or a view that repeats its matrices.
Tensor with_leading_axes(const Tensor& x, const Shape& batch) {
  if (leading_axes(x.shape()) == batch) return x;
  HEARTH_CHECK(ShapeError, batch.rank() + 2 <= Shape::max_rank, "matmul: a result of ", batch.rank() + 2,
               " axes; there are at most ", Shape::max_rank);
  std::array<std::int64_t, Shape::max_rank> extents{};
  const auto matrix = std::copy(batch.begin(), batch.end(), extents.begin());
  matrix[0] = x.dim(-2);
  matrix[1] = x.dim(-1);
  return expand(x, Shape(std::span<const std::int64_t>(extents.data(), static_cast<std::size_t>(batch.rank() + 2))));
}

/// The product of matrices whose leading axes broadcast.
Tensor of_matrices(const Tensor& a, const Tensor& b, const MatmulOptions& options) {
  const Shape batch_a = leading_axes(a.shape()), batch_b = leading_axes(b.shape());
  // One matrix b serves a whole batch of a as it is.
  if (batch_a == batch_b || batch_b.rank() == 0)
    return record(Matmul{.options = options, .shared_b = b.rank() == 2 && a.rank() > 2}, a, b);
  const Shape batch = broadcast_shapes("matmul: leading axes", batch_a, batch_b);
  return record(Matmul{.options = options}, with_leading_axes(a, batch), with_leading_axes(b, batch));
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, MatmulOptions options) {
  HEARTH_CHECK(UsageError, a.defined() && b.defined(), "matmul: both operands are needed; found a ", describe(a),
               " and b ", describe(b));
  HEARTH_CHECK(ShapeError, a.rank() >= 1 && b.rank() >= 1, "matmul: a number is no matrix; found a ", a.shape(),
               " and b ", b.shape(), "; multiply by it with mul");
  const bool row = a.rank() == 1, column = b.rank() == 1;
  HEARTH_CHECK(UsageError, !(row && options.transpose_a) && !(column && options.transpose_b),
               "matmul: a vector is not transposed; found a ", a.shape(), " and b ", b.shape(),
               "; leave out transpose_", row && options.transpose_a ? "a" : "b");
  if (!row && !column) return of_matrices(a, b, options);
  const Tensor y = of_matrices(row ? unsqueeze(a, 0) : a, column ? unsqueeze(b, 1) : b, options);
  return row && column ? reshape(y, Shape{}) : squeeze(y, row ? -2 : -1);
}

}  // namespace hearth
