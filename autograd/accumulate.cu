// SPDX-License-Identifier: Apache-2.0
// A thread adds 16 bytes. Traffic: both arrays are read once and the sum is written once.
#include "autograd/accumulate.h"
#include "core/cuda/elementwise.h"

namespace hearth::kernels {
namespace {

struct Add {
  template <class A>
  __device__ A operator()(A sum, A term) const {
    return sum + term;
  }
};

}  // namespace

void add_into(cuda::Stream& stream, const Tensor& sum, const Tensor& term) {
  visit_dtype("gradient sum", sum.dtype(), Floats{}, [&]<class T>() {
    T* const into = sum.data<T>();
    cuda::map(stream, "add_into", Add{}, sum.size(), into, static_cast<const T*>(into),
              static_cast<const T*>(term.data<T>()));
  });
}

}  // namespace hearth::kernels
