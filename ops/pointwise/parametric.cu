// SPDX-License-Identifier: Apache-2.0
// One pass over memory, 16 bytes a thread (core/cuda/elementwise.h). Arithmetic in f32 (f64 for f64), rounded once.
#include "core/cuda/elementwise.h"
#include "ops/pointwise/parametric_visit.h"

namespace hearth::kernels {
namespace {

template <class F, class A>
struct ParametricValue {
  A a, b;
  HEARTH_ALWAYS_INLINE A operator()(A x) const { return F::value(x, a, b); }
};

template <class F, class A>
struct ParametricSlope {
  A a, b;
  HEARTH_ALWAYS_INLINE A operator()(A x, A dy) const { return dy * F::slope(x, a, b); }
};

}  // namespace

void parametric(cuda::Stream& stream, const ParametricFunction& f, const Tensor& x, const Tensor& y) {
  visit_dtype("parametric", x.dtype(), Floats{}, [&]<class T>() {
    using A = acc_t<T>;
    const A a = static_cast<A>(f.a), b = static_cast<A>(f.b);
    visit_parametric(f.function, [&]<class F>(F, const char* name, const char*) {
      cuda::map(stream, name, ParametricValue<F, A>{a, b}, x.size(), y.data<T>(), static_cast<const T*>(x.data<T>()));
    });
  });
}

void parametric_grad(cuda::Stream& stream, const ParametricFunction& f, const Tensor& x, const Tensor& dy,
                     const Tensor& dx) {
  visit_dtype("parametric", x.dtype(), Floats{}, [&]<class T>() {
    using A = acc_t<T>;
    const A a = static_cast<A>(f.a), b = static_cast<A>(f.b);
    visit_parametric(f.function, [&]<class F>(F, const char*, const char* name) {
      cuda::map(stream, name, ParametricSlope<F, A>{a, b}, x.size(), dx.data<T>(), static_cast<const T*>(x.data<T>()),
                static_cast<const T*>(dy.data<T>()));
    });
  });
}

}  // namespace hearth::kernels
