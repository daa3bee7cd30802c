// SPDX-License-Identifier: Apache-2.0
// An op of the tape has one result, so one pass makes two nodes: Added, whose result is the sum, and behind it Normed,
// whose result is y. Whoever uses the sum comes after both, so a backward pass reaches Normed when all others have
// given the sum their gradients: Normed adds its own to them where they are, and leaves df to Added on the way.
#include "ops/norm/add_layer_norm.h"

#include <array>
#include <memory>
#include <utility>

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/argument.h"
#include "ops/norm/parameter.h"
#include "ops/pointwise/drop_path.h"
#include "ops/pointwise/dropout.h"

namespace hearth {
namespace {

bool drops_nothing(const kernels::ResidualDropout& dropout) { return dropout.p == 0 && dropout.path == 0; }

/// What one node leaves to the other.
struct Branch {
  Tensor y, mean, rstd;  ///< Added to Normed, forward
  Tensor df;             ///< Normed to Added, backward
  DType f_type = DType::f32;
  bool wants_df = false;
};

struct Added {
  static constexpr OpInfo info{.name = "add_layer_norm", .autocast = Autocast::as_is};
  struct Saved {};
  kernels::ResidualDropout dropout;
  double eps;
  DType y_type;
  std::shared_ptr<Branch> pass;

  // gamma and beta get no gradient here.
  Tensor forward(Saved&, const Tensor& x, const Tensor& f, const Tensor& gamma, const Tensor& beta) const {
    const std::int64_t cols = x.dim(-1), rows = cols == 0 ? 0 : x.size() / cols;
    const Tensor sum = Tensor::empty(x.shape(), x.dtype(), x.device());
    pass->y = Tensor::empty(x.shape(), y_type, x.device());
    pass->mean = Tensor::empty({rows}, gamma.dtype(), x.device());
    pass->rstd = Tensor::empty_like(pass->mean);
    pass->f_type = f.dtype();
    pass->wants_df = needs_grad(f);
    run_on(x.device(), [&](auto& stream) {
      kernels::add_layer_norm(stream, x.contiguous(), f.contiguous(), dropout, sum,
                              {gamma.contiguous(), beta.contiguous(), eps, pass->y, pass->mean, pass->rstd});
    });
    return sum;
  }

  std::array<Tensor, 4> backward(const Saved&, const Tensor& d_sum, const NeedsGrad& needs) const {
    if (!needs[1]) return {d_sum};
    // Where y gave no gradient, Normed did not run.
    Tensor df = pass->df.defined() ? std::exchange(pass->df, {}) : dropped(d_sum);
    return {d_sum, std::move(df)};
  }

  Tensor dropped(const Tensor& d_sum) const {
    const Tensor df = d_sum.dtype() == pass->f_type ? d_sum.contiguous() : d_sum.to(pass->f_type);
    if (drops_nothing(dropout) || df.size() == 0) return df;
    const Tensor result = Tensor::empty_like(df);
    run_on(df.device(), [&](auto& stream) {
      if (dropout.path > 0) kernels::drop_path(stream, df, {}, dropout.path_key, dropout.path, result);
      if (dropout.p > 0) kernels::dropout(stream, dropout.path > 0 ? result : df, dropout.key, dropout.p, result);
    });
    return result;
  }
};

struct Normed {
  static constexpr OpInfo info{.name = "add_layer_norm", .autocast = Autocast::as_is};
  struct Saved {
    SavedTensor sum, gamma;
    Tensor mean, rstd;
  };
  kernels::ResidualDropout dropout;
  std::shared_ptr<Branch> pass;
  std::weak_ptr<GradState> slot;  ///< of the sum

  Tensor forward(Saved& saved, const Tensor& sum, const Tensor& gamma, const Tensor&) const {
    if (is_recording()) {
      saved.sum = sum;
      saved.gamma = gamma.contiguous();
      saved.mean = pass->mean;
      saved.rstd = pass->rstd;
    }
    pass->mean = pass->rstd = Tensor();
    return std::exchange(pass->y, {});
  }

  std::array<Tensor, 3> backward(const Saved& saved, Tensor dy, const NeedsGrad& needs) const {
    const Tensor& sum = saved.sum.get();
    const Tensor& gamma = saved.gamma.get();
    dy = dy.contiguous();
    std::array<Tensor, 3> gradients;
    for (const std::size_t input : {std::size_t{1}, std::size_t{2}})
      if (needs[input]) gradients[input] = needs.make(input, gamma.shape(), gamma.dtype());
    const Tensor others = needs[0] ? take_others() : Tensor();
    const bool over_dy = dy.dtype() == sum.dtype() && dy.sole_owner();
    const Tensor d_sum = others.defined() ? others : over_dy ? dy : Tensor::empty_like(sum);
    // What f and the sum get is the same where nothing is dropped or rounded.
    const bool same = drops_nothing(dropout) && pass->f_type == sum.dtype();
    Tensor df;
    if (pass->wants_df && !same) df = Tensor::empty(sum.shape(), pass->f_type, sum.device());
    run_on(sum.device(), [&](auto& stream) {
      kernels::add_layer_norm_grad(stream, sum, {dy, gamma, saved.mean, saved.rstd, gradients[1], gradients[2]},
                                   dropout, others, d_sum, df);
    });
    if (pass->wants_df) pass->df = same ? d_sum : df;
    if (needs[0] && !others.defined()) gradients[0] = d_sum;
    return gradients;
  }

  /// What the sum has from all others, to be written over; undefined if that is nothing.
  Tensor take_others() const {
    Tensor& pending = slot.lock()->pending;
    if (pending.defined() && !(pending.is_contiguous() && pending.sole_owner())) pending = pending.clone();
    return pending;
  }
};

void check_arguments(const Tensor& x, const Tensor& f, const Tensor& gamma, const Tensor& beta,
                     const AddLayerNormOptions& options) {
  const char* const op = Added::info.name;
  check_norm_rows(op, x, options.eps);
  require_floating(op, "f", f);
  HEARTH_CHECK(ShapeError, x.shape() == f.shape(), op, ": x ", x.shape(), " and f ", f.shape(),
               " differ; they must have one shape");
  HEARTH_CHECK(DTypeError, f.dtype() == x.dtype() || (x.dtype() == DType::f32 && size_of(f.dtype()) == 2), op,
               ": f is ", f.dtype(), " and x ", x.dtype(), "; f has x's type, or is f16 or bf16 beside f32");
  check_norm_parameter(op, "gamma", gamma, x);
  check_norm_parameter(op, "beta", beta, x);
  for (const double p : {options.dropout, options.drop_path}) require_probability(op, "the probability", p);
  HEARTH_CHECK(ShapeError, options.drop_path == 0 || x.rank() >= 2, op, ": x ", x.shape(),
               " has no samples to drop; it must be [N, ..., C]");
}

}  // namespace

SumAndNorm add_layer_norm(const Tensor& x, const Tensor& f, const Tensor& gamma, const Tensor& beta,
                          const AddLayerNormOptions& options) {
  check_arguments(x, f, gamma, beta, options);
  kernels::ResidualDropout dropout{.key = {}, .p = options.dropout, .path = options.drop_path};
  if (dropout.p > 0) dropout.key = next_random_key();
  if (dropout.path > 0) dropout.path_key = next_random_key();
  const auto pass = std::make_shared<Branch>();
  const DType low = norm_result_dtype(x, options.low_precision), y_type = f.dtype() == low ? low : x.dtype();
  const Tensor sum = record(Added{dropout, options.eps, y_type, pass}, x, f, gamma.detach(), beta.detach());
  const Tensor y = record(Normed{dropout, pass, sum.grad_state()}, sum, gamma, beta);
  return {sum, y};
}

}  // namespace hearth
