// SPDX-License-Identifier: Apache-2.0
#include "ops/pointwise/drop_path.h"

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/argument.h"
#include "ops/pointwise/binary.h"

namespace hearth {
namespace {

void write_dropped(const Tensor& x, const Tensor& residual, const RandomKey& key, double p, const Tensor& y) {
  if (x.size() == 0) return;
  run_on(x.device(), [&](auto& stream) { kernels::drop_path(stream, x, residual, key, p, y); });
}

Tensor dropped_gradient(Tensor dy, std::size_t input, const NeedsGrad& needs, const RandomKey& key, double p) {
  const bool in_place = dy.is_contiguous() && dy.sole_owner();
  const Tensor dense = in_place ? std::move(dy) : dy.contiguous();
  const Tensor dx = in_place ? dense : needs.make(input, dense.shape(), dense.dtype());
  write_dropped(dense, {}, key, p, dx);
  return dx;
}

struct DropPath {
  static constexpr OpInfo info{.name = "drop_path"};
  struct Saved {};
  double p;
  RandomKey key;

  Tensor forward(Saved&, const Tensor& x) const {
    const Tensor y = Tensor::empty_like(x);
    write_dropped(x.contiguous(), {}, key, p, y);
    return y;
  }

  std::array<Tensor, 1> backward(const Saved&, Tensor dy, const NeedsGrad& needs) const {
    return {dropped_gradient(std::move(dy), 0, needs, key, p)};
  }
};

struct AddDropPath {
  static constexpr OpInfo info{.name = "add_drop_path"};
  struct Saved {};
  double p;
  RandomKey key;

  Tensor forward(Saved&, const Tensor& residual, const Tensor& x) const {
    HEARTH_CHECK(DTypeError, residual.dtype() == x.dtype(), info.name, ": residual is ", residual.dtype(), " and x ",
                 x.dtype(), "; convert one with to(dtype)");
    const Tensor y = Tensor::empty_like(x);
    write_dropped(x.contiguous(), residual.contiguous(), key, p, y);
    return y;
  }

  std::array<Tensor, 2> backward(const Saved&, Tensor dy, const NeedsGrad& needs) const {
    const Tensor to_residual = needs[0] ? dy : Tensor();
    if (!needs[1]) return {to_residual, Tensor()};
    return {to_residual, dropped_gradient(std::move(dy), 1, needs, key, p)};
  }
};

void check_samples(const char* op, const Tensor& x) {
  require_floating(op, "x", x);
  HEARTH_CHECK(ShapeError, x.rank() > 0, op, ": x ", x.shape(), " has no samples; it must be [N, ...]");
}

}  // namespace

Tensor drop_path(const Tensor& x, double p, bool training) {
  check_samples("drop_path", x);
  require_probability("drop_path", "the probability", p);
  if (!training || p == 0) return x;
  return record(DropPath{p, next_random_key()}, x);
}

Tensor add_drop_path(const Tensor& residual, const Tensor& x, double p, bool training) {
  const char* const op = "add_drop_path";
  check_samples(op, x);
  require_defined(op, "residual", residual);
  require_probability(op, "the probability", p);
  HEARTH_CHECK(ShapeError, residual.shape() == x.shape(), op, ": residual ", residual.shape(), " and x ", x.shape(),
               " must be of one shape");
  if (!training || p == 0) return add(residual, x);
  return record(AddDropPath{p, next_random_key()}, residual, x);
}

}  // namespace hearth
