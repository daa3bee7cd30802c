// SPDX-License-Identifier: Apache-2.0
#include "ops/reduce/cumsum.h"

#include <algorithm>

#include "autograd/record.h"
#include "core/cpu/element.h"
#include "core/cpu/parallel.h"
#include "core/run_on.h"
#include "ops/argument.h"

namespace hearth {
namespace {

struct CumSum {
  static constexpr OpInfo info{.name = "cumsum", .autocast = Autocast::f32};
  struct Saved {};
  int axis;

  Tensor along(const Tensor& x, bool reverse) const {
    // Exchanging the axis and the last one is its own inverse.
    const Tensor rows = x.detach().transpose(axis, -1).contiguous();
    const Tensor y = Tensor::empty_like(rows);
    const std::int64_t cols = rows.dim(-1);
    if (y.size() != 0)
      run_on(x.device(), [&](auto& stream) { kernels::cumsum(stream, rows, y.size() / cols, cols, reverse, y); });
    return y.transpose(axis, -1).contiguous();
  }

  Tensor forward(Saved&, const Tensor& x) const { return along(x, false); }
  std::array<Tensor, 1> backward(const Saved&, Tensor dy, const NeedsGrad&) const { return {along(dy, true)}; }
};

}  // namespace

Tensor cumsum(const Tensor& x, int axis) {
  require_defined("cumsum", "x", x);
  const CumSum op{require_axis("cumsum", axis, x.shape())};
  return record(op, is_floating(x.dtype()) ? x : x.to(DType::i64));
}

namespace kernels {

void cumsum(cpu::Stream&, const Tensor& x, std::int64_t rows, std::int64_t cols, bool reverse, const Tensor& y) {
  const auto each_row = [&](const auto& f) {
    cpu::parallel_for(rows, std::max<std::int64_t>(1, (1 << 14) / cols), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) f(reverse ? (r + 1) * cols - 1 : r * cols);
    });
  };
  const std::int64_t step = reverse ? -1 : 1;
  if (x.dtype() == DType::i64) {
    each_row([from = x.data<std::int64_t>(), to = y.data<std::int64_t>(), cols, step](std::int64_t at) {
      std::uint64_t sum = 0;
      for (std::int64_t c = 0; c < cols; ++c, at += step)
        to[at] = static_cast<std::int64_t>(sum += static_cast<std::uint64_t>(from[at]));
    });
    return;
  }
  visit_dtype("cumsum", x.dtype(), Floats{}, [&]<class T>() {
    each_row([from = x.data<T>(), to = y.data<T>(), cols, step](std::int64_t at) {
      double sum = 0;
      for (std::int64_t c = 0; c < cols; ++c, at += step) {
        sum += static_cast<double>(cpu::load(from + at));
        cpu::store(to + at, static_cast<acc_t<T>>(sum));
      }
    });
  });
}

}  // namespace kernels
}  // namespace hearth
