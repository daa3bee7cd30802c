// SPDX-License-Identifier: Apache-2.0
// One pass over memory: x is read and y written once; arithmetic in f32 (f64 for f64).
#include "core/cpu/blocks.h"
#include "core/cpu/parallel.h"
#include "ops/pointwise/blocks.h"
#include "ops/pointwise/pointwise.h"

namespace hearth::kernels {
namespace {

// Large enough to pay for a task, small enough to share among many threads.
constexpr std::int64_t pointwise_grain = 1 << 14;

}  // namespace

void pointwise(cpu::Stream&, const PointwiseFunction& f, const Tensor& x, const Tensor& y) {
  visit_dtype("pointwise", x.dtype(), Floats{}, [&]<class T>() {
    using A = acc_t<T>;
    const T* const from = x.data<T>();
    T* const to = y.data<T>();
    const ValueBlock<A> values = value_block<A>(f.which);
    cpu::parallel_for(x.size(), pointwise_grain, [&](std::int64_t begin, std::int64_t end) {
      cpu::Strip<T> strip;
      cpu::each_block<T>(begin, end, [&](std::int64_t at, std::int64_t n) {
        values(cpu::read_block(from + at, n, strip), cpu::block_of(to + at, strip), n, static_cast<A>(f.a),
               static_cast<A>(f.b));
        cpu::write_block(strip, to + at, n);
      });
    });
  });
}

void pointwise_grad(cpu::Stream&, const PointwiseFunction& f, const Tensor& kept, const Tensor& dy, const Tensor& dx) {
  visit_dtype("pointwise", dy.dtype(), Floats{}, [&]<class T>() {
    using A = acc_t<T>;
    const T* const in = dy.data<T>();
    // A function that needs neither x nor y ignores what it is given here.
    const T* const saved = kept.defined() ? kept.data<T>() : in;
    T* const out = dx.data<T>();
    const SlopeBlock<A> slopes = slope_block<A>(f.which);
    cpu::parallel_for(dy.size(), pointwise_grain, [&](std::int64_t begin, std::int64_t end) {
      cpu::Strip<T> strip, strip_dy;
      cpu::each_block<T>(begin, end, [&](std::int64_t at, std::int64_t n) {
        slopes(cpu::read_block(saved + at, n, strip), cpu::read_block(in + at, n, strip_dy),
               cpu::block_of(out + at, strip_dy), n, static_cast<A>(f.a), static_cast<A>(f.b));
        cpu::write_block(strip_dy, out + at, n);
      });
    });
  });
}

}  // namespace hearth::kernels
