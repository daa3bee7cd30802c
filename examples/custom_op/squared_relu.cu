// SPDX-License-Identifier: Apache-2.0
// The kernels for CUDA devices. nvcc compiles this for a real one, the host compiler for the emulated one.
#include <hearth/core/cuda/elementwise.h>

#include "squared_relu.h"

namespace own_kernels {
namespace {

using namespace hearth;

struct Forward {
  template <class T>
  __device__ T operator()(T x) const {
    return x > T(0) ? x * x : T(0);
  }
};

struct Backward {
  template <class T>
  __device__ T operator()(T x, T dy) const {
    return x > T(0) ? 2 * x * dy : T(0);
  }
};

template <class T>
const T* values_of(const Tensor& x) {
  return x.data<T>();
}

}  // namespace

void squared_relu(cuda::Stream& stream, const Tensor& x, const Tensor& y) {
  visit_dtype("squared_relu", x.dtype(), FullFloats{},
              [&]<class T>() { cuda::map(stream, "squared_relu", Forward{}, x.size(), y.data<T>(), values_of<T>(x)); });
}

void squared_relu_grad(cuda::Stream& stream, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  visit_dtype("squared_relu", x.dtype(), FullFloats{}, [&]<class T>() {
    cuda::map(stream, "squared_relu_grad", Backward{}, x.size(), dx.data<T>(), values_of<T>(x), values_of<T>(dy));
  });
}

}  // namespace own_kernels
