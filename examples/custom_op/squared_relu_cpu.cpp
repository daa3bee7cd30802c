// SPDX-License-Identifier: Apache-2.0
#include "squared_relu.h"

namespace own_kernels {

using namespace hearth;

void squared_relu(cpu::Stream&, const Tensor& x, const Tensor& y) {
  visit_dtype("squared_relu", x.dtype(), FullFloats{}, [&]<class T>() {
    const T* in = x.data<T>();
    T* out = y.data<T>();
    for (std::int64_t i = 0; i < x.size(); ++i) out[i] = in[i] > 0 ? in[i] * in[i] : T(0);
  });
}

void squared_relu_grad(cpu::Stream&, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  visit_dtype("squared_relu", x.dtype(), FullFloats{}, [&]<class T>() {
    const T *in = x.data<T>(), *slope = dy.data<T>();
    T* out = dx.data<T>();
    for (std::int64_t i = 0; i < x.size(); ++i) out[i] = in[i] > 0 ? 2 * in[i] * slope[i] : T(0);
  });
}

}  // namespace own_kernels
