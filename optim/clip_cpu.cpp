// SPDX-License-Identifier: Apache-2.0
// Reductions over the flat gradients. Each piece of fixed size has its own partial result; partial results are combined
// in order. Traffic: one read.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/cpu/parallel.h"
#include "optim/clip.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "optim/clip_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

// Sixteen running sums, whatever the vector width, so that all ISA levels add in the same order.
template <class T>
double squares(const T* x, std::int64_t n, double scale) {
  double sums[16] = {};
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
#pragma omp simd
    for (int lane = 0; lane < 16; ++lane) {
      const double value = static_cast<double>(x[i + lane]) * scale;
      sums[lane] += value * value;
    }
  }
  for (int lane = 0; i < n; ++i, ++lane) {
    const double value = static_cast<double>(x[i]) * scale;
    sums[lane] += value * value;
  }
  for (int width = 8; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  }
  return sums[0];
}

template <class T>
double largest(const T* x, std::int64_t n) {
  T most = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const T size = std::abs(x[i]);
    most = size <= most ? most : size;  // a NaN compares false and is taken, and then never replaced by a number
    if (most != most) return static_cast<double>(most);
  }
  return static_cast<double>(most);
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {

namespace {

constexpr std::int64_t piece_elements = 65536;

std::size_t pieces_of(std::int64_t n) { return static_cast<std::size_t>((n + piece_elements - 1) / piece_elements); }

}  // namespace

template <class T>
double sum_of_squares(const T* x, std::int64_t n, double scale) {
  return HEARTH_ISA_CALL(squares<T>, x, n, scale);
}
template double sum_of_squares(const float*, std::int64_t, double);
template double sum_of_squares(const double*, std::int64_t, double);

double sum_of_squares(cpu::Stream&, const Tensor& x, double scale) {
  std::vector<double> partial(pieces_of(x.size()), 0.0);
  visit_dtype("sum_of_squares", x.dtype(), FullFloats{}, [&]<class T>() {
    const T* values = x.data<T>();
    cpu::parallel_for(x.size(), piece_elements, [&](std::int64_t begin, std::int64_t end) {
      partial[static_cast<std::size_t>(begin / piece_elements)] = sum_of_squares(values + begin, end - begin, scale);
    });
  });
  double sum = 0;
  for (const double part : partial) sum += part;
  return sum;
}

void sum_of_squares(cpu::Stream& stream, const Tensor& x, double scale, const Tensor& sum) {
  *sum.data<double>() = sum_of_squares(stream, x, scale);
}

double largest_magnitude(cpu::Stream&, const Tensor& x) {
  std::vector<double> partial(pieces_of(x.size()), 0.0);
  visit_dtype("largest_magnitude", x.dtype(), FullFloats{}, [&]<class T>() {
    const T* values = x.data<T>();
    cpu::parallel_for(x.size(), piece_elements, [&](std::int64_t begin, std::int64_t end) {
      partial[static_cast<std::size_t>(begin / piece_elements)] =
          HEARTH_ISA_CALL(largest<T>, values + begin, end - begin);
    });
  });
  double most = 0;
  for (const double part : partial) most = part <= most ? most : (most != most ? most : part);
  return most;
}

}  // namespace hearth::kernels
#endif
