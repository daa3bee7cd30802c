// SPDX-License-Identifier: Apache-2.0
// One pass over memory: a thread takes 16 bytes of x and writes 16 of y (the gradient reads two arrays). Arithmetic in
// f32 (f64 for f64), rounded once.
#include "core/cuda/elementwise.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/value_slope.h"

namespace hearth::kernels {

void pointwise(cuda::Stream& stream, const PointwiseFunction& f, const Tensor& x, const Tensor& y) {
  visit_dtype("pointwise", x.dtype(), Floats{}, [&]<class T>() {
    visit_function(f.which, [&]<class F>(F, const char* name, const char*) {
      const Value<F, acc_t<T> > value{static_cast<acc_t<T> >(f.a), static_cast<acc_t<T> >(f.b)};
      cuda::map(stream, name, value, x.size(), y.data<T>(), static_cast<const T*>(x.data<T>()));
    });
  });
}

void pointwise_grad(cuda::Stream& stream, const PointwiseFunction& f, const Tensor& kept, const Tensor& dy,
                    const Tensor& dx) {
  visit_dtype("pointwise", dy.dtype(), Floats{}, [&]<class T>() {
    const T* const in = dy.data<T>();
    // A function that needs neither x nor y ignores what it is given here.
    const T* const state = kept.defined() ? kept.data<T>() : in;
    visit_function(f.which, [&]<class F>(F, const char*, const char* name) {
      const Slope<F, acc_t<T> > slope{static_cast<acc_t<T> >(f.a), static_cast<acc_t<T> >(f.b)};
      cuda::map(stream, name, slope, dy.size(), dx.data<T>(), state, in);
    });
  });
}

}  // namespace hearth::kernels
